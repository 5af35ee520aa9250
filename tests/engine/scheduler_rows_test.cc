// Rows that come into a scheduler and rows that are kept; what joins and leaves a batch copies nothing.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/solo.h"
#include "engine/tiny_model.h"
#include "model/model_fixture.h"
#include "windrow/scheduler.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT
using Kind = Event::Kind;

struct World {
  StatePlan plan;
  StateStore store;
  TinyModel model;
  double time = 0;
  Scheduler scheduler;
  std::vector<Event> events;

  World(const Limits& limits, bool recurrent, const Codec& codec = Codec::f32())
      : plan(tiny_plan(limits, recurrent, codec)),
        store(must(StateStore::create(plan, {.poison = true}))),
        model(plan, recurrent),
        scheduler(must(Scheduler::create(model, store, {.clock = [this] { return time; }}))) {}

  void step() {
    must(scheduler.step(events));
    EXPECT_TRUE(store.check().ok());
  }
  void run_all() {
    for (int i = 0; i < 1000 && !scheduler.idle(); i++) step();
    EXPECT_TRUE(scheduler.idle());
  }
  std::vector<std::int32_t> tokens(RequestId id) const {
    std::vector<std::int32_t> out;
    for (const Event& e : events) {
      if (e.request == id && e.kind == Kind::kToken) out.push_back(e.token);
    }
    return out;
  }
  std::vector<Kind> kinds(RequestId id) const {
    std::vector<Kind> out;
    for (const Event& e : events) {
      if (e.request == id && e.kind != Kind::kToken) out.push_back(e.kind);
    }
    return out;
  }
};

Request request_of(unsigned seed, int prompt, int max_tokens) {
  std::mt19937 random(seed);
  Request r;
  for (int i = 0; i < prompt; i++) r.prompt.push_back(static_cast<std::int32_t>(random() % kTinyVocab));
  r.max_tokens = max_tokens;
  return r;
}

TEST(SchedulerRows, ATextGoesOnInItsKeptRowAsIfItHadNeverEnded) {
  for (const bool recurrent : {false, true}) {
    World w({.rows = 2, .tokens = 64, .step_tokens = 16}, recurrent);
    const std::vector<std::int32_t> whole = run_alone(w.model, w.plan, request_of(1, 9, 24));
    Request part = request_of(1, 9, 8);
    part.keep_row = true;
    std::vector<std::int32_t> text;
    Row row;
    for (int i = 0; i < 3; i++) {
      const std::int64_t before = w.scheduler.stats().prefill_tokens;
      const RequestId id =
          i == 0 ? must(w.scheduler.submit(part)) : must(w.scheduler.submit(part, std::move(row)));
      EXPECT_FALSE(row.valid());
      w.run_all();
      row = must(w.scheduler.take_row(id));
      const std::vector<std::int32_t> more = w.tokens(id);
      text.insert(text.end(), more.begin(), more.end());
      part.prompt.insert(part.prompt.end(), more.begin(), more.end());
      EXPECT_EQ(row.length(), static_cast<int>(part.prompt.size()) - 1);  // the last was not fed
      EXPECT_EQ(w.scheduler.stats().prefill_tokens - before, i == 0 ? 9 : 1);
    }
    EXPECT_EQ(text, whole);
  }
}

TEST(SchedulerRows, ARowThatCanNotRunNowWaitsOutsideAndComesBackBitForBit) {
  World w({.rows = 2, .tokens = 64, .step_tokens = 16, .total_tokens = 64}, true, Codec::affine(4, 32));
  Request first = request_of(1, 9, 8);
  first.keep_row = true;
  const RequestId a = must(w.scheduler.submit(first));
  w.run_all();
  Row row = must(w.scheduler.take_row(a));
  Request more = first;
  const std::vector<std::int32_t> text = w.tokens(a);
  more.prompt.insert(more.prompt.end(), text.begin(), text.end());
  more.keep_row = false;
  const RequestId big = must(w.scheduler.submit(request_of(2, 20, 30)));  // 49 of 64 positions
  w.step();
  EXPECT_EQ(w.store.live_rows(), 2);
  const RequestId b = must(w.scheduler.submit(more, std::move(row)));
  EXPECT_EQ(w.store.live_rows(), 1);  // its place is free
  EXPECT_EQ(w.scheduler.waiting(), 1);
  w.run_all();
  EXPECT_EQ(w.tokens(b), run_alone(w.model, w.plan, more));
  EXPECT_EQ(w.tokens(big), run_alone(w.model, w.plan, request_of(2, 20, 30)));
  EXPECT_EQ(w.kinds(b), (std::vector<Kind>{Kind::kAdmitted, Kind::kPrefill, Kind::kFinished}));
  EXPECT_EQ(w.scheduler.stats().prefill_tokens, 9 + 20 + 1);
}

