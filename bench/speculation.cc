// What speculation brings, and what joining a batch costs: both sides in one run.
//
//   bench_speculation [rounds]
//
// Storyteller, bf16 state, one thread, in its processor time ("counted": if every step had cost the least
// that a step of its tokens was seen to cost, which other load does not blur): plain and drafted decoding
// take turns, the ratio is the median of the turns'. "bound" is what a fixed draft length could give at best:
// with a the share of single drafted tokens that are accepted, c(m) the time of a step of m tokens and d that
// of a draft model's step, the largest (1 + a + ... + a^k) / ((c(k + 1) + k d) / c(1)) over k. Then 64 rows
// of a model that costs nothing, with and without one request that leaves and one that joins in every step,
// and how many pages of the others moved.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/probe.h"
#include "take.h"
#include "windrow/engine.h"
#include "windrow/scheduler.h"
#include "windrow/tokenizer.h"

namespace windrow {
namespace {

constexpr int kNewTokens = 400, kDraftTokens = 8, kContext = 1024;

Limits limits_of(int tokens, int rollback) {
  return {.rows = 1, .tokens = tokens, .step_tokens = 512, .rollback = rollback, .tree_nodes = 16};
}

// A model with a store and a runner.
struct Engine {
  Model model;
  StatePlan plan;
  StateStore store;
  Runner runner;
  RunnerModel step_model;

  Engine(const std::string& folder, int rollback, ThreadPool& pool)
      : model(take(Model::load(folder, pool))),
        plan(take(model.plan(KvChoice(Codec::bf16()), limits_of(kContext + kDraftTokens + 1, rollback)))),
        store(take(StateStore::create(plan))),
        runner(take(Runner::create(model, plan, pool))),
        step_model(runner, model.info()) {}

  // Least seconds of a step of `tokens` tokens with all their logits, behind 300 positions.
  double step_seconds(int tokens, int repeats) {
    Row row = take(store.new_row());
    Row* const rows[] = {&row};
    const std::size_t vocab = static_cast<std::size_t>(model.info().vocab_size);
    std::vector<float> logits(vocab * static_cast<std::size_t>(std::max(tokens, 1)));
    const auto run = [&](int n, bool keep) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(n), 300), wanted;
      for (int i = 0; i < n && !keep; i++) wanted.push_back(i);
      Step step = take(store.begin(rows, std::vector<int>{n}));
      check(runner.forward(step, ids, wanted, {logits.data(), wanted.size() * vocab}));
      if (keep) check(step.resolve());
    };
    run(300, true);
    std::vector<double> times;
    for (int i = 0; i < repeats; i++) {
      const double start = thread_seconds();
      run(tokens, false);
      times.push_back(thread_seconds() - start);
    }
    return *std::min_element(times.begin(), times.end());
  }
};

struct Text {
  std::string name;
  std::vector<std::int32_t> prompt;
  SamplerOptions sampling;
};

// A drafter whose calls are counted and timed.
class Timed final : public Drafter {
 public:
  explicit Timed(Drafter& drafter) : drafter_(drafter) {}
  std::int64_t calls = 0;
  double seconds = 0;
  Status propose(std::span<const DraftRequest> requests, std::span<Draft> drafts) override {
    const double start = thread_seconds();
    const Status status = drafter_.propose(requests, drafts);
    seconds += thread_seconds() - start;
    calls++;
    return status;
  }
  void forget(std::uint64_t id) override { drafter_.forget(id); }

 private:
  Drafter& drafter_;
};

// The share of single tokens, drafted at every place of a text, that are right.
double acceptance(Drafter& drafter, const Text& text, const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> all = text.prompt;
  int drafted = 0, right = 0;
  for (const std::int32_t id : ids) {
    const DraftRequest request{.id = 1, .tokens = all, .most = 1};
    Draft draft;
    check(drafter.propose({&request, 1}, {&draft, 1}));
    if (!draft.tokens.empty()) {
      drafted++;
      right += draft.tokens[0] == id ? 1 : 0;
    }
    all.push_back(id);
  }
  drafter.forget(1);
  return drafted > 0 ? static_cast<double>(right) / drafted : 0;
}

