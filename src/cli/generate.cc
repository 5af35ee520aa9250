// windrow generate: a prompt in, text out.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/draft_flags.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/summary.h"
#include "windrow/engine.h"

namespace windrow::cli {
namespace {

using Json = nlohmann::ordered_json;

struct GenerateFlags {
  RunFlags run;
  KvFlags kv;
  PromptFlags prompt;
  DraftFlags draft;
  std::string session;
  SamplerOptions sampling;
  int max_tokens = 256;
  bool ignore_eos = false;
  bool echo = false;
  bool json = false;
  bool summary = false;
};

// Turns ids into what stands on stdout: text, or ids joined by commas in a folder without tokenizer.
class Writer {
 public:
  Writer(const Tokenizer* tokenizer, bool silent, bool echo, std::span<const std::int32_t> prompt)
      : silent_(silent) {
    if (tokenizer == nullptr) return;
    // The decoder sees the prompt too: whether a leading space is dropped depends on what stands before.
    decoder_.emplace(*tokenizer);
    std::string before;
    for (const std::int32_t id : prompt) before += need(decoder_->push(id));
    if (echo) echo_ = std::move(before);
  }

  // The prompt, if it is to be shown. After prefill: its bar would wipe a line of it from a terminal.
  void begin() {
    keep_failure([&] { print(echo_); });
  }

  // False, with the failure kept, when it could not be written.
  bool push(std::int32_t id) {
    keep_failure([&] {
      put(decoder_ ? need(decoder_->push(id)) : fmt::format("{}{}", count_ > 0 ? "," : "", id));
      count_++;
    });
    return !failure_;
  }

  void finish() {
    if (failure_) throw *failure_;
    if (decoder_) put(decoder_->finish());
    if (!silent_) write_stdout("\n");
    flush_stdout();
  }

  void end_line() {
    if (!failure_ && printed_) print("\n");
  }

  const std::string& text() const { return text_; }
  bool has_text() const { return decoder_.has_value(); }

 private:
  // The engine's callbacks must not throw.
  template <class F>
  void keep_failure(const F& f) {
    try {
      if (!failure_) f();
    } catch (const Failure& failure) {
      failure_ = failure;
    }
  }
  void put(const std::string& piece) {
    text_ += piece;
    print(piece);
  }
  void print(const std::string& piece) {
    if (silent_ || piece.empty()) return;
    printed_ = true;
    write_stdout(piece);
    flush_stdout();
  }

