// The slots of one row of a read as columns of an array: those that some token of the row sees.
#pragma once

#include <algorithm>
#include <cstdint>

#include "windrow/kv_read.h"

namespace windrow {

// Slots [0, sinks) and then [begin, end).
struct ReadColumns {
  std::int32_t sinks = 0;
  std::int32_t begin = 0;
  std::int32_t end = 0;

  std::int32_t count() const noexcept { return sinks + end - begin; }
  std::int32_t slot_at(std::int32_t column) const noexcept {
    return column < sinks ? column : begin + column - sinks;
  }
  std::int32_t column_of(std::int32_t slot) const noexcept {
    return slot < sinks ? slot : sinks + slot - begin;
  }
};

// None for a row without tokens.
inline ReadColumns read_columns(const KvRead& read, std::size_t row) noexcept {
  ReadColumns columns;
  const std::int32_t first = read.row_offsets[row], last = read.row_offsets[row + 1];
  if (first == last) return columns;
  columns.begin = read.begins[static_cast<std::size_t>(first)];
  for (std::int32_t t = first; t < last; t++) {
    columns.begin = std::min(columns.begin, read.begins[static_cast<std::size_t>(t)]);
    // A tree's positions end before its slots do.
    columns.end = std::max(
        {columns.end, read.ends[static_cast<std::size_t>(t)], read.rows[row].length + t - first + 1});
  }
  columns.sinks = std::min<std::int32_t>(read.sinks, columns.begin);
  if (columns.begin <= read.sinks) columns.begin = columns.sinks = 0;  // they touch
  return columns;
}

}  // namespace windrow