// Plain and drafted by turns; the text.
std::vector<std::int32_t> compare(Generator& generator, const Text& text, Drafter& drafter, const char* what,
                                  int rounds, double counted, double goal) {
  GenerateOptions options;
  options.max_tokens = kNewTokens;
  options.sampling = text.sampling;
  options.draft_tokens = kDraftTokens;
  std::vector<double> plain_rate, drafted_rate, ratio, drafting;
  Generation plain, drafted;
  std::int64_t calls = 0;
  for (int round = -1; round < rounds; round++) {  // the first warms up
    options.drafter = nullptr;
    const double start = thread_seconds();
    plain = take(generator.generate(text.prompt, options));
    const double middle = thread_seconds();
    Timed timed(drafter);
    options.drafter = &timed;
    drafted = take(generator.generate(text.prompt, options));
    const double plain_s = middle - start, drafted_s = thread_seconds() - middle;
    if (plain.ids != drafted.ids) {
      fmt::print("{}: THE TEXTS DIFFER\n", text.name);
      std::exit(1);
    }
    if (round < 0) continue;
    const double tokens = static_cast<double>(plain.ids.size());
    plain_rate.push_back(tokens / plain_s);
    drafted_rate.push_back(tokens / drafted_s);
    ratio.push_back(plain_s / drafted_s);
    drafting.push_back(timed.seconds / drafted_s);
    calls = timed.calls;
  }
  const DraftStats& d = drafted.drafts;
  const double gain = bench::median(ratio);
  fmt::print(
      "{:<15} {:<12} {:>5.0f} {:>5.0f} tokens/s {:>5.2f} x ({:.2f} x counted); {:>3} steps, {:>3} asked for "
      "drafts ({:>4.1f} % of the time), {:>3} verified {:>4.1f} tokens, {:>5.1f} % accepted{}\n",
      text.name, what, bench::median(plain_rate), bench::median(drafted_rate), gain, counted,
      drafted.decode_steps, calls, 100 * bench::median(drafting), d.rounds,
      d.rounds > 0 ? static_cast<double>(d.drafted) / static_cast<double>(d.rounds) : 0.0,
      100 * d.acceptance(), std::max(gain, counted) >= goal ? "" : fmt::format("  BELOW {}", goal));
  return plain.ids;
}

// A model whose steps move a clock by what such steps cost: how well lengths are chosen, without the noise of
// a machine with other load.
class Metered final : public StepModel {
 public:
  Metered(StepModel& model, std::vector<double> cost, double& clock)
      : model_(model), cost_(std::move(cost)), clock_(clock) {}
  int vocab_size() const override { return model_.vocab_size(); }
  Status forward(Step& step, std::span<const std::int32_t> ids, std::span<const std::int32_t> wanted,
                 std::span<float> logits) override {
    const std::size_t n = ids.size(), last = cost_.size() - 1;
    const double slope = (cost_[last] - cost_[1]) / static_cast<double>(last - 1);
    clock_ += n <= last ? cost_[n] : cost_[last] + slope * static_cast<double>(n - last);
    return model_.forward(step, ids, wanted, logits);
  }

 private:
  StepModel& model_;
  std::vector<double> cost_;
  double& clock_;
};

// The gain if every step cost what its number of tokens costs at best.
double counted_gain(Engine& target, Engine& small, const Text& text, bool model_drafts,
                    const std::vector<double>& cost, const std::vector<double>& draft_cost) {
  double clock = 0, seconds[2] = {};
  Metered metered(target.step_model, cost, clock), drafting(small.step_model, draft_cost, clock);
  for (const bool drafted : {false, true}) {
    std::unique_ptr<Drafter> drafter;
    if (drafted)
      drafter = model_drafts ? take(make_model_drafter(drafting, small.store)) : take(make_ngram_drafter());
    SchedulerOptions options{.draft_tokens = kDraftTokens, .drafter = drafter.get()};
    options.clock = [&] { return clock; };
    Scheduler scheduler = take(Scheduler::create(metered, target.store, options));
    take(scheduler.submit({.prompt = text.prompt, .max_tokens = kNewTokens, .sampling = text.sampling}));
    const double start = clock;
    std::vector<Event> events;
    while (!scheduler.idle()) check(scheduler.step(events));
    seconds[drafted ? 1 : 0] = clock - start;
  }
  return seconds[0] / seconds[1];
}

