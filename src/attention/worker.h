// Runs tasks: block by block, scores, softmax and mix (see kernel.h for the order).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "attention/call.h"
#include "attention/gather.h"
#include "attention/kernel.h"
#include "attention/tasks.h"

namespace windrow::internal {

// What a thread runs at once: a task, or segments of it.
struct Piece {
  Task task;
  int begin = 0, end = 0;   // blocks
  float* states = nullptr;  // where those of its segments go; null: a whole task
};

class Worker {
 public:
  explicit Worker(const Call& call) : call_(call), read_(call.read) {}
  bool ready() { return scratch_.take(call_); }

  // A whole task. `after`: what this thread runs next, or null; its first keys are prefetched.
  void run(const Task& task, const Piece* after) {
    const BlockWalk walk(read_, task);
    start(task);
    find_first(walk, 0);
    for (int b = 0, end; b < walk.blocks(); b = end) {
      end = walk.segment_end(b);
      run_segment(walk, b, end, scratch_.states[b > 0], after);
      if (b > 0) merge(scratch_.states[0], scratch_.states[1]);
    }
    finish(scratch_.states[0]);
  }

  // Segments of a task, blocks [begin, end): the state of each goes to `states` and on, of Call::state_shape.
  void run_part(const Task& task, int begin, int end, float* states, const Piece* after) {
    const BlockWalk walk(read_, task);
    start(task);
    find_first(walk, begin);
    for (int b = begin, next; b < end; b = next, states += scratch_.shape.floats()) {
      next = walk.segment_end(b);
      run_segment(walk, b, next, states, after);
    }
  }

  // The task whose `segments` parts are done.
  void join(const Task& task, int segments, float* states) {
    set_task(task);
    for (int i = 1; i < segments; i++) merge(states, states + sz(i) * scratch_.shape.floats());
    finish(states);
  }

 private:
  std::size_t query_index(int i) const {
    const int token = task_->token_begin + i / task_->heads(), head = task_->head_begin + i % task_->heads();
    return sz(token) * sz(call_.params.q_heads) + sz(head);
  }

  void set_task(const Task& task) {
    task_ = &task;
    stored_ = &call_.stored(task.row);
    queries_ = task.tokens() * task.heads();
  }

  void start(const Task& task) {
    set_task(task);
    const float* q[kMaxQueries];
    for (int i = 0; i < queries_; i++) q[i] = call_.q.data() + query_index(i) * sz(read_.head_dim);
    call_.kernels.pack_queries(q, queries_, read_.head_dim, stored_->keys.group, stored_->key_fold,
                               scratch_.q, scratch_.q_sums);
  }

  void find_first(const BlockWalk& walk, int b) {
    here_->clear();
    find_tiles(call_, *task_, walk, b, *here_);
  }

  // Blocks [begin, end), from nothing. *here_: the tiles of the first of them, then of the block behind them.
  void run_segment(const BlockWalk& walk, int begin, int end, float* states, const Piece* after) {
    states_ = states;
    for (int i = 0; i < queries_; i++) {
      const QueryState state = query(i);
      call_.kernels.begin_softmax(*state.softmax);
      std::fill_n(state.out, scratch_.shape.out_row(), 0.0f);
      std::fill_n(state.mix_bias, scratch_.shape.bias_row, 0.0f);
    }
    for (int b = begin; b < end; b++) {
      BlockTiles &here = *here_, &next = *next_;
      next.clear();
      if (b + 1 < walk.blocks()) {
        find_tiles(call_, *task_, walk, b + 1, next);
      } else if (after != nullptr) {
        find_tiles(call_, after->task, BlockWalk(read_, after->task), after->begin, next);
      }
      const Range tokens{0, task_->tokens()};
      if (walk.origin(b) + walk.any(b).end <= task_->paged_end) {
        run_block(walk, b, tokens, here, next);
      } else if (!task_->tree) {
        gather_tiles(call_, *task_, walk, b, 0, scratch_.gathered, here);
        run_block(walk, b, tokens, here, next);
      } else {
        // Each node has a path of its own from here on.
        for (int i = tokens.begin; i < tokens.end; i++) {
          if (walk.of_token(b, i).empty()) continue;
          gather_tiles(call_, *task_, walk, b, i, scratch_.gathered, here);
          run_block(walk, b, {i, i + 1}, here, next);
        }
      }
      std::swap(here_, next_);
    }
  }

  QueryState query(int i) const { return scratch_.shape.query(states_, i); }

  void merge(float* before, float* after) {
    const StateShape& shape = scratch_.shape;
    for (int i = 0; i < queries_; i++) {
      const QueryState first = shape.query(before, i), second = shape.query(after, i);
      if (!second.softmax->seen) continue;
      if (first.softmax->seen) {
        call_.kernels.merge(first, second, read_.value_dim, static_cast<int>(shape.bias_row));
      } else {
        *first.softmax = *second.softmax;
        std::copy_n(second.out, shape.out_row(), first.out);
        std::copy_n(second.mix_bias, shape.bias_row, first.mix_bias);
      }
    }
  }

