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

Status check_records(const std::string& name, const AttentionGroup& group, const LayerRecords& records) {
  const int length = records.end;
  if (!records.converted && !group.delayed)
    return invalid(fmt::format("{}: not converted, but the group has no delayed codecs", name));
  const int sinks = records.begin <= group.sinks ? 0 : group.sinks;
  if (records.begin < 0 || records.begin > length || records.sinks != sinks ||
      records.begin > length - std::min(length, group.window - 1) ||
      (sinks == 0 && group.sinks > 0 && records.begin != 0)) {
    return invalid(fmt::format("{}: {} sinks and positions {} .. {} of a row of window {} and {} sinks", name,
                               records.sinks, records.begin, length, group.window, group.sinks));
  }
  const Codec &keys = key_codec(group, records.converted), &values = value_codec(group, records.converted);
  const struct {
    const char* what;
    std::size_t got;
    int each;
  } arrays[] = {{"key words", records.key_words.size(), keys.record_words(group.head_dim)},
                {"key params", records.key_params.size(), keys.record_params(group.head_dim)},
                {"value words", records.value_words.size(), values.record_words(value_dim(group))},
                {"value params", records.value_params.size(), values.record_params(value_dim(group))}};
  for (const auto& array : arrays) {
    const auto expected =
        checked_product({static_cast<std::size_t>(group.kv_heads),
                         static_cast<std::size_t>(std::int64_t{records.end} - records.begin + records.sinks),
                         static_cast<std::size_t>(array.each)});
    if (!expected || array.got != *expected) {
      return invalid(fmt::format("{}: {} {}, expected {} heads x {} positions x {}", name, array.got,
                                 array.what, group.kv_heads,
                                 std::int64_t{records.end} - records.begin + records.sinks, array.each));
    }
  }
  return Status();
}

}  // namespace windrow::mlx
