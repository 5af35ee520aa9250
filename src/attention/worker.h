// Runs tasks: block by block, scores, softmax and mix (see kernel.h for the order).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "attention/call.h"
#include "attention/gather.h"
#include "attention/kernel.h"
#include "attention/tasks.h"

namespace windrow::internal {

class Worker {
 public:
  explicit Worker(const Call& call) : call_(call), read_(call.read) {}
  bool ready() { return scratch_.take(call_); }

  // `after`: the task that this thread runs next, or null; its first keys are prefetched.
  void run(const Task& task, const Task* after) {
    task_ = &task;
    stored_ = &call_.stored(task.row);
    queries_ = task.tokens() * task.heads();
    const BlockWalk walk(read_, task);
    begin_queries();
    BlockTiles here = find_tiles(call_, task, walk, 0);
    for (int b = 0; b < walk.blocks(); b++) {
      BlockTiles next;
      if (b + 1 < walk.blocks()) {
        next = find_tiles(call_, task, walk, b + 1);
      } else if (after != nullptr) {
        next = find_tiles(call_, *after, BlockWalk(read_, *after), 0);
      }
      if (walk.origin(b) + walk.any(b).end > task.paged_end) {
        gather_tiles(call_, task, walk, b, scratch_.gathered, here);
      }
      run_block(walk, b, here, next);
      here = next;
    }
    finish_queries();
  }

 private:
  std::size_t query_index(int i) const {
    const int token = task_->token_begin + i / task_->heads(), head = task_->head_begin + i % task_->heads();
    return sz(token) * sz(call_.params.q_heads) + sz(head);
  }

  void begin_queries() {
    const std::size_t key_dim = sz(read_.head_dim), value_dim = sz(read_.value_dim);
    for (int i = 0; i < queries_; i++) {
      call_.kernels.fold_query(call_.q.data() + query_index(i) * key_dim, read_.head_dim, stored_->keys.group,
                               stored_->key_fold, scratch_.q + sz(i) * key_dim,
                               scratch_.q_sums + sz(i * stored_->keys.groups));
      call_.kernels.begin_softmax(scratch_.states[i]);
    }
    std::fill_n(scratch_.sums, sz(queries_) * value_dim, 0.0f);
    std::fill_n(scratch_.mix_bias, sz(queries_) * scratch_.mix_bias_row, 0.0f);
  }

  void run_block(const BlockWalk& walk, int b, const BlockTiles& here, const BlockTiles& next) {
    const Range all = walk.any(b), tiles{all.begin / kTile, (all.end + kTile - 1) / kTile};
    // Tokens that see something of the block: a run of them, since neither end of a range moves down.
    Range tokens{0, task_->tokens()};
    while (walk.of_token(b, tokens.begin).empty()) tokens.begin++;
    while (walk.of_token(b, tokens.end - 1).empty()) tokens.end--;
    score(tokens, tiles, here);
    if (stored_->values.layout.codec.is_affine()) unpack_value_params(tiles, here);
    for (int i = tokens.begin; i < tokens.end; i++) {
      const Range visible = walk.of_token(b, i);
      for (int k = 0; k < task_->heads(); k++) weigh(i * task_->heads() + k, visible, tiles);
    }
    // What all tokens see is mixed for all of them at once, the edges for each token by itself: so a query
    // meets its positions in ascending order and no others.
    Range core = all;
    for (int i = tokens.begin; i < tokens.end; i++) core = core.cut(walk.of_token(b, i));
    if (core.empty()) core = Range{all.end, all.end};
    const Tiles none;
    for (int i = tokens.begin; i < tokens.end; i++) {
      mix(walk.of_token(b, i).cut({0, core.begin}), {i, i + 1}, here, none);
    }
    mix(core, tokens, here, next.keys);
    for (int i = tokens.begin; i < tokens.end; i++) {
      mix(walk.of_token(b, i).cut({core.end, kBlock}), {i, i + 1}, here, none);
    }
  }

