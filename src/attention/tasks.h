// How a call is cut into tasks: (row, kv head, up to kMaxQueries queries of it), a task into segments of
// positions and those into blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "attention/kernel.h"
#include "attention/visible.h"
#include "windrow/kv_read.h"

namespace windrow::internal {

// Tokens [token_begin, token_end) of one row, q heads [head_begin, head_end) of one kv head. Neither begins
// nor ends of its tokens decrease. Each sees itself, so what they see together has no gap but behind sinks.
struct Task {
  int row = 0;
  bool tree = false;
  // Tiles of positions below lie in pages as kernels read them; those from here on, a multiple of kTile,
  // are gathered: pages are smaller than a tile, or slots of a tree are not positions.
  int paged_end = std::numeric_limits<int>::max();
  int token_begin = 0, token_end = 0;
  int kv_head = 0;
  int head_begin = 0, head_end = 0;

  int tokens() const { return token_end - token_begin; }
  int heads() const { return head_end - head_begin; }
};

// Positions of the segment that `position` lies in. Segments are gathered from nothing each and then folded
// together in ascending order, so that several threads can share a task and the bits don't tell. Their
// bounds depend on the position and the group's window alone; finer ones balance better, coarser ones fold
// less: at most 16 for a window, and 12 more whenever a full context grows by a factor of 4. All are
// multiples of kBlock, and of the shorter ones before them.
inline constexpr int kSegment = 256;
inline int segment_tokens(int position, int window) {
  std::int64_t tokens = kSegment;
  if (window != kFullWindow) {
    while (16 * tokens < window) tokens *= 2;
  } else {
    while (16 * tokens <= position) tokens *= 4;
  }
  return static_cast<int>(tokens);
}

// The softmax blocks that a task visits, numbered from 0: of the sinks that stand apart, then of the rest.
// Ranges are relative to a block's origin.
class BlockWalk {
 public:
  BlockWalk(const KvRead& read, const Task& task)
      : read_(read),
        block_(block_tokens(read.head_dim)),
        token_begin_(task.token_begin),
        sinks_(sinks_of(read, task.token_end - 1)),  // of the last token: it has them if any does
        window_{window_of(read, task.token_begin).begin, window_of(read, task.token_end - 1).end},
        sink_blocks_(sinks_.empty() ? 0 : (sinks_.end - 1) / block_ + 1),
        blocks_(sink_blocks_ + (window_.end - 1) / block_ - window_.begin / block_ + 1) {}

  int blocks() const { return blocks_; }
  // The first block behind the segment of block b. Sinks that stand apart are a segment.
  int segment_end(int b) const {
    if (b < sink_blocks_) return sink_blocks_;
    const int position = origin(b), tokens = segment_tokens(position, read_.window);
    return std::min(blocks_, b + (tokens - position % tokens) / block_);
  }
  // Position of the block's first lane.
  int origin(int b) const {
    return (b < sink_blocks_ ? b : b - sink_blocks_ + window_.begin / block_) * block_;
  }
  // What some token sees of block b; what token i sees.
  Range any(int b) const { return relative(b < sink_blocks_ ? sinks_ : window_, b); }
  Range of_token(int b, int i) const {
    const int token = token_begin_ + i;
    return relative(b < sink_blocks_ ? sinks_of(read_, token) : window_of(read_, token), b);
  }

  // Tiles of the task's positions; of blocks [begin, end) of one segment.
  int tiles() const {
    const int sink_tiles = sinks_.empty() ? 0 : (sinks_.end - 1) / kTile + 1;
    return sink_tiles + (window_.end - 1) / kTile - window_.begin / kTile + 1;
  }
  int tiles(int begin, int end) const {
    return (origin(end - 1) + any(end - 1).end - 1) / kTile - (origin(begin) + any(begin).begin) / kTile + 1;
  }

 private:
  Range relative(Range positions, int b) const {
    return Range{positions.begin - origin(b), positions.end - origin(b)}.cut({0, block_});
  }

  const KvRead& read_;
  int block_;  // positions
  int token_begin_;
  Range sinks_, window_;
  int sink_blocks_, blocks_;
};

// All tasks of a read in a fixed order: rows, kv heads, heads, tokens, so that neighbours share K and V.
// An iterator, not a list: nothing is allocated.
class TaskWalk {
 public:
  TaskWalk(const KvRead& read, int heads_per_kv)
      : read_(read),
        heads_per_kv_(heads_per_kv),
        heads_(std::min(heads_per_kv, kMaxQueries)),
        tokens_(std::max(1, kMaxQueries / heads_)) {
    start_row(0);
  }

  bool done() const { return sz(task_.row) >= read_.rows.size(); }
  const Task& task() const { return task_; }

  void next() {
    if (task_.token_end < row_end()) return set_tokens(task_.token_end);
    set_tokens(read_.row_offsets[sz(task_.row)]);
    if (task_.head_end < (task_.kv_head + 1) * heads_per_kv_) return set_heads(task_.head_end);
    if (task_.kv_head + 1 < read_.kv_heads) {
      task_.kv_head++;
      return set_heads(task_.kv_head * heads_per_kv_);
    }
    start_row(task_.row + 1);
  }

 private:
  int row_end() const { return read_.row_offsets[sz(task_.row) + 1]; }
  void set_tokens(int begin) {
    task_.token_begin = begin;
    task_.token_end = begin + 1;
    const int last = std::min(begin + tokens_, row_end());
    while (task_.token_end < last && follows(task_.token_end)) task_.token_end++;
  }
  // Whether a token may stand in a task with the one before it.
  bool follows(int token) const {
    return read_.begins[sz(token)] >= read_.begins[sz(token - 1)] &&
           read_.ends[sz(token)] >= read_.ends[sz(token - 1)];
  }
  void set_heads(int begin) {
    task_.head_begin = begin;
    task_.head_end = std::min(begin + heads_, (task_.kv_head + 1) * heads_per_kv_);
  }
  void start_row(int row) {
    while (sz(row) < read_.rows.size() && read_.row_offsets[sz(row)] == read_.row_offsets[sz(row) + 1]) row++;
    task_ = Task{};
    task_.row = row;
    if (done()) return;
    task_.tree = read_.is_tree(sz(row));
    if (task_.tree) task_.paged_end = read_.rows[sz(row)].length / kTile * kTile;
    if (read_.page_tokens < kTile) task_.paged_end = 0;
    set_tokens(read_.row_offsets[sz(row)]);
    set_heads(0);
  }

  const KvRead& read_;
  int heads_per_kv_;
  int heads_;   // of a task, at most
  int tokens_;  // of a task, at most
  Task task_;
};

// Work of tiles of a task in some unit: for each query, and once for unpacking them.
inline std::int64_t cost_of(const Task& task, int tiles) {
  return std::int64_t{tiles} * (task.tokens() * task.heads() + 1);
}

}  // namespace windrow::internal
