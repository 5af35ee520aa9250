// Speculation changes no token: with drafts of every kind, on every kind of layer and codec, in mixed
// batches, texts are those of plain decoding, and sampled ones keep the target's distribution.
#include "windrow/speculation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "engine/solo.h"
#include "engine/tiny_model.h"
#include "model/model_fixture.h"
#include "support/sanitized.h"
#include "windrow/scheduler.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

using Texts = std::map<std::uint64_t, std::vector<std::int32_t>>;

// Drafts from the known text with errors at random, chains and trees of random sizes.
class NoisyDrafter final : public Drafter {
 public:
  NoisyDrafter(const Texts& texts, int vocab, unsigned seed) : texts_(texts), vocab_(vocab), random_(seed) {}
  Status propose(std::span<const DraftRequest> requests, std::span<Draft> drafts) override {
    for (std::size_t r = 0; r < requests.size(); r++) {
      Draft& d = drafts[r] = {};
      const int size = below(requests[r].most + 1);
      const bool tree = below(2) == 0;
      for (int i = 0; i < size; i++) {
        const int parent = tree ? below(i + 1) - 1 : i - 1;
        std::size_t depth = 0;
        for (int p = parent; p >= 0; p = tree ? d.parents[static_cast<std::size_t>(p)] : p - 1) depth++;
        const std::vector<std::int32_t>& text = texts_.at(requests[r].id);
        const std::size_t place = requests[r].tokens.size() + depth;
        const bool right = place < text.size() && below(4) != 0;
        d.tokens.push_back(right ? text[place] : below(vocab_));
        if (tree) d.parents.push_back(parent);
      }
    }
    return {};
  }
  void forget(std::uint64_t) override {}

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  const Texts& texts_;
  int vocab_;
  std::mt19937 random_;
};

// Runs requests, some of them cancelled halfway, rows joining one by one; the texts of the others.
std::map<RequestId, std::vector<std::int32_t>> run_batch(StepModel& model, StateStore& store,
                                                         SchedulerOptions options,
                                                         const std::vector<Request>& requests, Texts& texts,
                                                         const std::vector<std::vector<std::int32_t>>& alone,
                                                         unsigned seed, SchedulerStats& stats) {
  std::mt19937 random(seed);
  Scheduler scheduler = *Scheduler::create(model, store, std::move(options));
  std::map<RequestId, std::vector<std::int32_t>> out;
  std::vector<Event> events;
  std::size_t next = 0;
  while (next < requests.size() || !scheduler.idle()) {
    if (next < requests.size() && (scheduler.idle() || random() % 3 == 0)) {
      const RequestId id = *scheduler.submit(requests[next]);
      texts[id] = requests[next].prompt;
      texts[id].insert(texts[id].end(), alone[next].begin(), alone[next].end());
      out[id];
      next++;
    }
    events.clear();
    must(scheduler.step(events));
    for (const Event& e : events) {
      if (e.kind == Event::Kind::kToken) out[e.request].push_back(e.token);
    }
  }
  stats = scheduler.stats();
  return out;
}

struct Case {
  std::string folder;
  int window;
  int tokens;  // new ones of a request
};