  void score(Range tokens, Range tiles, const BlockTiles& here) {
    const int first = tokens.begin * task_->heads();
    KeyPass pass;
    pass.tiles = &here.keys;
    pass.tile_begin = tiles.begin;
    pass.tile_end = tiles.end;
    pass.head_dim = read_.head_dim;
    pass.group = stored_->keys.group;
    pass.param_type = stored_->keys.layout.codec.input();
    pass.queries = (tokens.end - tokens.begin) * task_->heads();
    pass.q = scratch_.q + sz(first) * sz(read_.head_dim);
    pass.q_sums = scratch_.q_sums + sz(first * stored_->keys.groups);
    pass.scores = scratch_.scores + sz(first) * kScoreStride;
    pass.prefetch = &here.values;
    stored_->score(pass);
  }

  void unpack_value_params(Range tiles, const BlockTiles& here) {
    const int pairs = kTile * stored_->values.groups;
    for (int tile = tiles.begin; tile < tiles.end; tile++) {
      call_.kernels.unpack_params(reinterpret_cast<const std::uint32_t*>(here.values.params[tile]), pairs,
                                  stored_->values.layout.codec.input(), scratch_.scales + sz(tile * pairs),
                                  scratch_.biases + sz(tile * pairs));
    }
  }

  // Softmax of one query's visible scores, then the params of the values folded into the weights.
  void weigh(int i, Range visible, Range tiles) {
    const bool affine = stored_->values.layout.codec.is_affine();
    float* const scores = scratch_.scores + sz(i) * kScoreStride;
    SoftmaxPass pass;
    pass.scores = scores + tiles.begin * kTile;
    pass.begin = visible.begin - tiles.begin * kTile;
    pass.end = visible.end - tiles.begin * kTile;
    pass.tiles = tiles.end - tiles.begin;
    pass.scale = call_.params.scale;
    pass.softcap = call_.params.softcap;
    const float factor = call_.kernels.softmax(scratch_.states[i], pass);
    float* const mix_bias = scratch_.mix_bias + sz(i) * scratch_.mix_bias_row;
    if (factor != 1.0f) {
      call_.kernels.rescale(scratch_.sums + sz(i) * sz(read_.value_dim), read_.value_dim, factor);
      if (affine) call_.kernels.rescale(mix_bias, static_cast<int>(scratch_.mix_bias_row), factor);
    }
    if (!affine) return;
    call_.kernels.weigh(scores, visible.begin, visible.end, stored_->values.groups, scratch_.scales,
                        scratch_.biases, scratch_.weights + sz(i) * scratch_.weight_row, mix_bias);
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
    pass.groups = stored_->values.groups;
    pass.queries = (tokens.end - tokens.begin) * task_->heads();
    pass.weight_rows = affine ? scratch_.weight_row : kScoreStride;
    pass.weights = (affine ? scratch_.weights : scratch_.scores) + sz(first) * pass.weight_rows;
    pass.out = scratch_.sums + sz(first) * sz(read_.value_dim);
    pass.prefetch = &prefetch;
    stored_->mix(pass);
  }

  void finish_queries() {
    const std::size_t value_dim = sz(read_.value_dim);
    for (int i = 0; i < queries_; i++) {
      double sum = static_cast<double>(call_.kernels.softmax_sum(scratch_.states[i]));
      if (!call_.params.sinks.empty()) {
        const float sink = call_.params.sinks[sz(task_->head_begin + i % task_->heads())];
        // In f64: a sink far above all scores gives tiny weights, not an overflow.
        sum += std::exp(static_cast<double>(sink) - static_cast<double>(scratch_.states[i].top));
      }
      call_.kernels.finish(scratch_.sums + sz(i) * value_dim, read_.value_dim, stored_->values.group,
                           stored_->value_fold, scratch_.mix_bias + sz(i) * scratch_.mix_bias_row,
                           static_cast<float>(1.0 / sum), call_.out.data() + query_index(i) * value_dim);
    }
  }

  const Call& call_;
  const KvRead& read_;
  Scratch scratch_;
  const Task* task_ = nullptr;
  const Stored* stored_ = nullptr;  // of the task's row
  int queries_ = 0;
};

}  // namespace windrow::internal
