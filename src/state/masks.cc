#include "windrow/masks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <new>

#include "base/checked.h"
#include "base/out_of_memory.h"
#include "state/read_columns.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

// Nothing seen yet.
Result<MaskArray> hidden_mask(std::size_t batch, std::int64_t queries, std::int64_t keys) {
  MaskArray mask;
  const auto limit = std::int64_t{std::numeric_limits<int>::max()};
  const auto size =
      batch <= static_cast<std::size_t>(limit) && queries <= limit && keys <= limit
          ? checked_product({batch, static_cast<std::size_t>(queries), static_cast<std::size_t>(keys)})
          : std::nullopt;
  if (!size || *size > mask.seen.max_size()) {
    return invalid(fmt::format("mask: {} rows x {} queries x {} keys are too many", batch, queries, keys));
  }
  mask.batch = static_cast<int>(batch);
  mask.queries = static_cast<int>(queries);
  mask.keys = static_cast<int>(keys);
  mask.seen.resize(*size);
  return mask;
}

std::uint8_t* line_of(MaskArray& mask, std::size_t b, std::int64_t query) {
  return mask.seen.data() + (b * static_cast<std::size_t>(mask.queries) + static_cast<std::size_t>(query)) *
                                static_cast<std::size_t>(mask.keys);
}

Status check_window(const MaskWindow& row, std::size_t index) {
  if (row.offset >= 0 && row.length >= 0 && row.window >= 1 && row.sinks >= 0 && row.begin >= 0 &&
      row.left_padding >= 0 && row.right_padding >= 0 && row.begin <= std::int64_t{row.offset} + row.length) {
    return Status();
  }
  return invalid(fmt::format(
      "mask: row {}: offset {}, length {}, window {}, {} sinks, keys from {} on, padding {} left, {} right",
      index, row.offset, row.length, row.window, row.sinks, row.begin, row.left_padding, row.right_padding));
}

std::int64_t sinks_of(const MaskWindow& row) { return std::min(row.sinks, row.begin); }
std::int64_t columns_of(const MaskWindow& row) {
  return sinks_of(row) + std::int64_t{row.offset} + row.length - row.begin;
}

// `before`: columns to the left of the row's first key.
void fill_window(const MaskWindow& row, std::size_t b, std::int64_t before, MaskArray& mask) {
  const std::int64_t sinks = sinks_of(row);
  for (std::int64_t i = 0; i < row.length; i++) {
    std::uint8_t* line = line_of(mask, b, i) + before;
    const std::int64_t p = std::int64_t{row.offset} + i;
    const auto sees = [&](std::int64_t j) { return j <= p && (j > p - row.window || j < row.sinks); };
    for (std::int64_t j = 0; j < sinks; j++) line[j] = sees(j) ? 1 : 0;
    for (std::int64_t j = row.begin; j <= p; j++) line[sinks + j - row.begin] = sees(j) ? 1 : 0;
  }
}

}  // namespace

Result<MaskArray> window_mask(const MaskWindow& row) { return window_masks(std::span(&row, 1)); }

Result<MaskArray> window_masks(std::span<const MaskWindow> rows) try {
  std::int64_t queries = 0, keys = 0;
  for (std::size_t b = 0; b < rows.size(); b++) {
    if (Status s = check_window(rows[b], b); !s.ok()) return s;
    queries = std::max(queries, std::int64_t{rows[b].length} + rows[b].right_padding);
    keys = std::max(keys, rows[b].left_padding + columns_of(rows[b]));
  }
  Result<MaskArray> mask = hidden_mask(rows.size(), queries, keys);
  if (!mask.ok()) return mask;
  for (std::size_t b = 0; b < rows.size(); b++) fill_window(rows[b], b, keys - columns_of(rows[b]), *mask);
  return mask;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<MaskArray> read_masks(const KvRead& read, std::span<const int> rows) try {
  std::int64_t queries = 0, keys = 0;
  for (const int r : rows) {
    if (r < 0 || static_cast<std::size_t>(r) >= read.rows.size())
      return invalid(fmt::format("mask: row {} of a read of {}", r, read.rows.size()));
    const auto row = static_cast<std::size_t>(r);
    queries = std::max<std::int64_t>(queries, read.row_offsets[row + 1] - read.row_offsets[row]);
    keys = std::max<std::int64_t>(keys, read_columns(read, row).count());
  }
  Result<MaskArray> mask = hidden_mask(rows.size(), queries, keys);
  if (!mask.ok()) return mask;
  for (std::size_t b = 0; b < rows.size(); b++) {
    const auto row = static_cast<std::size_t>(rows[b]);
    const ReadColumns columns = read_columns(read, row);
    for (std::int32_t t = read.row_offsets[row]; t < read.row_offsets[row + 1]; t++) {
      std::uint8_t* line = line_of(*mask, b, t - read.row_offsets[row]) + (keys - columns.count());
      const std::int32_t begin = read.begins[static_cast<std::size_t>(t)];
      for (std::int32_t p = 0; p < std::min(read.sinks, begin); p++) line[columns.column_of(p)] = 1;
      for (std::int32_t p = begin; p < read.ends[static_cast<std::size_t>(t)]; p++)
        line[columns.column_of(read.slot_of(row, t, p))] = 1;
    }
  }
  return mask;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<std::vector<float>> additive_mask(const MaskArray& mask, float hidden) try {
  std::vector<float> out(mask.seen.size());
  std::ranges::transform(mask.seen, out.begin(),
                         [&](std::uint8_t seen) { return seen != 0 ? 0.0f : hidden; });
  return out;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
