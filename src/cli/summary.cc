#include "cli/summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/output.h"

namespace windrow::cli {
namespace {

std::string codec_text(const AttentionGroup& g) { return to_string(KvCodecs{g.keys, g.values}); }

// "q4:64" where all groups agree, else each group's.
std::string codecs_text(const StatePlan& plan) {
  std::string text = codec_text(plan.group(0));
  for (int g = 1; g < plan.group_count(); g++) {
    if (const std::string other = codec_text(plan.group(g)); other != text) text += " + " + other;
  }
  return text;
}

// Is everything bf16 already? Then there is nothing to compare with bf16.
bool all_bf16(const StatePlan& plan) {
  for (int g = 0; g < plan.group_count(); g++) {
    if (plan.group(g).keys != Codec::bf16() || plan.group(g).values != Codec::bf16()) return false;
  }
  return true;
}

// `share` of `cells` in eighths of a character; never nothing at all.
std::string bar(double share, int cells) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = std::max(1, static_cast<int>(share * cells * 8 + 0.5));
  std::string text;
  for (int i = 0; i < eighths / 8; i++) text += "█";
  text += kEighths[eighths % 8];
  const int used = (eighths + 7) / 8;
  return text + std::string(static_cast<std::size_t>(std::max(0, cells - used)), ' ');
}

class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  std::string operator()(const char* code, const std::string& text) const {
    return on_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  }

 private:
  bool on_;
};
constexpr const char* kBold = "1";
constexpr const char* kDim = "2";
constexpr const char* kGreen = "32";

std::string bytes_picture(const StateBytes& bytes, const StatePlan& plan, const Paint& paint) {
  const std::string name = codecs_text(plan);
  const double most = static_cast<double>(std::max({bytes.planned, bytes.bf16, bytes.unbounded}));
  const int width = static_cast<int>(std::max<std::size_t>(name.size(), 15));
  const auto line = [&](const std::string& label, std::size_t size, const char* color,
                        const std::string& note) {
    return fmt::format("    {:<{}} {} {:>10}  {}\n", label, width,
                       paint(color, bar(static_cast<double>(size) / most, 36)), human_bytes(size), note);
  };
  const auto times = [&](std::size_t size) {
    return fmt::format("{:.1f} x", static_cast<double>(size) / static_cast<double>(bytes.planned));
  };
  return line(name, bytes.planned, kGreen, "this run") +
         (all_bf16(plan) ? "" : line("bf16", bytes.bf16, kDim, times(bytes.bf16))) +
         line("bf16, unbounded", bytes.unbounded, kDim,
              times(bytes.unbounded) + ", no window, every position kept");
}

std::string ring_picture(const RunFacts& facts, const Paint& paint) {
  const StatePlan& plan = *facts.plan;
  const int length = facts.generation.length;
  std::string text;
  for (int g = 0; g < plan.group_count(); g++) {
    const AttentionGroup& group = plan.group(g);
    if (group.window == kFullWindow || length == 0) continue;
    const int pages = (length - 1) / plan.page_tokens() + 1;
    text += fmt::format(
        "    {} layers slide over {} positions: {} pages went through a ring of {}, {} tokens each\n",
        group.layers.size(), group.window, pages, plan.group_bytes(g).pages_per_row, plan.page_tokens());
    const int held = facts.pools[static_cast<std::size_t>(g)].owned;
    text += fmt::format("    {}  {}\n", paint(kGreen, draw_ring(plan, g, length, held)),
                        paint(kDim, "█ in the window  ░ behind it  · free"));
  }
  return text;
}

}  // namespace

double per_second(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

double decoded_tokens(const Generation& g) {
  return static_cast<double>(g.decode_steps) + static_cast<double>(g.drafts.accepted);
}

Result<StateBytes> compare_bytes(const StatePlan& plan, int length) {
  StatePlan::Builder unbounded(plan.limits());
  unbounded.page_tokens(plan.page_tokens());
  for (int g = 0; g < plan.group_count(); g++) {
    AttentionGroup group = plan.group(g);
    group.window = kFullWindow;
    group.keys = group.values = Codec::bf16();
    unbounded.attention(std::move(group));
  }
  const Result<StatePlan> bf16 = plan.with_codec(Codec::bf16());
  if (!bf16.ok()) return bf16.status();
  const Result<StatePlan> all = unbounded.build();
  if (!all.ok()) return all.status();
  return StateBytes{plan.projected_bytes(length), bf16->projected_bytes(length),
                    all->projected_bytes(length)};
}

std::string draw_ring(const StatePlan& plan, int group, int length, int held) {
  const int page_tokens = plan.page_tokens(), slots = plan.group_bytes(group).pages_per_row;
  const int window = plan.group(group).window;
  // A page is at most 8 characters wide, and the ring at most about 64.
  const int cells = std::clamp(64 / std::max(slots, 1), 1, 8);
  const int per_cell = page_tokens / cells;
  const int last_page = length > 0 ? (length - 1) / page_tokens : -1;
  std::string text = "[";
  for (int slot = 0; slot < slots; slot++) {
    // The newest page that belongs in this slot.
    const int page = last_page - ((last_page - slot) % slots + slots) % slots;
    for (int c = 0; c < cells; c++) {
      const int newest = page * page_tokens + c * per_cell + per_cell - 1;  // the cell's last position
      const int oldest = page * page_tokens + c * per_cell;
      if (page < 0 || page <= last_page - held || oldest >= length) {
        text += "·";
      } else {
        text += newest > length - window ? "█" : "░";
      }
    }
    text += slot + 1 < slots ? "|" : "]";
  }
  return text;
}

std::string summarize(const RunFacts& facts) {
  const Paint paint(facts.colors);
  const Generation& g = facts.generation;
  const StatePlan& plan = *facts.plan;
  std::string text = fmt::format(
      "{} {} token{} in {:.2f} s ({} tokens/s), {} written in {:.2f} s ({} tokens/s), {} thread{}, end: "
      "{}\n",
      paint(kBold, "windrow:"), facts.prompt_tokens, facts.prompt_tokens == 1 ? "" : "s", g.prefill_s,
      paint(kBold, fmt::format("{:.0f}", per_second(facts.prompt_tokens, g.prefill_s))), g.ids.size(),
      g.decode_s, paint(kBold, fmt::format("{:.0f}", per_second(decoded_tokens(g), g.decode_s))),
      facts.threads, facts.threads == 1 ? "" : "s", finish_reason_name(g.finish_reason));
  const Result<StateBytes> bytes = compare_bytes(plan, g.length);
  if (!bytes.ok() || bytes->planned == 0) return text;
  if (!facts.picture) {
    const std::string in_bf16 = all_bf16(plan) ? "" : fmt::format(", {} as bf16", human_bytes(bytes->bf16));
    return text + fmt::format("{} state of {} position{}: {} as {}{}, {} as bf16 without windows\n",
                              paint(kBold, "windrow:"), g.length, g.length == 1 ? "" : "s",
                              human_bytes(bytes->planned), codecs_text(plan), in_bf16,
                              human_bytes(bytes->unbounded));
  }
  text += fmt::format("\n  {} {} position{}\n", paint(kBold, "state"), g.length, g.length == 1 ? "" : "s");
  text += bytes_picture(*bytes, plan, paint);
  const std::string ring = ring_picture(facts, paint);
  if (!ring.empty()) text += fmt::format("\n  {}\n{}", paint(kBold, "ring"), ring);
  return text;
}

}  // namespace windrow::cli
