// How a call is cut into tasks: (row, kv head, up to kMaxQueries queries of it).
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/kernel.h"
#include "attention/validate.h"
#include "windrow/store.h"

namespace windrow::internal {

// Tokens [token_begin, token_end) of one row, q heads [head_begin, head_end) of one kv head.
struct Task {
  int row = 0;
  int token_begin = 0, token_end = 0;
  int kv_head = 0;
  int head_begin = 0, head_end = 0;

  int tokens() const { return token_end - token_begin; }
  int heads() const { return head_end - head_begin; }
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

  bool done() const { return task_.row >= read_.rows(); }
  const Task& task() const { return task_; }

  void next() {
    const auto row = static_cast<std::size_t>(task_.row);
    if (task_.token_end < read_.row_offsets[row + 1]) return set_tokens(task_.token_end);
    set_tokens(read_.row_offsets[row]);
    if (task_.head_end < (task_.kv_head + 1) * heads_per_kv_) return set_heads(task_.head_end);
    if (task_.kv_head + 1 < read_.kv_heads) {
      task_.kv_head++;
      return set_heads(task_.kv_head * heads_per_kv_);
    }
    start_row(task_.row + 1);
  }

  // Work of the current task in some unit: tiles, for each query and once for unpacking them.
  std::int64_t cost() const {
    const int first = read_.positions[static_cast<std::size_t>(task_.token_begin)];
    const int last = read_.positions[static_cast<std::size_t>(task_.token_end - 1)];
    const int tiles = last / kTile - window_begin(first, read_.window) / kTile + 1;
    return std::int64_t{tiles} * (task_.tokens() * task_.heads() + 1);
  }

 private:
  void set_tokens(int begin) {
    task_.token_begin = begin;
    task_.token_end = std::min(begin + tokens_, read_.row_offsets[static_cast<std::size_t>(task_.row) + 1]);
  }
  void set_heads(int begin) {
    task_.head_begin = begin;
    task_.head_end = std::min(begin + heads_, (task_.kv_head + 1) * heads_per_kv_);
  }
  void start_row(int row) {
    while (row < read_.rows() && read_.row_offsets[static_cast<std::size_t>(row)] ==
                                     read_.row_offsets[static_cast<std::size_t>(row) + 1]) {
      row++;
    }
    task_ = Task{};
    task_.row = row;
    if (done()) return;
    set_tokens(read_.row_offsets[static_cast<std::size_t>(row)]);
    set_heads(0);
  }

  const KvRead& read_;
  int heads_per_kv_;
  int heads_;   // of a task, at most
  int tokens_;  // of a task, at most
  Task task_;
};

// Which of `shares` equal parts of the work a task belongs to: the one that its middle lies in.
// Grows with `before`, so every share is a contiguous run of tasks.
inline int share_of(std::int64_t before, std::int64_t cost, std::int64_t total, int shares) {
  return static_cast<int>((2 * before + cost) * shares / (2 * total));
}

}  // namespace windrow::internal
