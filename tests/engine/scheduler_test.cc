// The scheduler: admission by the plan, order, setting aside, ends, and tokens that know no neighbours.
#include "windrow/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/solo.h"
#include "engine/tiny_model.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

struct Run {
  std::vector<std::int32_t> tokens;
  std::optional<FinishReason> reason;
  Status status;
};

// A tiny model, its store and a scheduler with a clock that tests turn.
struct Bench {
  StatePlan plan;
  StateStore store;
  TinyModel model;
  double time = 0;
  Scheduler scheduler;
  std::map<RequestId, Run> runs;
  std::vector<Event> events;

  Bench(const Limits& limits, bool recurrent, SchedulerOptions options = {})
      : plan(tiny_plan(limits, recurrent)),
        store(*StateStore::create(plan, {.poison = true})),
        model(plan, recurrent),
        scheduler(*Scheduler::create(model, store, with_clock(std::move(options)))) {}

  SchedulerOptions with_clock(SchedulerOptions options) {
    options.clock = [this] { return time; };
    return options;
  }
  Status step() {
    const std::size_t from = events.size();
    const Status s = scheduler.step(events);
    for (std::size_t i = from; i < events.size(); i++) {
      Run& run = runs[events[i].request];
      EXPECT_FALSE(run.reason.has_value()) << "an event after the last";
      if (events[i].kind == Event::Kind::kToken) run.tokens.push_back(events[i].token);
      if (events[i].kind == Event::Kind::kFinished)
        run.reason = events[i].reason, run.status = events[i].status;
    }
    EXPECT_TRUE(store.check().ok());
    EXPECT_EQ(store.live_rows(), scheduler.running());
    return s;
  }
  void run_all() {
    for (int i = 0; i < 10000 && !scheduler.idle(); i++) ASSERT_TRUE(step().ok());
    EXPECT_TRUE(scheduler.idle());
    for (int g = 0; g < plan.group_count(); g++) EXPECT_EQ(store.pool_use(g).owned, 0);
  }
};

Request request_of(unsigned seed, int prompt, int max_tokens) {
  std::mt19937 random(seed);
  Request r;
  for (int i = 0; i < prompt; i++) r.prompt.push_back(static_cast<std::int32_t>(random() % kTinyVocab));
  r.max_tokens = max_tokens;
  if (seed % 3 == 1) r.sampling = {.temperature = 0.8f, .top_k = 6, .seed = seed};
  if (seed % 3 == 2)
    r.sampling = {.temperature = 1.2f, .top_p = 0.9f, .repetition_penalty = 1.1f, .seed = seed};
  return r;
}

TEST(Scheduler, ARequestsTokensAreThoseOfItsSoloRun) {
  for (const bool recurrent : {false, true}) {
    Bench b({.rows = 4, .tokens = 64, .step_tokens = 16}, recurrent, {.step_tokens = 9, .prefill_chunk = 4});
    std::vector<Request> requests;
    for (unsigned i = 0; i < 12; i++)
      requests.push_back(request_of(i, 1 + static_cast<int>(i * 5 % 23), 1 + static_cast<int>(i * 7 % 19)));
    for (std::size_t i = 0; i < requests.size(); i++) {
      ASSERT_EQ(*b.scheduler.submit(requests[i]), i + 1);
      if (i % 3 != 0) continue;
      ASSERT_TRUE(b.step().ok());  // they join a batch that runs
    }
    b.run_all();
    for (std::size_t i = 0; i < requests.size(); i++) {
      EXPECT_EQ(b.runs[i + 1].tokens, run_alone(b.model, b.plan, requests[i])) << i;
      EXPECT_EQ(b.runs[i + 1].reason, FinishReason::kLength);
    }
  }
}

TEST(Scheduler, WhatCanNeverFitIsRefusedWithTheNumbersAndWhatFitsLaterWaits) {
  Bench b({.rows = 3, .tokens = 32, .step_tokens = 16, .total_tokens = 48}, false);
  EXPECT_EQ(b.scheduler.submit(request_of(0, 20, 14)).status().message(),
            "request: a prompt of 20 tokens and 14 new ones need 33 positions; a row may have 32, all rows "
            "together 48");
  ASSERT_TRUE(b.scheduler.submit(request_of(0, 20, 13)).ok());  // 32
  ASSERT_TRUE(b.scheduler.submit(request_of(3, 10, 10)).ok());  // 19, in pages of 4: 20
  ASSERT_TRUE(b.scheduler.submit(request_of(6, 10, 4)).ok());   // 13: 16
  ASSERT_TRUE(b.step().ok());
  EXPECT_EQ(b.scheduler.running(), 1);  // 32 + 20 > 48, and the third waits behind the second
  EXPECT_EQ(b.scheduler.waiting(), 2);
  b.run_all();
  EXPECT_EQ(b.runs[2].tokens.size(), 10u);
}

