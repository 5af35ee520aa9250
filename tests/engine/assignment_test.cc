// The search for codecs under a budget, against trying everything.
#include "engine/assignment.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace windrow {
namespace {

using Assigned = std::vector<std::size_t>;

// Fewer bytes cost more divergence, as codecs do; slots differ in how much.
AssignmentTable codecs_table(std::size_t slots, const std::vector<double>& weights) {
  AssignmentTable table;
  for (std::size_t s = 0; s < slots; s++) {
    std::vector<AssignmentTable::Choice>& slot = table.slots.emplace_back();
    for (const int bits : {8, 6, 4, 3, 2}) {
      slot.push_back(
          {weights[s] / static_cast<double>(1 << (2 * bits)), static_cast<std::size_t>(bits) * 10 * (s + 1)});
    }
  }
  return table;
}

// The least divergence of all assignments that fit; infinity if none does.
double best_of_all(const AssignmentTable& table, std::size_t budget) {
  double best = std::numeric_limits<double>::infinity();
  Assigned a(table.slots.size(), 0);
  for (;;) {
    if (table.bytes(a) <= budget) best = std::min(best, table.divergence(a));
    std::size_t s = 0;
    for (; s < a.size() && ++a[s] == table.slots[s].size(); s++) a[s] = 0;
    if (s == a.size()) return best;
  }
}

TEST(Assignment, WithRoomForEverythingEverySlotHasItsBest) {
  const AssignmentTable table = codecs_table(3, {1, 100, 10});
  EXPECT_EQ(greedy_assignment(table, 100000), (Assigned{0, 0, 0}));
}

TEST(Assignment, WithRoomForNothingEverySlotHasItsSmallest) {
  const AssignmentTable table = codecs_table(3, {1, 100, 10});
  const Assigned smallest{4, 4, 4};
  EXPECT_EQ(greedy_assignment(table, table.bytes(smallest)), smallest);
  EXPECT_EQ(improve_assignment(table, table.bytes(smallest), smallest), smallest);
}

TEST(Assignment, AmongEqualDivergencesTheSmallerIsTaken) {
  AssignmentTable table;
  table.slots = {{{0.0, 100}, {0.0, 50}, {1.0, 10}}};
  EXPECT_EQ(greedy_assignment(table, 1000), Assigned{1});
}

TEST(Assignment, APairOfStepsGetsPastWhatNoSingleStepCan) {
  AssignmentTable table;  // the budget is full: one slot must shrink for the other to grow
  table.slots = {{{0.0, 20}, {9.0, 10}}, {{0.0, 20}, {1.0, 10}}};
  EXPECT_EQ(improve_assignment(table, 30, {1, 0}), (Assigned{0, 1}));
}

RC_GTEST_PROP(Assignment, FitsIsNeverWorseThanItsStartAndNearTheBestOfAll, ()) {
  std::vector<double> weights;
  for (int s = 0; s < 4; s++) weights.push_back(*rc::gen::inRange(1, 1000));
  const AssignmentTable table = codecs_table(4, weights);
  const std::size_t least = table.bytes({4, 4, 4, 4}), most = table.bytes({0, 0, 0, 0});
  const std::size_t budget = *rc::gen::inRange(least, most + 100);

  const Assigned greedy = greedy_assignment(table, budget);
  RC_ASSERT(table.bytes(greedy) <= budget);
  const Assigned improved = improve_assignment(table, budget, greedy);
  RC_ASSERT(table.bytes(improved) <= budget);
  RC_ASSERT(table.divergence(improved) <= table.divergence(greedy));
  const double best = best_of_all(table, budget);
  RC_ASSERT(table.divergence(improved) >= best * (1 - 1e-12));
  RC_ASSERT(table.divergence(improved) <= best * 3);
  for (std::size_t codec = 0; codec < 5; codec++) {
    const Assigned uniform(4, codec);
    if (table.bytes(uniform) > budget) continue;
    RC_ASSERT(table.divergence(improve_assignment(table, budget, uniform)) <= table.divergence(uniform));
  }
}

RC_GTEST_PROP(Assignment, NoisyTablesWhereMoreBytesAreNotAlwaysBetterStillEndWithinTheBudget, ()) {
  AssignmentTable table;
  const int slots = *rc::gen::inRange(1, 7);
  std::size_t least = 0;
  for (int s = 0; s < slots; s++) {
    std::vector<AssignmentTable::Choice>& slot = table.slots.emplace_back();
    std::size_t smallest = 1000;
    for (int c = 0; c < 4; c++) {
      slot.push_back({*rc::gen::inRange(0, 5) * 0.1, static_cast<std::size_t>(*rc::gen::inRange(0, 40))});
      smallest = std::min(smallest, slot.back().bytes);
    }
    least += smallest;
  }
  const std::size_t budget = least + static_cast<std::size_t>(*rc::gen::inRange(0, 50));
  const Assigned greedy = greedy_assignment(table, budget);
  RC_ASSERT(table.bytes(greedy) <= budget);
  const Assigned improved = improve_assignment(table, budget, greedy);
  RC_ASSERT(table.bytes(improved) <= budget);
  RC_ASSERT(table.divergence(improved) <= table.divergence(greedy));
}

}  // namespace
}  // namespace windrow
