// What MLX's rings and a plan's groups have to agree on.
#pragma once

#include <cstdint>
#include <string>

#include "state/layer_records.h"
#include "state/mlx_array.h"
#include "windrow/plan.h"
#include "windrow/records.h"

namespace windrow::mlx {

inline Status invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

inline Shape key_shape(const AttentionGroup& group, std::size_t batch, int slots) {
  return {batch, static_cast<std::size_t>(group.kv_heads), static_cast<std::size_t>(slots), group.head_dim};
}
inline Shape value_shape(const AttentionGroup& group, std::size_t batch, int slots) {
  return {batch, static_cast<std::size_t>(group.kv_heads), static_cast<std::size_t>(slots), value_dim(group)};
}

// kOk when a plan would take the group's numbers (records and arrays are sized by them).
Status check_group(const std::string& name, const AttentionGroup& group);
// max_size of the ring that is the group: window + sinks, or kFullWindow. kInvalidArgument beyond an int.
Result<int> ring_size(const std::string& name, const AttentionGroup& group);
}  // namespace windrow::mlx