TEST(SchedulerRows, ARowIsKeptOfEveryEndButAFailure) {
  World w({.rows = 1, .tokens = 64, .step_tokens = 16}, false);
  Request r = request_of(1, 9, 20);
  r.keep_row = true;
  const RequestId running = must(w.scheduler.submit(r)), waiting = must(w.scheduler.submit(r));
  for (int i = 0; i < 4; i++) w.step();
  EXPECT_EQ(w.scheduler.take_row(running).status().code(), StatusCode::kFailedPrecondition);  // it goes on
  w.scheduler.cancel(running);
  w.scheduler.cancel(waiting);
  w.step();
  Row row = must(w.scheduler.take_row(running));
  EXPECT_EQ(row.length(), 9 + 3);
  EXPECT_EQ(w.scheduler.take_row(running).status().message(), "request 1: no row is kept of it");
  EXPECT_EQ(w.scheduler.take_row(waiting).status().code(), StatusCode::kFailedPrecondition);
  row = Row();
  const RequestId failing = must(w.scheduler.submit(r));
  w.model.fail_in = 2;
  while (w.scheduler.step(w.events).ok()) continue;
  EXPECT_EQ(w.scheduler.take_row(failing).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(w.store.live_rows(), 0);
}

TEST(SchedulerRows, AKeptRowOfARequestThatWasSetAsideComesBack) {
  World w({.rows = 1, .tokens = 64, .step_tokens = 16}, true);
  Request low = request_of(1, 9, 20), high = request_of(2, 4, 30);
  low.keep_row = true;
  high.priority = 1;
  const RequestId a = must(w.scheduler.submit(low));
  for (int i = 0; i < 6; i++) w.step();
  const std::vector<std::int32_t> text = w.tokens(a);
  const RequestId b = must(w.scheduler.submit(high));
  w.step();
  w.scheduler.cancel(a);
  w.step();
  EXPECT_EQ(w.scheduler.take_row(a).status().code(), StatusCode::kResourceExhausted);  // no room yet
  w.run_all();
  EXPECT_EQ(w.tokens(b), run_alone(w.model, w.plan, high));
  Row row = must(w.scheduler.take_row(a));
  EXPECT_EQ(row.length(), 9 + static_cast<int>(text.size()) - 1);
  low.prompt.insert(low.prompt.end(), text.begin(), text.end());
  const RequestId c = must(w.scheduler.submit(low, std::move(row)));
  w.run_all();
  EXPECT_EQ(w.tokens(c), run_alone(w.model, w.plan, low));
}

TEST(SchedulerRows, RowsThatCanNotBeAreRefusedAndStayTheCallers) {
  World w({.rows = 2, .tokens = 64, .step_tokens = 16}, false), other({.rows = 1, .tokens = 64}, false);
  const auto grown = [](World& world) {
    Request r = request_of(1, 6, 1);
    r.keep_row = true;
    const RequestId id = must(world.scheduler.submit(r));
    world.run_all();
    return must(world.scheduler.take_row(id));
  };
  Row row = grown(w), foreign = grown(other), none;
  EXPECT_EQ(w.scheduler.submit(request_of(1, 6, 4), std::move(row)).status().message(),
            "request: its row holds 6 positions and its prompt has 6 tokens, one more is needed");
  EXPECT_TRUE(row.valid());
  EXPECT_FALSE(w.scheduler.submit(request_of(1, 9, 4), std::move(foreign)).ok());
  EXPECT_TRUE(foreign.valid());
  EXPECT_EQ(w.scheduler.submit(request_of(1, 9, 4), std::move(none)).status().message(),
            "request: its row is none");
  EXPECT_FALSE(w.scheduler.submit(request_of(1, 9, 99), std::move(row)).ok());
  EXPECT_TRUE(row.valid());
  EXPECT_TRUE(w.scheduler.idle());
}

TEST(SchedulerRows, APromptAloneIsRunInPiecesThatAreTold) {
  World w({.rows = 1, .tokens = 40, .step_tokens = 16}, true);
  Request r = request_of(1, 40, 0);
  r.keep_row = true;
  const RequestId id = must(w.scheduler.submit(r));
  w.run_all();
  std::vector<int> done;
  for (const Event& e : w.events) {
    if (e.kind == Kind::kPrefill) done.push_back(e.done);
  }
  EXPECT_EQ(done, (std::vector<int>{16, 32, 40}));
  EXPECT_TRUE(w.tokens(id).empty());
  EXPECT_EQ(w.events.back().reason, FinishReason::kLength);
  EXPECT_EQ(must(w.scheduler.take_row(id)).length(), 40);
}

// Notes where the pages of each row lie.
class PageWatcher final : public StepModel {
 public:
  explicit PageWatcher(StepModel& model) : model_(model) {}
  std::map<std::int32_t, std::vector<std::int32_t>> pages;  // of the full layer, by the row's first

  int vocab_size() const override { return model_.vocab_size(); }
  Status forward(Step& step, std::span<const std::int32_t> ids, std::span<const std::int32_t> wanted,
                 std::span<float> logits) override {
    if (Status s = model_.forward(step, ids, wanted, logits); !s.ok()) return s;
    const KvRead read = must(step.read(1));
    pages.clear();
    for (const KvRead::Row& row : read.rows) {
      std::vector<std::int32_t> of;
      for (int n = 0; n * read.page_tokens < row.length; n++) of.push_back(read.page_of(row, n));
      if (!of.empty()) pages.emplace(of.front(), std::move(of));
    }
    return {};
  }

 private:
  StepModel& model_;
};

TEST(SchedulerRows, JoiningAndLeavingMovesNoPageOfTheOthersAndTakesNoneBeforeTheFirstToken) {
  const StatePlan plan = tiny_plan({.rows = 64, .tokens = 64, .step_tokens = 256}, false);
  StateStore store = must(StateStore::create(plan, {.poison = true}));
  TinyModel tiny(plan, false);
  PageWatcher model(tiny);
  Scheduler scheduler = must(Scheduler::create(model, store, {.clock = [] { return 0.0; }}));
  std::vector<RequestId> ids;
  for (unsigned i = 0; i < 64; i++) ids.push_back(must(scheduler.submit(request_of(i, 21, 40))));
  std::vector<Event> events;
  for (int i = 0; i < 10; i++) must(scheduler.step(events));
  ASSERT_EQ(scheduler.running(), 64);
  int compared = 0;
  for (std::size_t round = 0; round < 16; round++) {
    const auto before = model.pages;
    const int owned = store.pool_use(1).owned;
    ASSERT_TRUE(scheduler.cancel(ids[round * 4]));
    ids[round * 4] = must(scheduler.submit(request_of(static_cast<unsigned>(100 + round), 2, 40)));
    EXPECT_EQ(store.pool_use(1).owned, owned);
    must(scheduler.step(events));
    EXPECT_EQ(scheduler.running(), 64);
    int same = 0;
    for (const auto& [first, pages] : model.pages) {
      const auto found = before.find(first);
      if (found == before.end() || found->second.size() > pages.size()) continue;  // a row on freed pages
      EXPECT_TRUE(std::equal(found->second.begin(), found->second.end(), pages.begin()));
      same++;
    }
    EXPECT_GE(same, 62);
    compared += same;
  }
  EXPECT_GT(compared, 16 * 60);
}

}  // namespace
}  // namespace windrow
