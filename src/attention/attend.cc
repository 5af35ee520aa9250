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
  float* scores = nullptr;    // [queries][kScoreStride]
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
                              part(kMaxQueries * kScoreStride),
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

const std::byte* at_bytes(const std::uint32_t* words) { return reinterpret_cast<const std::byte*>(words); }

// Address of a tile's codes and params. Both layouts keep a tile's words contiguous.
const std::byte* tile_codes(const SideLayout& side, const std::byte* block, int slot) {
  return at_bytes(side.codes(block)) + sz(slot) * sz(side.words) * 4;
}
const std::byte* tile_params(const SideLayout& side, const std::byte* block, int slot) {
  return at_bytes(side.param_words(block)) + sz(slot) * sz(side.params) * 4;
}

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
    for (int b = span.first_block(); b <= span.last_block(); b++) {
      const Range all = span.any(b);
      // Tokens that see something of the block: a contiguous run, since both ends of a window move up.
      int from = 0, to = task.tokens();
      while (span.of_token(b, from, read_.window).empty()) from++;
      while (span.of_token(b, to - 1, read_.window).empty()) to--;
      score_block(span, b, all, from, to);
      weigh_block(span, b, all, from, to);
      Prefetch next;
      if (b < span.last_block()) {
        find_tiles(call_.keys.layout, task, b + 1, span.any(b + 1), next);
      } else if (after != nullptr) {
        const Span then(read_, *after);
        find_tiles(call_.keys.layout, *after, then.first_block(), then.any(then.first_block()), next);
      }
      mix_block(span, b, all, from, to, next);
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

  const std::byte* block_of(const Task& task, int position) const {
    return read_.block(task.row, position / read_.page_tokens, task.kv_head);
  }

  // The tiles of `visible`, each at its place in the softmax block.
  void find_tiles(const SideLayout& side, const Task& task, int b, Range visible, Prefetch& found) const {
    for (int tile = visible.begin / kTile; tile * kTile < visible.end; tile++) {
      const int position = b * kBlock + tile * kTile;
      const std::byte* block = block_of(task, position);
      found.codes[tile] = tile_codes(side, block, position % read_.page_tokens);
      found.params[tile] = tile_params(side, block, position % read_.page_tokens);
    }
    found.code_lines = side.words;
    found.param_lines = side.params;
  }

  void score_block(const Span&, int b, Range all, int from, int to) {
    Prefetch keys, values, shifted;
    find_tiles(call_.keys.layout, *task_, b, all, keys);
    find_tiles(call_.values.layout, *task_, b, all, values);
    const int first = all.begin / kTile, heads = task_->heads();
    KeyPass pass;
    pass.tiles = (all.end - 1) / kTile - first + 1;
    for (int t = 0; t < pass.tiles; t++) {
      pass.codes[t] = keys.codes[first + t];
      pass.params[t] = keys.params[first + t];
      shifted.codes[t] = values.codes[first + t];
      shifted.params[t] = values.params[first + t];
    }
    shifted.code_lines = values.code_lines;
    shifted.param_lines = values.param_lines;
    pass.head_dim = read_.head_dim;
    pass.group = call_.keys.group;
    pass.param_type = call_.keys.layout.codec.input();
    pass.queries = (to - from) * heads;
    pass.q = scratch_.q + sz(from * heads) * sz(read_.head_dim);
    pass.q_sums = scratch_.q_sums + sz(from * heads * call_.keys.groups);
    pass.scores = scratch_.scores + sz(from * heads) * kScoreStride + first * kTile;
    pass.prefetch = &shifted;
    call_.score(pass);
  }

  // Softmax of each query's visible scores, then the params of the values folded into the weights.
  void weigh_block(const Span& span, int b, Range all, int from, int to) {
    const int first = all.begin / kTile, heads = task_->heads();
    const bool affine = call_.values.layout.codec.is_affine();
    if (affine) unpack_value_params(b, all);
    for (int i = from * heads; i < to * heads; i++) {
      const Range visible = span.of_token(b, i / heads, read_.window);
      float* const scores = scratch_.scores + sz(i) * kScoreStride;
      SoftmaxPass pass;
      pass.scores = scores + first * kTile;
      pass.begin = visible.begin - first * kTile;
      pass.end = visible.end - first * kTile;
      pass.tiles = (all.end - 1) / kTile - first + 1;
      pass.scale = call_.params.scale;
      pass.softcap = call_.params.softcap;
      const float factor = call_.kernels.softmax(scratch_.states[i], pass);
      float* const mix_bias = scratch_.mix_bias + sz(i) * scratch_.mix_bias_row;
      if (factor != 1.0f) {
        call_.kernels.rescale(scratch_.sums + sz(i) * sz(read_.value_dim), read_.value_dim, factor);
        if (affine) call_.kernels.rescale(mix_bias, static_cast<int>(scratch_.mix_bias_row), factor);
      }
      if (!affine) continue;
      const std::size_t at = sz(visible.begin * call_.values.groups);
      call_.kernels.weigh(scores + visible.begin, visible.end - visible.begin, visible.begin,
                          call_.values.groups, scratch_.scales + at, scratch_.biases + at,
                          scratch_.weights + sz(i) * scratch_.weight_row + at, mix_bias);
    }
  }

  // Calls body(piece, block address, slot of its first position) for each page's piece of `range`.
  template <typename Body>
  void for_each_page(int b, Range range, Body&& body) const {
    for (int begin = range.begin; begin < range.end;) {
      const int position = b * kBlock + begin, slot = position % read_.page_tokens;
      const int end = std::min(range.end, begin + read_.page_tokens - slot);
      body(Range{begin, end}, block_of(*task_, position), slot);
      begin = end;
    }
  }

  void unpack_value_params(int b, Range all) {
    const SideLayout& side = call_.values.layout;
    const int groups = call_.values.groups;
    for_each_page(b, all, [&](Range piece, const std::byte* block, int slot) {
      const std::size_t at = sz(piece.begin * groups);
      call_.kernels.unpack_params(side.param_words(block) + sz(slot) * sz(side.params),
                                  (piece.end - piece.begin) * groups, side.codec.input(),
                                  scratch_.scales + at, scratch_.biases + at);
    });
  }

  // The values of the block: what all tokens see once for all of them, the edges for each token
  // by itself, so that a query meets its positions in ascending order and no others.
  void mix_block(const Span& span, int b, Range all, int from, int to, const Prefetch& next) {
    Range core = all;
    for (int i = from; i < to; i++) core = core.cut(span.of_token(b, i, read_.window));
    if (core.empty()) core = Range{all.end, all.end};
    for_each_page(b, all, [&](Range piece, const std::byte* block, int slot) {
      const auto mix = [&](Range part, int first_token, int last_token, const Prefetch& prefetch) {
        part = part.cut(piece);
        if (!part.empty())
          mix_positions(part, block, slot + part.begin - piece.begin, first_token, last_token, prefetch);
      };
      const Prefetch none;
      for (int i = from; i < to; i++) {
        mix(span.of_token(b, i, read_.window).cut({0, core.begin}), i, i + 1, none);
      }
      mix(core, from, to, part_of(next, core.cut(piece)));
      for (int i = from; i < to; i++) {
        mix(span.of_token(b, i, read_.window).cut({core.end, kBlock}), i, i + 1, none);
      }
    });
  }

  // The tiles of `next` from the tile of range.begin on.
  static Prefetch part_of(const Prefetch& next, Range range) {
    Prefetch part;
    for (int tile = range.begin / kTile, i = 0; tile * kTile < range.end; tile++, i++) {
      part.codes[i] = next.codes[tile];
      part.params[i] = next.params[tile];
    }
    part.code_lines = next.code_lines;
    part.param_lines = next.param_lines;
    return part;
  }

  void mix_positions(Range part, const std::byte* block, int slot, int first_token, int last_token,
                     const Prefetch& prefetch) {
    const SideLayout& side = call_.values.layout;
    const bool affine = side.codec.is_affine();
    const int first = first_token * task_->heads();
    ValuePass pass;
    pass.codes = tile_codes(side, block, slot);
    pass.stride = sz(side.words) * 4;
    pass.positions = part.end - part.begin;
    pass.dims = read_.value_dim;
    pass.group = call_.values.group;
    pass.queries = last_token * task_->heads() - first;
    pass.groups = call_.values.groups;
    pass.weight_rows = affine ? scratch_.weight_row : kScoreStride;
    pass.weights = (affine ? scratch_.weights : scratch_.scores) + sz(first) * pass.weight_rows +
                   sz(part.begin * pass.groups);
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
