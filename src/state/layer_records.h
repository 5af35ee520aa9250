// LayerRecords inside the library: what they must be, and where a position stands in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "windrow/plan.h"
#include "windrow/records.h"
#include "windrow/status.h"

namespace windrow {

inline int value_dim(const AttentionGroup& group) {
  return group.value_dim > 0 ? group.value_dim : group.head_dim;
}

// The codecs of a row's records.
inline const Codec& key_codec(const AttentionGroup& group, bool converted) {
  return converted ? group.keys : group.delayed->keys;
}
inline const Codec& value_codec(const AttentionGroup& group, bool converted) {
  return converted ? group.values : group.delayed->values;
}

// kOk when a row of `length` positions may hold those positions in the group: what its next query needs at
// least.
Status check_positions(const std::string& name, const AttentionGroup& group, bool converted, int sinks,
                       int begin, int length);

// The same, and not converted only where such a row can be.
Status check_row_positions(const std::string& name, const AttentionGroup& group, bool converted, int sinks,
                           int begin, int length);

// kOk when the records are those of a row of that group, of length records.end: the positions that its next
// query needs at least, in arrays of their exact sizes.
Status check_layer_records(const std::string& name, const AttentionGroup& group, const LayerRecords& records);

// kFailedPrecondition with both printed, unless they are equal (C26). `name` is what messages begin with.
Status check_signature(const char* name, const std::string& theirs, const std::string& ours);
// kOk when the records are those of a row of that plan; the length is checked against no limit.
Status check_row_records(const char* name, const StatePlan& plan, const RowRecords& records);

// The i-th position of the records.
inline std::int32_t position_of(const LayerRecords& records, int i) {
  return i < records.sinks ? i : records.begin + i - records.sinks;
}

}  // namespace windrow
