// Visibility as arrays, for engines whose attention takes masks. Nothing inside the library needs them: a
// KvRead says the same as ranges.
//
// The rule (C20): the query at position p sees the key at position j iff
//   j <= p  and  (j > p - window  or  j < sinks).
//
// Key columns are ordered as LayerRecords order positions: [0, sinks) as far as they lie before `begin`,
// then [begin, end).
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "windrow/export.h"
#include "windrow/kv_read.h"
#include "windrow/status.h"

namespace windrow {

// [batch, queries, keys], 1 where the query sees the key, else 0.
struct MaskArray {
  int batch = 1;
  int queries = 0;
  int keys = 0;
  std::vector<std::uint8_t> seen;

  bool at(int b, int query, int key) const {
    return seen[(static_cast<std::size_t>(b) * static_cast<std::size_t>(queries) +
                 static_cast<std::size_t>(query)) *
                    static_cast<std::size_t>(keys) +
                static_cast<std::size_t>(key)] != 0;
  }
  friend bool operator==(const MaskArray&, const MaskArray&) = default;
};

// The queries of one row: positions offset .. offset + length - 1, over the keys that are held.
struct MaskWindow {
  int offset = 0;
  int length = 1;
  int window = kFullWindow;  // W >= 1
  int sinks = 0;
  // The lowest position that has a column, sinks aside; 0: all have.
  int begin = 0;
  int left_padding = 0;   // columns before the first key that nobody sees
  int right_padding = 0;  // queries after the last that see nothing
};

// [1, length + right_padding, left_padding + min(sinks, begin) + offset + length - begin].
// kInvalidArgument for negative numbers, a window below 1 and a begin beyond offset + length.
WINDROW_API Result<MaskArray> window_mask(const MaskWindow& row);
// One of each row, all of the longest's queries and the widest's keys: what a row lacks is added to its
// right_padding and its left_padding.
WINDROW_API Result<MaskArray> window_masks(std::span<const MaskWindow> rows);

// What the tokens of chosen rows of a read see: [rows, queries, keys] over the columns of
// mlx_window(read, rows) (mlx.h), trees, blocks and spans included. A row with fewer tokens than another
// has padding queries at its end; one with fewer columns, padding columns at its left.
// kInvalidArgument for a row that the read has not.
WINDROW_API Result<MaskArray> read_masks(const KvRead& read, std::span<const int> rows);

// [batch, queries, keys]: 0 where seen, `hidden` elsewhere, to be added to logits. A query that sees
// nothing (padding) gets `hidden` throughout; with -inf a softmax makes NaN of that, which is its right
// (C11), with a large finite number it makes no sense but no NaN either.
WINDROW_API Result<std::vector<float>> additive_mask(const MaskArray& mask,
                                                     float hidden = -std::numeric_limits<float>::infinity());

}  // namespace windrow
