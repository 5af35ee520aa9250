// What attention needs of one layer at one step: flat arrays at stable addresses, filled by begin.
//
// A read has rows; a row has tokens (queries) and positions (keys and values). Tokens are packed by row:
// token t belongs to the row r with row_offsets[r] <= t < row_offsets[r + 1]. Of its row a token sees the
// positions [0, min(sinks, begins[t])) and [begins[t], ends[t]): causal windows, blocks whose tokens all
// see each other, media spans and prefix-LM are all such ranges. They are computed once per step and
// group and are the same for all its layers (C3).
//
// Where a position lies: every row numbers its slots from 0. Slots below rows[r].length are committed
// positions; token i of the row has the slot length + i. Without a tree slot == position. In a token
// tree (`parents` says so) positions follow depth, slots the order of tokens, and a token sees, of the
// positions from length on, its own ancestors and itself: slot_of() walks there.
//
// Slot s lies in page page_of(row, s / page_tokens), at s % page_tokens inside it; the block of that page
// for kv head h starts at storage.base + page * page_bytes + layer_offset + h * block_bytes. Rows of one
// read may stand in two storages (C27, delayed precision).
//
// Lifetime: shares ownership of its pages; stays readable, with unchanged bytes, after the step ended and
// later steps ran, until it is destroyed. Any number of threads may read it, and destroy copies of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "windrow/plan.h"

namespace windrow {

struct BlockLayout;  // internal: where records lie inside a page

struct KvRead {
  // Where the pages of one codec lie.
  struct Storage {
    const BlockLayout* layout = nullptr;
    const std::byte* base = nullptr;
    std::size_t page_bytes = 0;
    std::size_t layer_offset = 0;
    std::size_t block_bytes = 0;
  };
  // Page numbers below the read's sink_pages stand first in `table`, those from table_first (>=
  // sink_pages) on behind them; numbers from fresh_first on stand in `fresh` instead.
  struct Row {
    std::int32_t length = 0;   // committed positions
    std::int32_t storage = 0;  // index into storages
    const std::int32_t* table = nullptr;
    std::int32_t table_first = 0;
    std::int32_t table_size = 0;
    const std::int32_t* fresh = nullptr;
    std::int32_t fresh_first = 0;
    std::int32_t fresh_size = 0;

    std::int32_t page_of(std::int32_t number, std::int32_t of_sinks) const noexcept {
      if (number >= fresh_first) return fresh[number - fresh_first];
      return table[number < of_sinks ? number : of_sinks + number - table_first];
    }
  };

  int layer = 0;
  int window = kFullWindow;  // for information: begins and ends are what counts
  int sinks = 0;             // positions 0 .. sinks - 1 are seen for ever
  int sink_pages = 0;        // pages that hold them
  int kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;
  int page_tokens = 0;

  std::span<const std::int32_t> row_offsets;  // [rows + 1], in tokens
  std::span<const std::int32_t> positions;    // [tokens], absolute
  std::span<const std::int32_t> begins;       // [tokens]
  std::span<const std::int32_t> ends;         // [tokens]
  std::span<const std::int32_t> parents;  // empty: no row is a tree. [tokens]: index inside its row, -1: none
  std::span<const Row> rows;
  Storage storages[2];
  std::shared_ptr<const void> lease;

  int tokens() const noexcept { return static_cast<int>(positions.size()); }

  // The physical page of page number `number` of a row.
  std::int32_t page_of(const Row& row, std::int32_t number) const noexcept {
    return row.page_of(number, sink_pages);
  }
  const std::byte* block(const Row& row, std::int32_t number, int head) const noexcept {
    const Storage& storage = storages[row.storage];
    return storage.base + static_cast<std::size_t>(page_of(row, number)) * storage.page_bytes +
           storage.layer_offset + static_cast<std::size_t>(head) * storage.block_bytes;
  }

  // Whether some token of the row does not follow the one before it.
  bool is_tree(std::size_t row) const noexcept {
    if (parents.empty()) return false;
    for (std::int32_t t = row_offsets[row]; t < row_offsets[row + 1]; t++) {
      if (parents[static_cast<std::size_t>(t)] != t - row_offsets[row] - 1) return true;
    }
    return false;
  }
  // The slot of `position` as token t of the row sees it; position <= positions[t] in a tree.
  std::int32_t slot_of(std::size_t row, std::int32_t t, std::int32_t position) const noexcept {
    const std::int32_t length = rows[row].length;
    if (parents.empty() || position < length) return position;
    const std::int32_t first = row_offsets[row];
    std::int32_t i = t - first;
    if (positions[static_cast<std::size_t>(t)] < position) return position;  // ahead of it: no tree
    for (std::int32_t p = positions[static_cast<std::size_t>(t)]; p > position; p--) {
      i = parents[static_cast<std::size_t>(first + i)];
    }
    return length + i;
  }
};

}  // namespace windrow