// Draft lengths 0 to 8 and trees of up to 16 nodes, at random for every row and step.
void expect_plain_output(const Case& c, const Codec& codec, int rows, unsigned seed, std::int64_t& patterns) {
  SCOPED_TRACE(fmt::format("{} {} x{}", c.folder, codec.to_string(), rows));
  const int prompt = 12, length = prompt + c.tokens;
  const Limits limits{
      .rows = rows, .tokens = length, .step_tokens = 32 + 20 * rows, .tree_nodes = 20, .verify_tokens = 20};
  ThreadPool pool = must(ThreadPool::create(1));
  const Model model = must(Model::load(c.folder, pool));
  const StatePlan plan = must(model.plan(KvChoice(codec), limits));
  Runner runner = must(Runner::create(model, plan, pool));
  RunnerModel step_model(runner, model.info());
  const int vocab = model.info().vocab_size;
  std::mt19937 random(seed);
  std::vector<Request> requests;
  std::vector<std::vector<std::int32_t>> alone;
  for (int i = 0; i < rows; i++) {
    Request r;
    for (int t = 0; t < prompt - i % 3; t++)
      r.prompt.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab)));
    r.max_tokens = c.tokens;
    r.draft_tokens = i % 4 == 3 ? 0 : i % 2 == 0 ? 8 : 16;  // plain rows stand among them
    if (i % 5 == 2) r.sampling = {.temperature = 0.7f, .top_k = 20, .seed = seed + static_cast<unsigned>(i)};
    alone.push_back(run_alone(step_model, plan, r));
    requests.push_back(std::move(r));
  }
  Texts texts;
  NoisyDrafter drafter(texts, vocab, seed);
  StateStore store = must(StateStore::create(plan, {.poison = true}));
  SchedulerStats stats;
  const auto out =
      run_batch(step_model, store, {.prefill_chunk = 5, .clock = [] { return 0.0; }, .drafter = &drafter},
                requests, texts, alone, seed, stats);
  for (std::size_t i = 0; i < requests.size(); i++) EXPECT_EQ(out.at(i + 1), alone[i]) << "row " << i;
  patterns += stats.drafts.rounds;
}

TEST(Speculation, OutputOnEveryKindOfLayerAndCodecIsThatOfPlainDecoding) {
  const auto hf = [](const char* name) { return std::string(WINDROW_TEST_DATA "/hf/") + name; };
  const Case cases[] = {{hf("gemma3"), 8, 44},
                        {hf("gemma4"), 8, 44},
                        {hf("gpt_oss"), 8, 44},
                        {hf("qwen3_next"), 8, 44},
                        {hf("mistral"), 8, 44}};
  std::int64_t patterns = 0;
  unsigned seed = 1;
  for (const Case& c : cases) {
    for (const Codec& codec : {Codec::f32(), Codec::bf16(), Codec::affine(8, 32), Codec::affine(4, 32)}) {
      for (int rows : {1, 2, 3, 5, 7, 8, 4, 8, 6, 8}) {
        if (kSanitized && (seed++ % 5) != 0) continue;
        expect_plain_output(c, codec, rows, seed++, patterns);
      }
    }
  }
  EXPECT_GE(patterns, kSanitized ? 100 : 10000);
}

TEST(Speculation, TheStorytellersOutputIsThatOfPlainDecodingOverFiveWindows) {
  std::int64_t patterns = 0;
  for (const Codec& codec : {Codec::bf16(), Codec::affine(4)}) {
    expect_plain_output({kStoryteller, 64, kSanitized ? 40 : 325}, codec, 3, 7, patterns);
  }
}

// Real drafters on the storyteller, in a batch, with and without branches.
TEST(Speculation, DraftModelsAndRepetitionsGiveTheSameTextInFewerSteps) {
  ThreadPool pool = must(ThreadPool::create(1));
  const Model model = must(Model::load(kStoryteller, pool));
  const Model small = must(Model::load(WINDROW_MODELS "/storyteller-draft", pool));
  const int tokens = kSanitized ? 30 : 150;
  const Limits limits{.rows = 3, .tokens = 40 + tokens, .step_tokens = 128, .tree_nodes = 20};
  const Limits follow{.rows = 12, .tokens = 60 + tokens, .step_tokens = 128, .rollback = 24};
  const StatePlan plan = must(model.plan(KvChoice(Codec::affine(8)), limits));
  const StatePlan small_plan = must(small.plan(KvChoice(), follow));
  Runner runner = must(Runner::create(model, plan, pool)),
         small_runner = must(Runner::create(small, small_plan, pool));
  RunnerModel target(runner, model.info()), draft(small_runner, small.info());
  const Golden golden(kStoryteller);
  std::vector<Request> requests;
  std::vector<std::vector<std::int32_t>> alone;
  for (int p = 0; p < 3; p++) {
    Request r{.prompt = golden.ids(fmt::format("p{}_prompt", p)), .max_tokens = tokens};
    alone.push_back(run_alone(target, plan, r));
    requests.push_back(std::move(r));
  }
  const auto expect = [&](Drafter& drafter, double least) {
    StateStore store = must(StateStore::create(plan));
    Texts texts;
    SchedulerStats stats;
    const auto out =
        run_batch(target, store, {.clock = [] { return 0.0; }, .draft_tokens = 6, .drafter = &drafter},
                  requests, texts, alone, 3, stats);
    for (std::size_t i = 0; i < requests.size(); i++) EXPECT_EQ(out.at(i + 1), alone[i]) << "row " << i;
    // Tokens of a verified step of a row.
    EXPECT_GT(1 + static_cast<double>(stats.drafts.accepted) / static_cast<double>(stats.drafts.rounds),
              least);
  };
  for (int branches : {1, 3}) {
    StateStore follows = must(StateStore::create(small_plan));
    const std::unique_ptr<Drafter> drafter = must(make_model_drafter(draft, follows, branches));
    expect(*drafter, 1.5);
    EXPECT_EQ(follows.live_rows(), 0);  // forgotten with their texts
  }
  const std::unique_ptr<Drafter> ngram = must(make_ngram_drafter());
  expect(*ngram, 1.2);  // greedy stories repeat themselves
}

