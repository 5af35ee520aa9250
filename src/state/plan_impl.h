// The resolved content of a StatePlan, shared by everything built from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/block_layout.h"
#include "windrow/plan.h"

namespace windrow {

// Where a group's pages lie: by its own codecs, or by the delayed ones that come first.
enum StorageIndex : int { kFinal = 0, kEarly = 1 };
inline constexpr int kStorages = 2;

struct StatePlan::Impl {
  struct Place {  // of a layer
    int group = -1;
    int slot = -1;
    int owner = -1;
    int recurrent = -1;
    int recurrent_slot = -1;
  };

  Limits limits;
  int page_tokens = 0;
  std::vector<AttentionGroup> groups;
  std::vector<BlockLayout> layouts[kStorages];  // of each group; early ones of delayed groups only
  std::vector<GroupBytes> sizes[kStorages];     // of each group
  std::vector<RecurrentGroup> recurrent;
  std::vector<RecurrentBytes> recurrent_sizes;
  std::vector<Place> places;  // by layer number
  std::size_t bytes = 0;
  std::string signature;

  Place place(int layer) const {
    const auto l = static_cast<std::size_t>(layer);  // a negative layer becomes huge
    return l < places.size() ? places[l] : Place{};
  }
};

// Positions a row keeps between steps in a group, sinks aside. W - 1 earlier positions are what the next
// query needs, and R more what a rollback by R needs; at least W, so that the whole window can be
// extracted (which also makes a rollback by one always possible).
inline std::int64_t retained_positions(const AttentionGroup& group, const Limits& limits) {
  if (group.window == kFullWindow) return kFullWindow;
  return std::int64_t{group.window} - 1 + std::max(1, limits.rollback);
}

inline std::int32_t sink_pages(const AttentionGroup& group, std::int32_t page_tokens) {
  return (group.sinks + page_tokens - 1) / page_tokens;
}

}  // namespace windrow
