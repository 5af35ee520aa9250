#include "state/layer_records.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

}  // namespace

Status check_positions(const std::string& name, const AttentionGroup& group, bool converted, int held_sinks,
                       int begin, int length) {
  if (!converted && !group.delayed)
    return invalid(fmt::format("{}: not converted, but the group has no delayed codecs", name));
  const int sinks = begin <= group.sinks ? 0 : group.sinks;
  if (begin < 0 || begin > length || held_sinks != sinks ||
      begin > length - std::min(length, group.window - 1) || (sinks == 0 && group.sinks > 0 && begin != 0)) {
    return invalid(fmt::format("{}: {} sinks and positions {} .. {} of a row of window {} and {} sinks", name,
                               held_sinks, begin, length, group.window, group.sinks));
  }
  return Status();
}

Status check_row_positions(const std::string& name, const AttentionGroup& group, bool converted, int sinks,
                           int begin, int length) {
  if (Status s = check_positions(name, group, converted, sinks, begin, length); !s.ok()) return s;
  if (converted || length <= group.delayed->start) return Status();
  return invalid(fmt::format("{}: not converted at length {}, its delayed codecs end at {}", name, length,
                             group.delayed->start));
}

Status check_layer_records(const std::string& name, const AttentionGroup& group,
                           const LayerRecords& records) {
  if (Status s = check_positions(name, group, records.converted, records.sinks, records.begin, records.end);
      !s.ok()) {
    return s;
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

namespace {

// Whether one layer's records are what the plan's group holds of a row of `length` positions.
Status check_layer(const char* name, const AttentionGroup& group, const LayerRecords& records, int layer,
                   int length) {
  const std::string what = fmt::format("{}: layer {}", name, layer);
  if (records.layer != layer)
    return invalid(fmt::format("{}: records of layer {} stand in its place", what, records.layer));
  if (records.end != length)
    return invalid(fmt::format("{}: records up to position {} of a row of {}", what, records.end, length));
  if (Status s = check_layer_records(what, group, records); !s.ok()) return s;
  return check_row_positions(what, group, records.converted, records.sinks, records.begin, length);
}

// All layers of a group, which stand from `layers` on.
Status check_group(const char* name, const AttentionGroup& group, std::span<const LayerRecords> layers,
                   int length) {
  for (std::size_t slot = 0; slot < group.layers.size(); slot++) {
    if (slot >= layers.size())
      return invalid(fmt::format("{}: no records of layer {}", name, group.layers[slot]));
    if (Status s = check_layer(name, group, layers[slot], group.layers[slot], length); !s.ok()) return s;
    if (layers[slot].begin != layers[0].begin || layers[slot].converted != layers[0].converted) {
      return invalid(fmt::format("{}: layers {} and {} of one group hold different positions or codecs", name,
                                 layers[0].layer, layers[slot].layer));
    }
  }
  return Status();
}

}  // namespace

Status check_signature(const char* name, const std::string& theirs, const std::string& ours) {
  if (theirs == ours) return Status();
  return Status(StatusCode::kFailedPrecondition,
                fmt::format("{}: the row's signature is\n  {}\nthis store's\n  {}", name,
                            theirs.empty() ? "(missing)" : theirs, ours));
}

Status check_row_records(const char* name, const StatePlan& plan, const RowRecords& records) {
  if (Status s = check_signature(name, records.signature, plan.signature()); !s.ok()) return s;
  std::size_t at = 0;
  for (int g = 0; g < plan.group_count(); g++) {
    if (Status s = check_group(name, plan.group(g), std::span(records.layers).subspan(at), records.length);
        !s.ok()) {
      return s;
    }
    at += plan.group(g).layers.size();
  }
  std::size_t state = 0;
  for (int g = 0; g < plan.recurrent_count(); g++) {
    const RecurrentShape& shape = plan.recurrent(g).shape;
    for (const int layer : plan.recurrent(g).layers) {
      const RecurrentRecords* its = state < records.recurrent.size() ? &records.recurrent[state] : nullptr;
      if (its == nullptr || its->layer != layer || its->state.size() != shape.delta.state_floats() ||
          its->tail.size() != shape.conv.tail_floats()) {
        return invalid(fmt::format("{}: recurrent layer {}: no state of {} + {} numbers in its place", name,
                                   layer, shape.delta.state_floats(), shape.conv.tail_floats()));
      }
      state++;
    }
  }
  if (at != records.layers.size() || state != records.recurrent.size()) {
    return invalid(fmt::format("{}: {} layers and {} recurrent ones, the plan has {} and {}", name,
                               records.layers.size(), records.recurrent.size(), at, state));
  }
  return Status();
}

}  // namespace windrow
