// When drafting pays: costs from noisy measurements, lengths from acceptance, and none where it brings
// nothing.
#include "engine/draft_length.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace windrow {
namespace {

// Steps of 100 us and 30 us a token; now and then another process takes the core for 5 ms.
StepCost measured(int steps, int interruptions) {
  StepCost cost;
  std::mt19937 random(1);
  for (int i = 0; i < steps; i++) {
    const int tokens = 1 + static_cast<int>(random() % 9);
    const bool interrupted = interruptions > 0 && static_cast<int>(random() % 100) < interruptions;
    cost.add(tokens, 100e-6 + 30e-6 * tokens + (interrupted ? 5e-3 : 0), 2);
  }
  return cost;
}

TEST(StepCost, FindsTheCostOfATokenAlsoAmongInterruptedSteps) {
  EXPECT_NEAR(measured(200, 0).per_token(), 30e-6, 1e-6);
  EXPECT_NEAR(measured(200, 10).per_token(), 30e-6, 15e-6);
  EXPECT_NEAR(measured(200, 0).price_of(250e-6), 2, 0.4);  // two tokens in a step of the mean length
}

TEST(StepCost, GuessesWhereAllStepsAreAlike) {
  StepCost cost;
  EXPECT_EQ(cost.per_token(), 0);
  EXPECT_EQ(cost.price_of(1), 0);
  for (int i = 0; i < 20; i++) cost.add(1, 1e-4, 1);
  EXPECT_NEAR(cost.per_token(), 0.25e-4, 1e-9);
}

TEST(StepCost, BelievesALastingChange) {
  StepCost cost = measured(200, 0);
  for (int i = 0; i < 400; i++) {
    const int tokens = 1 + i % 9;
    cost.add(tokens, 1e-3 + 300e-6 * tokens, 2);
  }
  EXPECT_NEAR(cost.per_token(), 300e-6, 60e-6);
}

// Attempts of a row whose drafted tokens are accepted with one chance each; the share of steps with a draft,
// and the mean length of drafts.
struct Outcome {
  double drafting, length;
};
Outcome play(double chance, bool tells, double draft_price, double factor = 1) {
  const StepCost cost = measured(200, 0);
  DraftLength row;
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform;
  int drafts = 0, tokens = 0;
  constexpr int kSteps = 2000;
  for (int i = 0; i < kSteps; i++) {
    const DraftLength::Wish wish = row.next(cost, 1, 8);
    if (wish.most == 0) continue;
    int length = 0;
    std::vector<float> chances;
    for (double c = chance * factor; length < wish.most && c >= static_cast<double>(wish.least);
         c *= chance * factor) {
      if (tells) chances.push_back(static_cast<float>(c));
      length++;
    }
    int accepted = 0;
    while (accepted < length && uniform(random) < chance) accepted++;
    row.add(length, accepted, accepted < length, chances,
            draft_price + length * cost.price_of(cost.per_token()));
    drafts++;
    tokens += length;
  }
  return {static_cast<double>(drafts) / kSteps, drafts > 0 ? static_cast<double>(tokens) / drafts : 0};
}

TEST(DraftLength, IsLongForTextsThatAreGuessedAndNearlyNeverDraftsForOthers) {
  for (const bool tells : {false, true}) {
    const Outcome sure = play(0.97, tells, 0.1), bad = play(0.1, tells, 0.1), even = play(0.6, tells, 0.1);
    EXPECT_GT(sure.drafting, 0.99);
    EXPECT_GT(sure.length, 6);
    EXPECT_LT(bad.drafting, 0.04);
    EXPECT_GT(bad.drafting, 0.002);  // texts change
    EXPECT_GT(even.length, 1);
    EXPECT_LT(even.length, 5);
  }
}

TEST(DraftLength, GivesUpWhereTheDraftsThemselvesCostTooMuch) {
  EXPECT_GT(play(0.7, true, 0.1).drafting, 0.7);
  EXPECT_LT(play(0.7, true, 4).drafting, 0.04);
}

TEST(DraftLength, HoldsADrafterToItsWord) {
  // A drafter that says half of the truth is asked for as much as one that says it.
  const double honest = play(0.9, true, 0.1).length, modest = play(0.9, true, 0.1, 0.8).length;
  EXPECT_GT(honest, 4);
  EXPECT_GT(modest, 3);
  EXPECT_LT(modest, honest + 1);
}

TEST(DraftLength, TakesAllItMayWhereTimeIsNotMeasured) {
  DraftLength row;
  const StepCost cost;
  EXPECT_EQ(row.next(cost, 1, 8).most, 8);
  EXPECT_EQ(row.next(cost, 1, 0).most, 0);
  for (int i = 0; i < 50; i++) row.add(8, 0, true, {}, 0);
  EXPECT_GE(row.next(cost, 1, 8).most, 1);
  const std::vector<float> chances(8, 0.5f);
  for (int i = 0; i < 50; i++) row.add(8, 0, true, chances, 0);
  EXPECT_EQ(row.next(cost, 1, 8).most, 8);
  EXPECT_EQ(row.next(cost, 1, 8).least, 0);
}

TEST(DraftLength, ReturnsToATextThatBecamePredictable) {
  const StepCost cost = measured(200, 0);
  DraftLength row;
  for (int i = 0; i < 400; i++) {
    if (const auto wish = row.next(cost, 1, 8); wish.most > 0) row.add(wish.most, 0, true, {}, 1);
  }
  int steps = 0;
  for (int in_a_row = 0; in_a_row < 20 && steps < 3000; steps++) {
    const auto wish = row.next(cost, 1, 8);
    in_a_row = wish.most > 0 ? in_a_row + 1 : 0;
    if (wish.most > 0) row.add(wish.most, wish.most, false, {}, 0.3);
  }
  EXPECT_LT(steps, 2500);
}

}  // namespace
}  // namespace windrow