TEST(Scheduler, WrongRequestsAndOptionsAreNamed) {
  Bench b({.rows = 1, .tokens = 32, .step_tokens = 16}, false);
  const auto refused = [&](Request r) { return b.scheduler.submit(std::move(r)).status().message(); };
  EXPECT_EQ(refused({}), "request: the prompt has no tokens");
  EXPECT_EQ(refused({.prompt = {1}, .max_tokens = -1}), "request: max_tokens is -1, must be at least 0");
  EXPECT_EQ(refused({.prompt = {1, 24}}), "request: prompt token 1 has id 24, allowed are 0 to 23");
  EXPECT_EQ(refused({.prompt = {1}, .max_tokens = 1, .sampling = {.top_p = 2}}),
            "top_p 2: must be above 0 and at most 1");
  EXPECT_EQ(Scheduler::create(b.model, b.store, {.step_tokens = 17}).status().message(),
            "scheduler: step_tokens 17, the plan allows 1 to 16");
}

TEST(Scheduler, ARowOfHigherPrioritySetsOneAsideThatComesBackBitForBit) {
  for (const bool recurrent : {false, true}) {
    Bench b({.rows = 1, .tokens = 64, .step_tokens = 16}, recurrent);
    const Request low = request_of(1, 9, 20);
    Request high = request_of(2, 4, 6);
    high.priority = 1;
    ASSERT_TRUE(b.scheduler.submit(low).ok());
    for (int i = 0; i < 8; i++) ASSERT_TRUE(b.step().ok());
    const std::size_t before = b.runs[1].tokens.size();
    EXPECT_GT(before, 3u);
    ASSERT_TRUE(b.scheduler.submit(high).ok());
    ASSERT_TRUE(b.step().ok());
    EXPECT_EQ(b.runs[1].tokens.size(), before);
    EXPECT_EQ(b.scheduler.stats().set_aside, 1);
    b.run_all();
    EXPECT_EQ(b.runs[1].tokens, run_alone(b.model, b.plan, low));
    EXPECT_EQ(b.runs[2].tokens, run_alone(b.model, b.plan, high));
    // Nothing was computed again: the prompts' tokens were run once.
    EXPECT_EQ(b.scheduler.stats().prefill_tokens, 13);
  }
}

TEST(Scheduler, WaitingRaisesARequestAboveLaterOnesOfHigherPriority) {
  Bench b({.rows = 1, .tokens = 64, .step_tokens = 16}, false, {.aging_s = 10});
  ASSERT_TRUE(b.scheduler.submit(request_of(0, 3, 4)).ok());
  ASSERT_TRUE(b.step().ok());
  ASSERT_TRUE(b.scheduler.submit(request_of(3, 3, 4)).ok());
  for (int i = 0; i < 150 && !b.runs[2].reason; i++) {  // more urgent ones than there is time for
    Request urgent = request_of(6, 3, 2);
    urgent.priority = 2;
    ASSERT_TRUE(b.scheduler.submit(urgent).ok());
    b.time += 1;
    ASSERT_TRUE(b.step().ok());
  }
  EXPECT_EQ(b.runs[2].reason, FinishReason::kLength);
  EXPECT_GT(b.scheduler.waiting(), 20);
}

TEST(Scheduler, CancelledAndLateRequestsEndAtTheNextStepWhereverTheyStand) {
  Bench b({.rows = 1, .tokens = 64, .step_tokens = 16}, false);
  Request late = request_of(0, 3, 40);
  late.deadline = 5;
  ASSERT_TRUE(b.scheduler.submit(late).ok());
  ASSERT_TRUE(b.scheduler.submit(request_of(3, 3, 4)).ok());
  ASSERT_TRUE(b.scheduler.submit(request_of(6, 3, 4)).ok());
  ASSERT_TRUE(b.step().ok());
  EXPECT_TRUE(b.scheduler.cancel(2));  // waits
  b.time = 5;                          // the first runs
  ASSERT_TRUE(b.step().ok());
  EXPECT_EQ(b.runs[1].reason, FinishReason::kDeadline);
  EXPECT_EQ(b.runs[1].tokens.size(), 1u);
  EXPECT_EQ(b.runs[2].reason, FinishReason::kCancelled);
  EXPECT_FALSE(b.scheduler.cancel(2));
  EXPECT_FALSE(b.scheduler.cancel(99));
  b.run_all();
  EXPECT_EQ(b.runs[3].reason, FinishReason::kLength);
}