TEST(Speculation, RepetitionsAreFoundAndContinued) {
  const std::unique_ptr<Drafter> drafter = must(make_ngram_drafter({.shortest = 2, .longest = 3}));
  const auto draft = [&](std::vector<std::int32_t> text, int most, std::uint64_t id) {
    std::vector<Draft> drafts(1);
    const DraftRequest request{id, text, most};
    must(drafter->propose({&request, 1}, drafts));
    return drafts[0].tokens;
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(draft({1, 2, 3, 4, 1, 2}, 3, 1), (Ids{3, 4, 1}));
  EXPECT_EQ(draft({1, 2, 3, 4, 1, 2, 3}, 2, 1), (Ids{4, 1}));           // the same text, grown
  EXPECT_EQ(draft({7, 1, 2, 9, 8, 1, 2, 5, 1, 2}, 2, 2), (Ids{5, 1}));  // the latest place
  EXPECT_EQ(draft({3, 1, 2, 9, 8, 1, 2, 5, 3, 1, 2}, 1, 3), (Ids{9}));  // the longest match
  EXPECT_EQ(draft({5, 5, 5}, 6, 4), (Ids{5, 5, 5, 5, 5, 5}));           // goes on beyond the text
  EXPECT_EQ(draft({1, 2, 1, 2}, 5, 5), (Ids{1, 2, 1, 2, 1}));
  EXPECT_TRUE(draft({1, 2, 3}, 5, 6).empty());
  EXPECT_TRUE(draft({1}, 5, 7).empty());
  EXPECT_FALSE(make_ngram_drafter({.shortest = 3, .longest = 2}).ok());
}

TEST(Speculation, DraftModelsWithRecurrentLayersAreRefused) {
  const StatePlan plan = tiny_plan({.rows = 1, .tokens = 32}, true);
  StateStore store = *StateStore::create(plan);
  TinyModel model(plan, true);
  EXPECT_EQ(make_model_drafter(model, store).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(make_model_drafter(model, store, 0).status().code(), StatusCode::kInvalidArgument);
}

// Pairs of sampled tokens behind one prompt, with drafts that are right as often as chance has it, against
// the product of the model's own probabilities.
TEST(Speculation, SampledTokensKeepTheTargetsDistribution) {
  const StatePlan plan = tiny_plan({.rows = 8, .tokens = 16, .step_tokens = 64}, false);
  TinyModel model(plan, false);
  const std::vector<std::int32_t> prompt = {3, 17, 5};
  const SamplerOptions sampling{.temperature = 1.3f, .top_k = 6};

  // The target's distribution, in f64 from its logits: temperature, then the six best.
  const auto distribution = [&](std::vector<std::int32_t> text) {
    StateStore store = *StateStore::create(plan);
    Row row = *store.new_row();
    Row* rows[] = {&row};
    const int lengths[] = {static_cast<int>(text.size())};
    Step step = *store.begin(rows, lengths);
    std::vector<float> logits(kTinyVocab);
    const std::int32_t wanted[] = {lengths[0] - 1};
    must(model.forward(step, text, wanted, logits));
    std::vector<std::pair<double, int>> order;
    for (int i = 0; i < kTinyVocab; i++)
      order.push_back({-static_cast<double>(logits[static_cast<std::size_t>(i)]), i});
    std::sort(order.begin(), order.end());
    std::vector<double> p(kTinyVocab, 0.0);
    double sum = 0;
    for (int i = 0; i < 6; i++)
      sum += std::exp((order[0].first - order[static_cast<std::size_t>(i)].first) / 1.3);
    for (int i = 0; i < 6; i++) {
      p[static_cast<std::size_t>(order[static_cast<std::size_t>(i)].second)] =
          std::exp((order[0].first - order[static_cast<std::size_t>(i)].first) / 1.3) / sum;
    }
    return p;
  };
  const std::vector<double> first = distribution(prompt);
  // Drafts the most probable continuation.
  class BestDrafter final : public Drafter {
   public:
    std::vector<std::int32_t> best;
    Status propose(std::span<const DraftRequest> requests, std::span<Draft> drafts) override {
      for (std::size_t r = 0; r < requests.size(); r++) {
        drafts[r] = {};
        if (requests[r].tokens.size() == 4)
          drafts[r].tokens = {best[static_cast<std::size_t>(requests[r].tokens[3])]};
      }
      return {};
    }
    void forget(std::uint64_t) override {}
  } drafter;
  std::vector<std::vector<double>> second;
  for (int id = 0; id < kTinyVocab; id++) {
    std::vector<std::int32_t> text = prompt;
    text.push_back(id);
    second.push_back(distribution(text));
    drafter.best.push_back(static_cast<std::int32_t>(
        std::max_element(second.back().begin(), second.back().end()) - second.back().begin()));
  }

  StateStore store = *StateStore::create(plan);
  Scheduler scheduler =
      *Scheduler::create(model, store, {.clock = [] { return 0.0; }, .draft_tokens = 1, .drafter = &drafter});
  const int samples = kSanitized ? 5000 : 200000;
  std::map<RequestId, std::vector<std::int32_t>> texts;
  std::vector<std::vector<std::int64_t>> counts(kTinyVocab, std::vector<std::int64_t>(kTinyVocab, 0));
  std::vector<Event> events;
  for (int sent = 0; sent < samples || !scheduler.idle();) {
    for (; sent < samples && scheduler.running() + scheduler.waiting() < 8; sent++) {
      Request r{.prompt = prompt, .max_tokens = 3, .sampling = sampling};
      r.sampling.seed = static_cast<std::uint64_t>(sent) * 0x9e3779b97f4a7c15u;
      ASSERT_TRUE(scheduler.submit(std::move(r)).ok());
    }
    events.clear();
    must(scheduler.step(events));
    for (const Event& e : events) {
      if (e.kind == Event::Kind::kToken) texts[e.request].push_back(e.token);
      if (e.kind != Event::Kind::kFinished) continue;
      const std::vector<std::int32_t>& t = texts.at(e.request);
      counts[static_cast<std::size_t>(t[0])][static_cast<std::size_t>(t[1])]++;
      texts.erase(e.request);
    }
  }
  double chi = 0;
  int cells = 0;
  for (std::size_t a = 0; a < kTinyVocab; a++) {
    for (std::size_t b = 0; b < kTinyVocab; b++) {
      const double expected = first[a] * second[a][b] * samples;
      if (expected == 0) {
        EXPECT_EQ(counts[a][b], 0) << a << " " << b;
        continue;
      }
      chi += std::pow(static_cast<double>(counts[a][b]) - expected, 2) / expected;
      cells++;
    }
  }
  EXPECT_GT(cells, 30);
  // Mean cells - 1, deviation sqrt(2 (cells - 1)): five deviations are passed once in some million runs.
  EXPECT_LT(chi, cells - 1 + 5 * std::sqrt(2.0 * (cells - 1)));
  EXPECT_GT(scheduler.stats().drafts.accepted, samples / 10);
  EXPECT_GT(scheduler.stats().drafts.drafted - scheduler.stats().drafts.accepted, samples / 10);
}

}  // namespace
}  // namespace windrow
