// The tiles of a block, in pages where kernels can read them there, gathered where not.
#pragma once

#include <algorithm>
#include <cstddef>

#include "attention/call.h"
#include "attention/kernel.h"
#include "attention/tasks.h"
#include "codec/block_layout.h"

namespace windrow::internal {

// Where the tiles of a block lie, keys and values.
struct BlockTiles {
  Tiles keys, values;

  void clear() { keys.end = keys.begin = values.end = values.begin = 0; }
  // Tiles of both layouts are contiguous: a tile's words follow each other, whatever their order inside.
  void set(int tile, const SideLayout& k, const SideLayout& v, const std::byte* block, int slot) {
    const std::size_t at = sz(slot) * 4;
    keys.codes[tile] = block + k.codes_offset + at * sz(k.words);
    keys.params[tile] = block + k.params_offset + at * sz(k.params);
    values.codes[tile] = block + v.codes_offset + at * sz(v.words);
    values.params[tile] = block + v.params_offset + at * sz(v.params);
  }
};

// The tiles of a task's block b that lie in pages, into `found`, which is clear.
inline void find_tiles(const Call& call, const Task& task, const BlockWalk& walk, int b, BlockTiles& found) {
  const KvRead& read = call.read;
  const KvRead::Row& row = read.rows[sz(task.row)];
  const SideLayout& keys = call.stored(task.row).keys.layout;
  const SideLayout& values = call.stored(task.row).values.layout;
  const int origin = walk.origin(b);
  const Range paged = walk.any(b).cut({0, task.paged_end - origin});
  int tile = paged.begin / kTile;
  found.keys.begin = found.values.begin = tile;
  while (tile * kTile < paged.end) {
    const int position = origin + tile * kTile;
    const std::byte* block = read.block(row, position / read.page_tokens, task.kv_head);
    for (int slot = position % read.page_tokens; slot < read.page_tokens && tile * kTile < paged.end;
         slot += kTile, tile++) {
      found.set(tile, keys, values, block, slot);
    }
  }
  found.keys.end = found.values.end = tile;
  found.keys.code_lines = keys.words;
  found.keys.param_lines = keys.params;
  found.values.code_lines = values.words;
  found.values.param_lines = values.params;
}

// Copies the record at `slot` to where its position belongs in a gathered block.
inline void gather_slot(const KvRead& read, const Task& task, int slot, const Stored& stored, int to,
                        std::byte* gathered) {
  const std::byte* block = read.block(read.rows[sz(task.row)], slot / read.page_tokens, task.kv_head);
  const int from = slot % read.page_tokens;
  copy_record(stored.keys.layout, block, from, stored.gathered.keys, gathered, to);
  copy_record(stored.values.layout, block, from, stored.gathered.values, gathered, to);
}

// Fills in the other tiles of the block: the records that the task sees, of a tree those that its token
// `node` sees, copied to `gathered`. What a lane that no token sees holds does not matter.
inline void gather_tiles(const Call& call, const Task& task, const BlockWalk& walk, int b, int node,
                         std::byte* gathered, BlockTiles& tiles) {
  const KvRead& read = call.read;
  const Stored& stored = call.stored(task.row);
  const int origin = walk.origin(b);
  const Range any = task.tree ? walk.of_token(b, node) : walk.any(b);
  const Range lanes = any.cut({task.paged_end - origin, kBlock});
  int by_position = lanes.end;  // lanes from here on hold slots of a tree
  if (task.tree) {
    const int first = read.row_offsets[sz(task.row)], length = read.rows[sz(task.row)].length;
    by_position = std::clamp(length - origin, lanes.begin, lanes.end);
    // From the token up through its ancestors, the first of which has position `length`.
    const int last = std::max(length - origin, lanes.begin);
    int i = task.token_begin + node - first;
    for (int lane = read.positions[sz(task.token_begin + node)] - origin; lane >= last; lane--) {
      if (lane < lanes.end) gather_slot(read, task, length + i, stored, lane, gathered);
      i = read.parents[sz(first + i)];
    }
  }
  for (int lane = lanes.begin; lane < by_position; lane++) {
    gather_slot(read, task, origin + lane, stored, lane, gathered);
  }
  for (int tile = lanes.begin / kTile; tile * kTile < lanes.end; tile++) {
    tiles.set(tile, stored.gathered.keys, stored.gathered.values, gathered, tile * kTile);
  }
}

}  // namespace windrow::internal
