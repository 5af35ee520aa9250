// The scheduler in a simulated world: a virtual clock, scripted arrivals, cancellations, faults and drafts,
// all from one seed. After every step nothing is lost, pools are conserved and admission keeps to the plan;
// every text that ended by itself is that of its solo run. A failing seed is printed; simulate(seed) replays
// it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/solo.h"
#include "engine/tiny_model.h"
#include "support/sanitized.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

// Drafts of every shape: right ones, wrong ones, trees, too long ones, none.
class ScriptedDrafter final : public Drafter {
 public:
  ScriptedDrafter(std::mt19937& random, const std::map<std::uint64_t, std::vector<std::int32_t>>& texts)
      : random_(random), texts_(texts) {}
  Status propose(std::span<const DraftRequest> requests, std::span<Draft> drafts) override {
    if (random_() % 16 == 0) return {StatusCode::kInternal, "no drafts today"};
    for (std::size_t r = 0; r < requests.size(); r++) {
      drafts[r] = {};
      const std::vector<std::int32_t>& text = texts_.at(requests[r].id);
      const int size = static_cast<int>(random_() % (static_cast<unsigned>(requests[r].most) + 1));
      const bool tree = random_() % 2 == 0;
      for (int i = 0; i < size; i++) {
        const int parent = tree ? static_cast<int>(random_() % static_cast<unsigned>(i + 1)) - 1 : i - 1;
        int depth = 1;
        for (int p = parent; p >= 0; p = tree ? drafts[r].parents[static_cast<std::size_t>(p)] : p - 1)
          depth++;
        const std::size_t place = requests[r].tokens.size() + static_cast<std::size_t>(depth) - 1;
        const bool right = place < text.size() && random_() % 4 != 0;
        drafts[r].tokens.push_back(right ? text[place] : static_cast<std::int32_t>(random_() % kTinyVocab));
        if (tree) drafts[r].parents.push_back(parent);
      }
    }
    return {};
  }
  void forget(std::uint64_t) override {}

 private:
  std::mt19937& random_;
  const std::map<std::uint64_t, std::vector<std::int32_t>>& texts_;
};

struct Script {
  Request request;
  std::vector<std::int32_t> alone;
  std::vector<std::int32_t> tokens;
  std::optional<FinishReason> reason;
};

struct Counts {
  std::int64_t accepted = 0, rejected = 0, set_aside = 0, failed = 0, finished = 0;
};

