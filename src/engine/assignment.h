// Choosing a codec for each slot (the keys, or the values, of some layers) under a budget of bytes, on a
// table of what each choice costs. The table supposes that the costs of slots add up.
#pragma once

#include <cstddef>
#include <vector>

namespace windrow {

struct AssignmentTable {
  struct Choice {
    double divergence = 0;
    std::size_t bytes = 0;
  };
  std::vector<std::vector<Choice>> slots;  // [slot][codec]; equally many codecs for each

  // Of codec assigned[slot] in each slot.
  double divergence(const std::vector<std::size_t>& assigned) const;
  std::size_t bytes(const std::vector<std::size_t>& assigned) const;
};

// From the choice of least divergence in every slot, the step of least divergence per byte saved, again and
// again until the budget is met. REQUIRES that the smallest
// choices fit.
std::vector<std::size_t> greedy_assignment(const AssignmentTable& table, std::size_t budget);

// Changes one or two slots at a time as long as that lowers the divergence within the budget; the best
// change first. REQUIRES bytes(assigned) <= budget.
std::vector<std::size_t> improve_assignment(const AssignmentTable& table, std::size_t budget,
                                            std::vector<std::size_t> assigned);

}  // namespace windrow
