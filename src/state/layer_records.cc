#include "state/layer_records.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

}  // namespace

Status check_layer_records(const std::string& name, const AttentionGroup& group,
                           const LayerRecords& records) {
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

}  // namespace windrow