void simulate(unsigned seed, Counts& counts) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const bool recurrent = below(2) == 0;
  const Codec codec = below(3) == 0 ? Codec::affine(4, 32) : below(2) == 0 ? Codec::bf16() : Codec::f32();
  Limits limits{.rows = 1 + below(5),
                .tokens = 48,
                .step_tokens = 8 + below(24),
                .tree_nodes = 12,
                .verify_tokens = 12};
  if (below(2) == 0) limits.total_tokens = 48 + below(100);
  const StatePlan plan = tiny_plan(limits, recurrent, codec);
  StateStore store = *StateStore::create(plan, {.poison = true});
  TinyModel model(plan, recurrent), reference(plan, recurrent);

  double time = 0;
  std::map<std::uint64_t, std::vector<std::int32_t>> texts;
  ScriptedDrafter drafter(random, texts);
  SchedulerOptions options{
      .step_tokens = 1 + below(limits.step_tokens), .prefill_chunk = 1 + below(12), .aging_s = 3};
  options.clock = [&] { return time; };
  options.draft_tokens = below(9);
  if (below(4) != 0) options.drafter = &drafter;
  Scheduler scheduler = *Scheduler::create(model, store, options);

  std::map<RequestId, Script> scripts;
  std::vector<Event> events;
  int to_come = 2 + below(8);
  for (int steps = 0; to_come > 0 || !scheduler.idle(); steps++) {
    ASSERT_LT(steps, 4000) << "some request never ends";
    while (to_come > 0 && below(3) == 0) {
      to_come--;
      Request r;
      for (int i = below(20) + 1; i > 0; i--) r.prompt.push_back(below(kTinyVocab));
      r.max_tokens = 1 + below(28);
      if (below(2) == 0) r.sampling = {.temperature = 0.9f, .top_k = 5, .seed = random()};
      if (below(4) == 0) r.stop_ids = {below(kTinyVocab)};
      r.priority = below(3);
      if (below(8) == 0) r.deadline = time + below(30);
      r.draft_tokens = below(3) == 0 ? below(6) : -1;
      const std::vector<std::int32_t> alone = run_alone(reference, plan, r);
      const RequestId id = *scheduler.submit(r);
      texts[id] = r.prompt;
      texts[id].insert(texts[id].end(), alone.begin(), alone.end());
      scripts[id] = {r, alone, {}, {}};
    }
    if (!scripts.empty() && below(40) == 0)
      scheduler.cancel(1 + static_cast<RequestId>(below(static_cast<int>(scripts.size()))));
    if (below(60) == 0) model.fail_in = 0;
    const std::size_t from = events.size();
    const Status status = scheduler.step(events);
    time += 0.5;
    for (std::size_t i = from; i < events.size(); i++) {
      Script& s = scripts.at(events[i].request);
      ASSERT_FALSE(s.reason.has_value()) << "an event after the last";
      if (events[i].kind == Event::Kind::kToken) s.tokens.push_back(events[i].token);
      if (events[i].kind == Event::Kind::kFinished) s.reason = events[i].reason;
    }
    ASSERT_TRUE(status.ok() || status.message() == "the model was told to fail") << status.message();
    ASSERT_TRUE(store.check().ok());
    ASSERT_EQ(store.live_rows(), scheduler.running());
    ASSERT_LE(scheduler.running(), limits.rows);
    std::size_t live = 0;
    for (const auto& [id, s] : scripts) live += s.reason ? 0 : 1;
    ASSERT_EQ(live, static_cast<std::size_t>(scheduler.running() + scheduler.waiting()));
  }
  for (const auto& [id, s] : scripts) {
    ASSERT_TRUE(s.reason.has_value());
    const bool whole = *s.reason == FinishReason::kStop || *s.reason == FinishReason::kLength;
    ASSERT_LE(s.tokens.size(), s.alone.size()) << "request " << id;
    ASSERT_TRUE(std::equal(s.tokens.begin(), s.tokens.end(), s.alone.begin())) << "request " << id;
    ASSERT_TRUE(!whole || s.tokens.size() == s.alone.size()) << "request " << id;
    counts.finished += whole ? 1 : 0;
    counts.failed += *s.reason == FinishReason::kFailed ? 1 : 0;
  }
  for (int g = 0; g < plan.group_count(); g++) ASSERT_EQ(store.pool_use(g).owned, 0);
  counts.accepted += scheduler.stats().drafts.accepted;
  counts.rejected += scheduler.stats().drafts.drafted - scheduler.stats().drafts.accepted;
  counts.set_aside += scheduler.stats().set_aside;
}

TEST(Simulator, EverySeedKeepsTheSchedulersPromises) {
  const unsigned seeds = kSanitized ? 150 : 3000;
  Counts counts;
  for (unsigned seed = 1; seed <= seeds; seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    simulate(seed, counts);
    if (HasFatalFailure()) return;
  }
  // The seeds reach what they are for.
  EXPECT_GT(counts.accepted, seeds * 3);
  EXPECT_GT(counts.rejected, seeds * 3);
  EXPECT_GT(counts.set_aside, seeds / 20);
  EXPECT_GT(counts.failed, seeds / 20);
  EXPECT_GT(counts.finished, seeds * 2);
}

// The long form, for the nights: --gtest_also_run_disabled_tests.
TEST(Simulator, DISABLED_TenThousandMoreSeeds) {
  Counts counts;
  for (unsigned seed = 1000000; seed < 1010000; seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    simulate(seed, counts);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace windrow