  // One block for some of the task's tokens.
  void run_block(const BlockWalk& walk, int b, Range tokens, const BlockTiles& here, const BlockTiles& next) {
    // Those that see something of it: a run of them, since neither end of a range moves down.
    while (walk.of_token(b, tokens.begin).empty()) tokens.begin++;
    while (walk.of_token(b, tokens.end - 1).empty()) tokens.end--;
    const Range all{walk.of_token(b, tokens.begin).begin, walk.of_token(b, tokens.end - 1).end};
    const Range tiles{all.begin / kTile, (all.end + kTile - 1) / kTile};
    score(tokens, tiles, here);
    for (int i = tokens.begin; i < tokens.end; i++) {
      const Range visible = walk.of_token(b, i);
      for (int k = 0; k < task_->heads(); k++) weigh(i * task_->heads() + k, visible, tiles, here);
    }
    // What all tokens see is mixed for all of them at once, the edges for each token by itself: so a query
    // meets its positions in ascending order and no others.
    Range core = all;
    for (int i = tokens.begin; i < tokens.end; i++) core = core.cut(walk.of_token(b, i));
    if (core.empty()) core = Range{all.end, all.end};
    for (int i = tokens.begin; i < tokens.end; i++) {
      mix(walk.of_token(b, i).cut({0, core.begin}), {i, i + 1}, here, none_);
    }
    mix(core, tokens, here, next.keys);
    for (int i = tokens.begin; i < tokens.end; i++) {
      mix(walk.of_token(b, i).cut({core.end, kBlock}), {i, i + 1}, here, none_);
    }
  }

  void score(Range tokens, Range tiles, const BlockTiles& here) {
    KeyPass pass;
    pass.tiles = &here.keys;
    pass.tile_begin = tiles.begin;
    pass.tile_end = tiles.end;
    pass.head_dim = read_.head_dim;
    pass.group = stored_->keys.group;
    pass.param_type = stored_->keys.layout.codec.input();
    pass.queries = queries_;
    pass.query_begin = tokens.begin * task_->heads();
    pass.query_end = tokens.end * task_->heads();
    pass.q = scratch_.q;
    pass.q_sums = scratch_.q_sums;
    pass.scores = scratch_.scores;
    pass.prefetch = &here.values;
    stored_->score(pass);
  }

  // Softmax of one query's visible scores, then the params of the values folded into the weights.
  void weigh(int i, Range visible, Range tiles, const BlockTiles& here) {
    const bool affine = stored_->values.layout.codec.is_affine();
    float* const scores = scratch_.scores + sz(i) * kScoreStride;
    SoftmaxPass pass;
    pass.scores = scores + tiles.begin * kTile;
    pass.begin = visible.begin - tiles.begin * kTile;
    pass.end = visible.end - tiles.begin * kTile;
    pass.tiles = tiles.end - tiles.begin;
    pass.scale = call_.params.scale;
    pass.softcap = call_.params.softcap;
    const QueryState state = query(i);
    state.softmax->seen = true;
    const float factor = call_.kernels.softmax(*state.softmax, pass);
    if (factor != 1.0f) {
      call_.kernels.rescale(state.out, read_.value_dim, factor);
      if (affine) call_.kernels.rescale(state.mix_bias, static_cast<int>(scratch_.shape.bias_row), factor);
    }
    if (!affine) return;
    WeighPass fold;
    fold.tiles = &here.values;
    fold.param_type = stored_->values.layout.codec.input();
    fold.begin = visible.begin;
    fold.end = visible.end;
    fold.groups = stored_->values.groups;
    fold.probability = scores;
    fold.weights = scratch_.weights + sz(i) * scratch_.weight_row;
    fold.mix_bias = state.mix_bias;
    call_.kernels.weigh(fold);
  }

  void mix(Range positions, Range tokens, const BlockTiles& here, const Tiles& prefetch) {
    if (positions.empty()) return;
    const SideLayout& side = stored_->values.layout;
    const bool affine = side.codec.is_affine();
    const int first = tokens.begin * task_->heads();
    ValuePass pass;
    pass.tiles = &here.values;
    pass.stride = sz(side.words) * 4;
    pass.begin = positions.begin;
    pass.end = positions.end;
    pass.dims = read_.value_dim;
    pass.group = stored_->values.group;
    pass.queries = (tokens.end - tokens.begin) * task_->heads();
    pass.weight_rows = affine ? scratch_.weight_row : kScoreStride;
    pass.weights = (affine ? scratch_.weights : scratch_.scores) + sz(first) * pass.weight_rows;
    pass.out = query(first).out;
    pass.out_rows = scratch_.shape.out_row();
    pass.prefetch = &prefetch;
    stored_->mix(pass);
  }

  void finish(float* states) {
    states_ = states;
    for (int i = 0; i < queries_; i++) {
      const QueryState state = query(i);
      double sum = static_cast<double>(call_.kernels.softmax_sum(*state.softmax));
      if (!call_.params.sinks.empty()) {
        const float sink = call_.params.sinks[sz(task_->head_begin + i % task_->heads())];
        // In f64: a sink far above all scores gives tiny weights, not an overflow.
        sum += std::exp(static_cast<double>(sink) - static_cast<double>(state.softmax->top));
      }
      call_.kernels.finish(state.out, read_.value_dim, stored_->values.group, stored_->value_fold,
                           state.mix_bias, static_cast<float>(1.0 / sum),
                           call_.out.data() + query_index(i) * sz(read_.value_dim));
    }
  }

  const Call& call_;
  const KvRead& read_;
  Scratch scratch_;
  const Task* task_ = nullptr;
  const Stored* stored_ = nullptr;  // of the task's row
  int queries_ = 0;
  float* states_ = nullptr;  // of the segment that runs
  BlockTiles tiles_[2];
  BlockTiles *here_ = &tiles_[0], *next_ = &tiles_[1];
  Tiles none_;
};

}  // namespace windrow::internal
