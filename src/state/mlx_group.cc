#include "state/mlx_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/checked.h"

namespace windrow::mlx {

Status check_group(const std::string& name, const AttentionGroup& group) {
  if (group.window < 1 || group.sinks < 0 || group.kv_heads < 1 ||
      (group.window == kFullWindow && group.sinks > 0)) {
    return invalid(fmt::format("{}: a group of window {}, {} sinks and {} kv heads", name, group.window,
                               group.sinks, group.kv_heads));
  }
  const struct {
    const char* what;
    const Codec& codec;
    int dim;
  } sides[] = {{"keys", group.keys, group.head_dim},
               {"values", group.values, value_dim(group)},
               {"delayed keys", group.delayed ? group.delayed->keys : group.keys, group.head_dim},
               {"delayed values", group.delayed ? group.delayed->values : group.values, value_dim(group)}};
  for (const auto& side : sides) {
    if (Status s = side.codec.check(side.dim); !s.ok()) return s.with_context(name + ": " + side.what);
  }
  return Status();
}

Result<int> ring_size(const std::string& name, const AttentionGroup& group) {
  if (group.window == kFullWindow) return kFullWindow;
  const std::int64_t size = std::int64_t{group.window} + group.sinks;
  if (size < kFullWindow) return static_cast<int>(size);
  return invalid(
      fmt::format("{}: a window of {} and {} sinks make no ring", name, group.window, group.sinks));
}

}  // namespace windrow::mlx