// The best fixed length at an acceptance and the measured costs.
void print_bound(const char* what, double acceptance, const std::vector<double>& cost, double draft_s) {
  double best = 1;
  int length = 0;
  double tokens = 1, chance = 1;
  for (int k = 1; k <= kDraftTokens; k++) {
    chance *= acceptance;
    tokens += chance;
    const double gain = tokens * cost[1] / (cost[static_cast<std::size_t>(k) + 1] + k * draft_s);
    if (gain > best) best = gain, length = k;
  }
  fmt::print("{:<15} {:<12} bound {:.2f} x at {} drafted tokens, with {:.0f} % of single ones accepted\n", "",
             what, best, length, 100 * acceptance);
}

void bench_drafts(int rounds, ThreadPool& pool) {
  const std::string folder = WINDROW_MODELS "/storyteller";
  Engine target(folder, 0, pool), small(WINDROW_MODELS "/storyteller-draft", kDraftTokens + 1, pool);
  const Tokenizer tokenizer = take(Tokenizer::load(folder + "/tokenizer.json"));
  Generator generator =
      take(Generator::create(target.model, KvChoice(Codec::bf16()), limits_of(kContext, 0), pool));
  const std::unique_ptr<Drafter> model = take(make_model_drafter(small.step_model, small.store));
  const std::unique_ptr<Drafter> ngram = take(make_ngram_drafter());

  std::vector<double> cost(kDraftTokens + 2, 0);
  for (int m = 1; m <= kDraftTokens + 1; m++) cost[static_cast<std::size_t>(m)] = target.step_seconds(m, 200);
  std::vector<double> draft_cost(kDraftTokens + 2, 0);
  for (int m = 1; m <= kDraftTokens + 1; m++)
    draft_cost[static_cast<std::size_t>(m)] = small.step_seconds(m, 200);
  const double draft_s = draft_cost[1];
  fmt::print("a step of 1 token takes {:.0f} us; of m tokens, in those:", cost[1] * 1e6);
  for (int m = 2; m <= kDraftTokens + 1; m++)
    fmt::print(" {:.2f}", cost[static_cast<std::size_t>(m)] / cost[1]);
  fmt::print("; of the draft model {:.2f}\n", draft_s / cost[1]);

  const auto counted = [&](const Text& t, bool model_drafts) {
    return counted_gain(target, small, t, model_drafts, cost, draft_cost);
  };
  const auto encode = [&](const std::string& text) { return take(tokenizer.encode(text)); };
  const std::string sentence = "The lantern stood by the door, and the wizard looked at it. ";
  const std::vector<Text> stories = {{"story 1", encode("The lantern"), {}},
                                     {"story 2", encode("Alice said to the Wizard:"), {}},
                                     {"story 3", encode("Once upon a time there was"), {}}};
  for (const Text& t : stories) {
    const std::vector<std::int32_t> ids =
        compare(generator, t, *model, "draft model", rounds, counted(t, true), 1.3);
    print_bound("draft model", acceptance(*model, t, ids), cost, draft_s);
    compare(generator, t, *ngram, "ngram", rounds, counted(t, false), 0.95);
    print_bound("ngram", acceptance(*ngram, t, ids), cost, 0);
  }
  const Text copy{"copying", encode(sentence + sentence + sentence + sentence), {}};
  const std::vector<std::int32_t> ids =
      compare(generator, copy, *ngram, "ngram", rounds, counted(copy, false), 2);
  print_bound("ngram", acceptance(*ngram, copy, ids), cost, 0);
  for (const float temperature : {1.0f, 2.0f}) {
    const Text noise{fmt::format("temperature {}", temperature),
                     encode("The lantern"),
                     {.temperature = temperature, .seed = 5}};
    compare(generator, noise, *model, "draft model", rounds, counted(noise, true), 0.95);
    compare(generator, noise, *ngram, "ngram", rounds, counted(noise, false), 0.95);
  }
}

// Costs next to nothing: it stores constants, and looks where the pages of its rows lie.
class IdleModel final : public StepModel {
 public:
  double seconds = 0;      // inside forward
  std::int64_t moved = 0;  // pages of a row that lie elsewhere than in the step before
  std::int64_t seen = 0;

