// The resolved content of a StatePlan, shared by everything built from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/block_layout.h"
#include "windrow/plan.h"

namespace windrow {

struct StatePlan::Impl {
  Limits limits;
  int page_tokens = 0;
  std::vector<AttentionGroup> groups;
  std::vector<BlockLayout> layouts;  // of each group
  std::vector<GroupBytes> sizes;     // of each group
  std::vector<int> group_of_layer;   // by layer number, -1: none
  std::vector<int> slot_of_layer;    // place of the layer in its group
  std::size_t bytes = 0;
  std::string signature;
};

// Positions a row keeps between steps in a group. W - 1 earlier positions are what the next query
// needs, and R more what a rollback by R needs; at least W, so that the whole window can be
// extracted (which also makes a rollback by one always possible).
inline std::int64_t retained_positions(const AttentionGroup& group, const Limits& limits) {
  if (group.window == kFullWindow) return kFullWindow;
  return std::int64_t{group.window} - 1 + std::max(1, limits.rollback);
}

}  // namespace windrow