TEST(Scheduler, StopIdsAndStopFunctionsEndTheText) {
  Bench b({.rows = 2, .tokens = 64, .step_tokens = 16}, false);
  Request plain = request_of(0, 5, 30);
  const std::vector<std::int32_t> all = run_alone(b.model, b.plan, plain);
  Request by_id = plain, by_text = plain;
  by_id.stop_ids = {all[6]};
  by_text.stop = [](std::span<const std::int32_t> ids) { return ids.size() == 5; };
  ASSERT_TRUE(b.scheduler.submit(by_id).ok());
  ASSERT_TRUE(b.scheduler.submit(by_text).ok());
  b.run_all();
  EXPECT_EQ(b.runs[1].tokens, run_alone(b.model, b.plan, by_id));
  EXPECT_EQ(b.runs[1].reason, FinishReason::kStop);
  EXPECT_EQ(b.runs[2].tokens, std::vector<std::int32_t>(all.begin(), all.begin() + 5));
}

TEST(Scheduler, LogprobsAreOfTheWholeDistribution) {
  Bench b({.rows = 1, .tokens = 64, .step_tokens = 16}, false);
  Request r = request_of(0, 5, 6);
  r.logprobs = kTinyVocab;
  ASSERT_TRUE(b.scheduler.submit(r).ok());
  b.run_all();
  int tokens = 0;
  for (const Event& e : b.events) {
    if (e.kind != Event::Kind::kToken) continue;
    tokens++;
    ASSERT_EQ(e.best.size(), static_cast<std::size_t>(kTinyVocab));
    double sum = 0;
    for (const TokenLogprob& l : e.best) sum += std::exp(static_cast<double>(l.logprob));
    EXPECT_NEAR(sum, 1, 1e-5);
    EXPECT_EQ(e.best[0].id, e.token);  // greedy
    EXPECT_EQ(e.best[0].logprob, e.logprob);
    EXPECT_TRUE(std::is_sorted(e.best.begin(), e.best.end(),
                               [](const auto& x, const auto& y) { return x.logprob > y.logprob; }));
  }
  EXPECT_EQ(tokens, 6);
}

TEST(Scheduler, AFailingModelEndsTheStepsRequestsAndTheOthersGoOn) {
  Bench b({.rows = 2, .tokens = 64, .step_tokens = 16}, true);
  for (unsigned i = 0; i < 3; i++) ASSERT_TRUE(b.scheduler.submit(request_of(i * 3, 4, 5)).ok());
  b.model.fail_in = 2;
  Status s;
  while (s.ok()) s = b.step();
  EXPECT_EQ(s.message(), "the model was told to fail");
  EXPECT_EQ(b.runs[1].reason, FinishReason::kFailed);
  EXPECT_EQ(b.runs[2].reason, FinishReason::kFailed);
  EXPECT_EQ(b.runs[1].status.message(), "the model was told to fail");
  b.run_all();
  EXPECT_EQ(b.runs[3].tokens, run_alone(b.model, b.plan, request_of(6, 4, 5)));
}

// Short prompts are not held up by a long one: each gets its share of the step.
TEST(Scheduler, ALongPromptDoesNotHoldUpOthers) {
  Bench b({.rows = 4, .tokens = 256, .step_tokens = 16}, false, {.step_tokens = 16, .prefill_chunk = 8});
  ASSERT_TRUE(b.scheduler.submit(request_of(0, 200, 2)).ok());
  ASSERT_TRUE(b.scheduler.submit(request_of(3, 6, 12)).ok());
  int steps = 0;
  for (; b.runs[2].tokens.empty(); steps++) ASSERT_TRUE(b.step().ok());
  EXPECT_LE(steps, 2);
  EXPECT_TRUE(b.runs[1].tokens.empty());
  b.run_all();
}

}  // namespace
}  // namespace windrow