  int vocab_size() const override { return 16; }
  Status forward(Step& step, std::span<const std::int32_t>, std::span<const std::int32_t>,
                 std::span<float> logits) override {
    const double start = thread_seconds();
    x_.assign(static_cast<std::size_t>(step.tokens()) * 32, 0.5f);
    for (int layer = 0; layer < 4; layer++) check(step.append(layer, x_, x_));
    look(take(step.read(3)));
    std::fill(logits.begin(), logits.end(), 0.0f);
    seconds += thread_seconds() - start;
    return {};
  }

 private:
  // A row of the full layer is known by its first page.
  void look(const KvRead& read) {
    std::map<std::int32_t, std::vector<std::int32_t>> now;
    for (const KvRead::Row& row : read.rows) {
      std::vector<std::int32_t> pages;
      for (int n = 0; n * read.page_tokens < row.length; n++) pages.push_back(read.page_of(row, n));
      if (pages.empty()) continue;
      if (const auto before = pages_.find(pages.front()); before != pages_.end()) {
        for (std::size_t i = 0; i < std::min(pages.size(), before->second.size()); i++) {
          moved += pages[i] != before->second[i] ? 1 : 0;
          seen++;
        }
      }
      now.emplace(pages.front(), std::move(pages));
    }
    pages_ = std::move(now);
  }
  std::vector<float> x_;
  std::map<std::int32_t, std::vector<std::int32_t>> pages_;
};

void bench_joins(int rounds) {
  constexpr int kRows = 64, kTokens = 4096;
  const Codec codec = Codec::affine(4, 32);
  const auto group = [&](int layer, int window) {
    return AttentionGroup{
        .layers = {layer}, .window = window, .head_dim = 32, .keys = codec, .values = codec};
  };
  const StatePlan plan = take(StatePlan::Builder({.rows = kRows, .tokens = kTokens, .step_tokens = 1024})
                                  .attention(group(0, 512))
                                  .attention(group(1, 512))
                                  .attention(group(2, 1024))
                                  .attention(group(3, kFullWindow))
                                  .build());
  StateStore store = take(StateStore::create(plan));
  IdleModel model;
  Scheduler scheduler = take(Scheduler::create(model, store, {}));
  const Request request{.prompt = std::vector<std::int32_t>(500, 1), .max_tokens = kTokens - 500};
  std::vector<RequestId> ids;
  for (int i = 0; i < kRows; i++) ids.push_back(take(scheduler.submit(request)));
  std::vector<Event> events;
  for (int i = 0; i < 100; i++) check(scheduler.step(events));
  // The scheduler's own time of a step: all but the model.
  const auto step_seconds = [&] {
    const double before = model.seconds, start = thread_seconds();
    events.clear();
    check(scheduler.step(events));
    return thread_seconds() - start - (model.seconds - before);
  };
  std::vector<double> plain, changed;
  std::size_t oldest = 0;
  const Request newcomer{.prompt = {1}, .max_tokens = 2000};
  for (int round = 0; round < rounds * 20; round++) {
    plain.push_back(step_seconds());
    const double start = thread_seconds();
    if (!scheduler.cancel(ids[oldest])) fail({StatusCode::kInternal, "a request is gone"});
    ids[oldest] = take(scheduler.submit(newcomer));
    oldest = (oldest + 1) % ids.size();
    const double calls = thread_seconds() - start;
    changed.push_back(calls + step_seconds());
  }
  const double quiet = bench::median(plain), busy = bench::median(changed);
  fmt::print(
      "64 rows, own time of a step: {:.1f} us; where a request leaves and one joins: {:.1f} us, {:.1f} us "
      "more{}; {} of {} pages moved\n",
      quiet * 1e6, busy * 1e6, (busy - quiet) * 1e6, busy - quiet <= 50e-6 ? "" : "  ABOVE 50", model.moved,
      model.seen);
}

}  // namespace
}  // namespace windrow

int main(int argc, char** argv) {
  using namespace windrow;  // NOLINT
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  ThreadPool pool = take(ThreadPool::create(1));
  fmt::print("medians of {}\n", rounds);
  bench_drafts(rounds, pool);
  bench_joins(rounds);
  return 0;
}
