// The driver: for every task, block by block, scores, softmax and mix (see kernel.h for the order).
#include "attention/attend.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>

#include "attention/tasks.h"
#include "attention/validate.h"

namespace windrow::internal {
namespace {

constexpr std::size_t sz(int n) { return static_cast<std::size_t>(n); }

// Half-open range of positions, relative to a block.
struct Range {
  int begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  Range cut(Range other) const { return {std::max(begin, other.begin), std::min(end, other.end)}; }
};

// One side of the read with what the passes need of it.
struct Side {
  explicit Side(const SideLayout& l) : layout(l) {
    const Codec& codec = l.codec;
    group = codec.is_affine() ? codec.group() : l.head_dim;
    groups = l.head_dim / group;
  }
  const SideLayout& layout;
  int group = 0;  // dims that share params; plain: all
  int groups = 1;
};

// Constants of a call.
struct Call {
  Call(const Kernels& k, const KvRead& r, std::span<const float> query, const AttentionParams& p,
       std::span<float> o)
      : kernels(k), read(r), q(query), params(p), out(o), keys(r.layout->keys), values(r.layout->values) {
    const Codec& key_codec = keys.layout.codec;
    const Codec& value_codec = values.layout.codec;
    for (int e = 0; e < kFoldPeriod; e++) {
      key_fold[e] = key_codec.is_affine() ? exp2_of_minus(key_shift(key_codec.bits(), e)) : 1.0f;
      value_fold[e] = value_codec.is_affine() ? exp2_of_minus(value_shift(value_codec.bits(), e)) : 1.0f;
    }
    score = kernels.score[storage_kind(key_codec)];
    mix = kernels.mix[storage_kind(value_codec)];
  }

  const Kernels& kernels;
  const KvRead& read;
  std::span<const float> q;
  const AttentionParams& params;
  std::span<float> out;
  Side keys, values;
  void (*score)(const KeyPass&);
  void (*mix)(const ValuePass&);
  alignas(64) float key_fold[kFoldPeriod];
  alignas(64) float value_fold[kFoldPeriod];
};

// The working memory of a task, cut from one buffer. Every part has kPad floats of slack, since kernels
// work on whole vectors.
struct Scratch {
  static constexpr std::size_t kPad = 16;

  float* q = nullptr;         // [queries][head_dim] folded
  float* q_sums = nullptr;    // [queries][key groups]
  float* scores = nullptr;    // [queries + 1][kScoreStride]
  float* scales = nullptr;    // [kBlock][value groups]
  float* biases = nullptr;    // [kBlock][value groups]
  float* weights = nullptr;   // [queries][weight_row]
  float* mix_bias = nullptr;  // [queries][mix_bias_row]
  float* sums = nullptr;      // [queries][value_dim]
  std::size_t weight_row = 0, mix_bias_row = 0;
  SoftmaxState states[kMaxQueries];

  // The calling thread's buffer, cut for this call; false without memory.
  bool take(const Call& call) {
    const std::size_t key_dim = sz(call.read.head_dim), value_dim = sz(call.read.value_dim);
    const std::size_t key_groups = sz(call.keys.groups), groups = sz(call.values.groups);
    weight_row = kBlock * groups + kPad;
    mix_bias_row = (groups + 15) / 16 * 16;  // whole vectors: kernels work on all of a row
    std::size_t used = 0;
    const auto part = [&used](std::size_t floats) {
      const std::size_t at = used;
      used += (floats + kPad + 15) / 16 * 16;
      return at;
    };
    const std::size_t at[] = {part(kMaxQueries * key_dim),
                              part(kMaxQueries * key_groups),
                              part((kMaxQueries + 1) * kScoreStride),
                              part(kBlock * groups),
                              part(kBlock * groups),
                              part(kMaxQueries * weight_row),
                              part(kMaxQueries * mix_bias_row),
                              part(kMaxQueries * value_dim)};
    float* const base = thread_buffer(used);
    if (base == nullptr) return false;
    float** const parts[] = {&q, &q_sums, &scores, &scales, &biases, &weights, &mix_bias, &sums};
    for (std::size_t i = 0; i < std::size(at); i++) *parts[i] = base + at[i];
    return true;
  }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  static float* thread_buffer(std::size_t floats) {
    thread_local std::unique_ptr<float[], Free> buffer;
    thread_local std::size_t size = 0;
    if (floats > size) {
      buffer.reset();
      size = 0;
      buffer.reset(
          static_cast<float*>(::operator new[](floats * sizeof(float), std::align_val_t(64), std::nothrow)));
      if (buffer == nullptr) return nullptr;
      size = floats;
      // Slack lanes are computed with and never used; they must not hold what is slow to compute with.
      std::memset(buffer.get(), 0, floats * sizeof(float));
    }
    return buffer.get();
  }
};

// The positions that a task sees, as softmax blocks.
struct Span {
  Span(const KvRead& read, const Task& task)
      : first(read.positions[sz(task.token_begin)]),
        begin(window_begin(first, read.window)),
        end(read.positions[sz(task.token_end - 1)] + 1) {}
  int first_block() const { return begin / kBlock; }
  int last_block() const { return (end - 1) / kBlock; }
  // Of block b, relative to it: what any token sees; what token i sees.
  Range any(int b) const { return Range{begin - b * kBlock, end - b * kBlock}.cut({0, kBlock}); }
  Range of_token(int b, int i, int window) const {
    const int position = first + i;
    return Range{window_begin(position, window) - b * kBlock, position + 1 - b * kBlock}.cut({0, kBlock});
  }