  bool silent_;
  bool printed_ = false;
  std::size_t count_ = 0;
  std::optional<Tokenizer::Decoder> decoder_;
  std::optional<Failure> failure_;
  std::string text_, echo_;
};

Json state_json(const StatePlan& plan) {
  Json groups = Json::array();
  for (int i = 0; i < plan.group_count(); i++) {
    const AttentionGroup& g = plan.group(i);
    groups.push_back({{"layers", g.layers},
                      {"window", g.window == kFullWindow ? Json() : Json(g.window)},
                      {"codec_keys", g.keys.to_string()},
                      {"codec_values", g.values.to_string()},
                      {"bytes", plan.group_bytes(i).total}});
  }
  const StatePlan bf16 = need(plan.with_codec(Codec::bf16()));
  return {{"bytes", plan.bytes()}, {"bytes_bf16", bf16.bytes()}, {"groups", std::move(groups)}};
}

std::string result_json(const std::vector<std::int32_t>& prompt, const Generation& g, const Writer& writer,
                        const StatePlan& plan, bool drafts, double load_s) {
  const Json object{
      {"prompt_ids", prompt},
      {"ids", g.ids},
      {"reused_tokens", g.reused},
      {"text", writer.has_text() ? Json(writer.text()) : Json()},
      {"finish_reason", finish_reason_name(g.finish_reason)},
      {"timings",
       {{"load_s", load_s},
        {"prefill_s", g.prefill_s},
        {"decode_s", g.decode_s},
        {"prefill_tokens_per_s", per_second(static_cast<double>(prompt.size()) - g.reused, g.prefill_s)},
        {"decode_tokens_per_s", per_second(decoded_tokens(g), g.decode_s)}}},
      {"rows", plan.limits().rows},
      {"occupancy", 1.0},  // of its one row
      {"drafts", drafts ? drafts_json(g.drafts) : Json()},
      {"state", state_json(plan)}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int generate(const GenerateFlags& flags) {
  flags.draft.check();
  std::optional<SessionFile> session = open_session(flags.session);
  flags.prompt.check(!session);
  const ModelInfo info = need(read_model_info(flags.run.model));
  const KvChoice kv = flags.kv.choose(info);
  const std::optional<Tokenizer> tokenizer =
      flags.run.load_tokenizer(flags.prompt.given() && flags.prompt.needs_tokenizer());
  const auto start = std::chrono::steady_clock::now();
  ThreadPool pool = flags.run.make_pool();
  SessionIdentity identity;
  if (!flags.session.empty()) identity = session_identity(flags.run.model, flags.run.compute_name(), pool);
  // Another model's file is told as that before its ids are looked at.
  if (session) need(session->check_identity(identity, session->signature()));
  // What was said before, then what is new.
  std::vector<std::int32_t> prompt = session ? session_tokens(*session, info) : std::vector<std::int32_t>();
  const std::vector<std::int32_t> more =
      flags.prompt.read(info, tokenizer ? &*tokenizer : nullptr, prompt.empty());
  prompt.insert(prompt.end(), more.begin(), more.end());
  check_length(flags.session, prompt.size(), info);

  // The model's positions bound the text; the last token is not fed back.
  const int prompt_tokens = static_cast<int>(prompt.size());
  const int max_tokens = std::min(flags.max_tokens, info.max_positions - prompt_tokens + 1);
  const int positions = prompt_tokens + std::max(max_tokens, 1) - 1;
  const std::unique_ptr<DraftSource> draft = flags.draft.load(info, 1, positions, flags.run.compute, pool);
  const Model model = flags.run.load(pool);
  const Limits limits{
      .rows = 1,
      .tokens = positions,
      .step_tokens = std::max(std::min(flags.run.prefill_chunk, prompt_tokens), flags.draft.step_tokens()),
      .tree_nodes = flags.draft.tree_nodes(),
      .verify_tokens = flags.draft.verify_tokens()};
  Generator generator = need(Generator::create(model, kv, limits, pool));
  if (session) restore_session(*session, identity, generator, pool);
  const double load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  Writer writer(tokenizer ? &*tokenizer : nullptr, flags.json, flags.echo, prompt);
  ProgressBar bar("prompt", flags.run.progress());
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.prefill_chunk = flags.run.prefill_chunk;
  options.drafter = draft ? draft->drafter() : nullptr;
  options.draft_tokens = flags.draft.tokens;
  options.sampling = flags.sampling;
  options.reuse = session.has_value();
  if (!flags.ignore_eos) options.stop_ids = info.eos_ids;
  options.cancel = &interrupted();
  options.on_prefill = [&](int done, int total) {
    bar.update(done, total);
    if (done < total) return;
    bar.clear();
    writer.begin();
  };
  options.on_token = [&](std::int32_t id) { return writer.push(id); };
  catch_interrupt();
  Result<Generation> result = generator.generate(prompt, options);
  bar.clear();
  if (!result.ok()) {
    writer.end_line();  // the error stands on a line of its own
    need(result.status());
  }
  const Generation g = std::move(*result);
  if (!flags.session.empty()) save_session(flags.session, identity, generator, prompt, g);
  writer.finish();

  if (flags.json) {
    write_stdout(result_json(prompt, g, writer, generator.plan(), flags.draft.on(), load_s));
    flush_stdout();
  }
  if (!flags.run.quiet) {
    RunFacts facts{.plan = &generator.plan(),
                   .pools = {},
                   .prompt_tokens = prompt_tokens - g.reused,
                   .generation = g,
                   .threads = pool.threads(),
                   .colors = lively_stderr(),
                   .picture = flags.summary || lively_stderr()};
    for (int i = 0; i < generator.plan().group_count(); i++) facts.pools.push_back(generator.pool_use(i));
    write_stderr((flags.json ? "" : "\n") + summarize(facts));
    if (flags.draft.on()) write_stderr(drafts_text(g.drafts));
  }
  return g.finish_reason == FinishReason::kCancelled ? kInterrupted : kSuccess;
}

}  // namespace

void add_generate(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("generate", "write text after a prompt");
  auto flags = std::make_shared<GenerateFlags>();
  constexpr int kManyTokens = 1 << 30;
  flags->run.add_model(*sub);
  flags->prompt.add(*sub, true);
  path_flag(
      *sub, "--session", &flags->session, "FILE",
      "go on with the text of this file, if it exists, with the prompt (if there is one) behind it; and "
      "save the text and its state there at the end, also after Ctrl-C");
  int_flag(*sub, "--max-tokens", &flags->max_tokens, 0, kManyTokens,
           "most tokens to write; the model's longest context bounds it too");
  add_sampling(*sub, &flags->sampling);
  flags->draft.add(*sub);
  flags->kv.add(*sub);
  flags->run.add_chunk(*sub);
  flags->run.add_compute(*sub);
  flags->run.add_threads(*sub);
  bool_flag(*sub, "--ignore-eos", &flags->ignore_eos, "go on when the model ends its text");
  bool_flag(*sub, "--echo", &flags->echo, "print the prompt before the text");
  bool_flag(*sub, "--json", &flags->json, "print one JSON object instead of the text");
  bool_flag(*sub, "--summary", &flags->summary, "the whole summary, with its pictures, also off a terminal");
  flags->run.add_quiet(*sub);
  sub->callback([flags, &run] { run = [flags] { return generate(*flags); }; });
}

}  // namespace windrow::cli
