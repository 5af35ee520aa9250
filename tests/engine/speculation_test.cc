// Where drafts come from, and sampling with them: the target's distribution is kept. (Texts of every family
// and codec: speculation_matrix_test.cc.)
#include "windrow/speculation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "engine/tiny_model.h"
#include "model/model_fixture.h"
#include "support/sanitized.h"
#include "windrow/scheduler.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

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