  int first;  // position of the first token
  int begin, end;
};

// Where the tiles of a block lie, keys and values.
struct BlockTiles {
  Tiles keys, values;
};

class Worker {
 public:
  explicit Worker(const Call& call) : call_(call), read_(call.read) {}
  bool ready() { return scratch_.take(call_); }

  // `after`: the task that this thread runs next, or null; its first keys are prefetched.
  void run(const Task& task, const Task* after) {
    task_ = &task;
    queries_ = task.tokens() * task.heads();
    const Span span(read_, task);
    begin_queries();
    BlockTiles here = find_tiles(task, span, span.first_block());
    for (int b = span.first_block(); b <= span.last_block(); b++) {
      BlockTiles next;
      if (b < span.last_block()) {
        next = find_tiles(task, span, b + 1);
      } else if (after != nullptr) {
        const Span then(read_, *after);
        next = find_tiles(*after, then, then.first_block());
      }
      run_block(span, b, here, next);
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
      call_.kernels.fold_query(call_.q.data() + query_index(i) * key_dim, read_.head_dim, call_.keys.group,
                               call_.key_fold, scratch_.q + sz(i) * key_dim,
                               scratch_.q_sums + sz(i * call_.keys.groups));
      call_.kernels.begin_softmax(scratch_.states[i]);
    }
    std::fill_n(scratch_.sums, sz(queries_) * value_dim, 0.0f);
    std::fill_n(scratch_.mix_bias, sz(queries_) * scratch_.mix_bias_row, 0.0f);
  }

  // Tiles of both layouts are contiguous: a tile's words follow each other, whatever their order inside.
  BlockTiles find_tiles(const Task& task, const Span& span, int b) const {
    const SideLayout& keys = call_.keys.layout;
    const SideLayout& values = call_.values.layout;
    BlockTiles found;
    const Range visible = span.any(b);
    int tile = visible.begin / kTile;
    while (tile * kTile < visible.end) {
      const int position = b * kBlock + tile * kTile;
      const std::byte* block = read_.block(task.row, position / read_.page_tokens, task.kv_head);
      for (int slot = position % read_.page_tokens; slot < read_.page_tokens && tile * kTile < visible.end;
           slot += kTile, tile++) {
        const std::size_t at = sz(slot) * 4;
        found.keys.codes[tile] = block + keys.codes_offset + at * sz(keys.words);
        found.keys.params[tile] = block + keys.params_offset + at * sz(keys.params);
        found.values.codes[tile] = block + values.codes_offset + at * sz(values.words);
        found.values.params[tile] = block + values.params_offset + at * sz(values.params);
      }
    }
    found.keys.code_lines = keys.words;
    found.keys.param_lines = keys.params;
    found.values.code_lines = values.words;
    found.values.param_lines = values.params;
    return found;
  }

  void run_block(const Span& span, int b, const BlockTiles& here, const BlockTiles& next) {
    const Range all = span.any(b), tiles{all.begin / kTile, (all.end + kTile - 1) / kTile};
    // Tokens that see something of the block: a run of them, since both ends of a window move up.
    Range tokens{0, task_->tokens()};
    while (span.of_token(b, tokens.begin, read_.window).empty()) tokens.begin++;
    while (span.of_token(b, tokens.end - 1, read_.window).empty()) tokens.end--;
    score(tokens, tiles, here);
    if (call_.values.layout.codec.is_affine()) unpack_value_params(tiles, here);
    for (int i = tokens.begin; i < tokens.end; i++) {
      const Range visible = span.of_token(b, i, read_.window);
      for (int k = 0; k < task_->heads(); k++) weigh(i * task_->heads() + k, visible, tiles);
    }
    // What all tokens see is mixed for all of them at once, the edges for each token by itself: so a query
    // meets its positions in ascending order and no others.
    Range core = all;
    for (int i = tokens.begin; i < tokens.end; i++) core = core.cut(span.of_token(b, i, read_.window));
    if (core.empty()) core = Range{all.end, all.end};
    const Tiles none;
    for (int i = tokens.begin; i < tokens.end; i++) {
      mix(span.of_token(b, i, read_.window).cut({0, core.begin}), {i, i + 1}, here, none);
    }
    mix(core, tokens, here, next.keys);
    for (int i = tokens.begin; i < tokens.end; i++) {
      mix(span.of_token(b, i, read_.window).cut({core.end, kBlock}), {i, i + 1}, here, none);
    }
  }

  void score(Range tokens, Range tiles, const BlockTiles& here) {
    const int first = tokens.begin * task_->heads();
    KeyPass pass;
    pass.tiles = &here.keys;
    pass.tile_begin = tiles.begin;
    pass.tile_end = tiles.end;
    pass.head_dim = read_.head_dim;
    pass.group = call_.keys.group;
    pass.param_type = call_.keys.layout.codec.input();
    pass.queries = (tokens.end - tokens.begin) * task_->heads();
    pass.q = scratch_.q + sz(first) * sz(read_.head_dim);
    pass.q_sums = scratch_.q_sums + sz(first * call_.keys.groups);
    pass.scores = scratch_.scores + sz(first) * kScoreStride;
    pass.prefetch = &here.values;
    call_.score(pass);
  }

  void unpack_value_params(Range tiles, const BlockTiles& here) {
    const int pairs = kTile * call_.values.groups;
    for (int tile = tiles.begin; tile < tiles.end; tile++) {
      call_.kernels.unpack_params(reinterpret_cast<const std::uint32_t*>(here.values.params[tile]), pairs,
                                  call_.values.layout.codec.input(), scratch_.scales + sz(tile * pairs),
                                  scratch_.biases + sz(tile * pairs));
    }
  }

  // Softmax of one query's visible scores, then the params of the values folded into the weights.
  void weigh(int i, Range visible, Range tiles) {
    const bool affine = call_.values.layout.codec.is_affine();
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
    call_.kernels.weigh(scores, visible.begin, visible.end, call_.values.groups, scratch_.scales,
                        scratch_.biases, scratch_.weights + sz(i) * scratch_.weight_row, mix_bias);
  }

  void mix(Range positions, Range tokens, const BlockTiles& here, const Tiles& prefetch) {
    if (positions.empty()) return;
    const SideLayout& side = call_.values.layout;
    const bool affine = side.codec.is_affine();
    const int first = tokens.begin * task_->heads();
    ValuePass pass;
    pass.tiles = &here.values;
    pass.stride = sz(side.words) * 4;
    pass.begin = positions.begin;
    pass.end = positions.end;
    pass.dims = read_.value_dim;
    pass.group = call_.values.group;
    pass.groups = call_.values.groups;
    pass.queries = (tokens.end - tokens.begin) * task_->heads();
    pass.weight_rows = affine ? scratch_.weight_row : kScoreStride;
    pass.weights = (affine ? scratch_.weights : scratch_.scores) + sz(first) * pass.weight_rows;
    pass.out = scratch_.sums + sz(first) * sz(read_.value_dim);
    pass.prefetch = &prefetch;
    call_.mix(pass);
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
      call_.kernels.finish(scratch_.sums + sz(i) * value_dim, read_.value_dim, call_.values.group,
                           call_.value_fold, scratch_.mix_bias + sz(i) * scratch_.mix_bias_row,
                           static_cast<float>(1.0 / sum), call_.out.data() + query_index(i) * value_dim);
    }
  }

  const Call& call_;
  const KvRead& read_;
  Scratch scratch_;
  const Task* task_ = nullptr;
  int queries_ = 0;
};

// The tasks of one share of the work; false without memory.
bool run_share(const Call& call, int heads_per_kv, std::int64_t total, int share, int shares) {
  Worker worker(call);
  if (!worker.ready()) return false;
  std::int64_t before = 0;
  Task waiting;  // a task is run when its successor is known
  bool any = false;
  for (TaskWalk walk(call.read, heads_per_kv); !walk.done(); walk.next()) {
    const std::int64_t cost = walk.cost();
    const int its = share_of(before, cost, total, shares);
    before += cost;
    if (its < share) continue;
    if (its > share) break;
    if (any) worker.run(waiting, &walk.task());
    waiting = walk.task();
    any = true;
  }
  if (any) worker.run(waiting, nullptr);
  return true;
}

}  // namespace

Status attend_with(const Kernels& kernels, const KvRead& read, std::span<const float> q,
                   const AttentionParams& params, std::span<float> out, ThreadPool* pool) {
  const Call call(kernels, read, q, params, out);
  const int heads_per_kv = params.q_heads / read.kv_heads;
  std::int64_t total = 0;
  for (TaskWalk walk(read, heads_per_kv); !walk.done(); walk.next()) total += walk.cost();
  if (total == 0) return {};
  const int shares = pool == nullptr ? 1 : pool->threads();
  std::atomic<bool> ok = true;
  const auto body = [&](std::size_t share, int) {
    if (!run_share(call, heads_per_kv, total, static_cast<int>(share), shares))
      ok.store(false, std::memory_order_relaxed);
  };
  if (pool == nullptr) {
    body(0, 0);
  } else {
    pool->parallel_for(sz(shares), body);
  }
  if (ok.load(std::memory_order_relaxed)) return {};
  return Status(StatusCode::kResourceExhausted, "attention: no memory for the working buffers");
}

}  // namespace windrow::internal
