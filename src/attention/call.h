// Constants of an attention call, and the working memory of its threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>

#include "attention/kernel.h"
#include "attention/visible.h"
#include "codec/block_layout.h"
#include "windrow/attention.h"

namespace windrow::internal {

// One side of a storage with what the passes need of it.
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

// What queries, and the sums of values, are multiplied with where codes are used as code * 2^shift.
struct Fold {
  alignas(64) float by[kFoldPeriod];
};
template <class Shift>
constexpr Fold make_fold(const Shift& shift) {
  Fold fold{};
  for (int e = 0; e < kFoldPeriod; e++) fold.by[e] = exp2_of_minus(shift(e));
  return fold;
}
// By bits, 0 for plain codecs, whose numbers are used as they are; made when this is compiled.
struct Folds {
  Fold keys[9];
  Fold values[9][kSliceKinds];
  constexpr Folds() : keys{}, values{} {
    keys[0] = values[0][0] = make_fold([](int) { return 0; });
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      keys[bits] = make_fold([bits](int e) { return key_shift(bits, e); });
      for (const int slice : {1, 2, 4, 8}) {
        if (slice > 1 && 32 % bits != 0) continue;
        values[bits][slice_kind(slice)] =
            make_fold([bits, slice](int e) { return value_shift(bits, slice, e); });
      }
    }
  }
};
inline constexpr Folds kFolds;

// A storage of the read and the kernels of its codecs.
struct Stored {
  Stored(const Kernels& kernels, const BlockLayout& layout)
      : keys(layout.keys),
        values(layout.values),
        gathered(BlockLayout::make(layout.keys.codec, layout.keys.head_dim, layout.values.codec,
                                   layout.values.head_dim, kBlock)) {
    const Codec& key_codec = keys.layout.codec;
    const Codec& value_codec = values.layout.codec;
    key_fold = kFolds.keys[key_codec.is_affine() ? key_codec.bits() : 0].by;
    value_fold =
        kFolds.values[value_codec.is_affine() ? value_codec.bits() : 0][slice_kind(values.layout.slice)].by;
    score = kernels.score[storage_kind(key_codec)];
    mix = kernels.mix[storage_kind(value_codec)][slice_kind(values.layout.slice)];
  }

  Side keys, values;
  BlockLayout gathered;  // of a block whose tiles are gathered
  void (*score)(const KeyPass&);
  void (*mix)(const ValuePass&);
  const float* key_fold = nullptr;    // [kFoldPeriod]
  const float* value_fold = nullptr;  // [kFoldPeriod]
};

// Memory for the states of a task's queries, wherever it lies.
struct StateShape {
  // Every part has kPad floats of slack, since kernels work on whole vectors.
  static constexpr std::size_t kPad = 16;
  static constexpr std::size_t kSoftmax = 32;  // floats that a SoftmaxState takes
  static_assert(sizeof(SoftmaxState) <= kSoftmax * sizeof(float));

  std::size_t dims = 0, bias_row = 0;  // of a query; whole vectors: kernels work on all of a row

  std::size_t out_row() const { return (dims + 15) / 16 * 16; }
  std::size_t floats() const { return kMaxQueries * (kSoftmax + out_row() + bias_row) + kPad; }

  QueryState query(float* base, int i) const {
    float* const outs = base + kMaxQueries * kSoftmax;
    float* const biases = outs + kMaxQueries * out_row();
    return {reinterpret_cast<SoftmaxState*>(base + sz(i) * kSoftmax), outs + sz(i) * out_row(),
            biases + sz(i) * bias_row};
  }
};

struct Call {
  Call(const Kernels& k, const KvRead& r, std::span<const float> query, const AttentionParams& p,
       std::span<float> o)
      : kernels(k), read(r), q(query), params(p), out(o) {
    for (std::size_t row = 0; row < r.rows.size(); row++) {
      const auto s = sz(r.rows[row].storage);
      if (!storages[s]) storages[s].emplace(k, *r.storages[s].layout);
      gathers = gathers || r.is_tree(row);
    }
  }

  const Stored& stored(int row) const { return *storages[sz(read.rows[sz(row)].storage)]; }

  std::size_t value_groups() const {
    std::size_t groups = 0;
    for (const std::optional<Stored>& stored : storages) {
      if (stored) groups = std::max(groups, sz(stored->values.groups));
    }
    return groups;
  }
  StateShape state_shape() const { return {.dims = sz(read.value_dim), .bias_row = value_groups() * kTile}; }

  const Kernels& kernels;
  const KvRead& read;
  std::span<const float> q;
  const AttentionParams& params;
  std::span<float> out;
  std::optional<Stored> storages[2];        // of rows only
  bool gathers = read.page_tokens < kTile;  // some task may
};

// Memory of a thread that is kept from call to call.
class Buffer {
 public:
  // At least `bytes`, 64-byte aligned; null without memory.
  std::byte* grow(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t(64), std::nothrow)));
      if (memory_ == nullptr) return nullptr;
      size_ = bytes;
      // Slack lanes are computed with and never used; they must not hold what is slow to compute with.
      std::memset(memory_.get(), 0, bytes);
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::size_t size_ = 0;
};

// The working memory of a task, cut from one buffer. `gathered` is another buffer, which few calls need.
struct Scratch {
  static constexpr std::size_t kPad = StateShape::kPad;

  float* q = nullptr;        // panels, [queries][head_dim]
  float* q_sums = nullptr;   // [queries][key groups]
  float* scores = nullptr;   // [queries][kScoreStride]
  float* weights = nullptr;  // [queries][weight_row]
  float* states[2] = {};     // of `shape`: of all segments, and of one
  std::size_t weight_row = 0;
  StateShape shape;
  std::byte* gathered = nullptr;  // a block of Stored::gathered

  // The calling thread's buffers, cut for this call; false without memory.
  bool take(const Call& call) {
    const std::size_t key_dim = sz(call.read.head_dim);
    std::size_t key_groups = 0, gathered_bytes = 0;
    for (const std::optional<Stored>& stored : call.storages) {
      if (!stored) continue;
      key_groups = std::max(key_groups, sz(stored->keys.groups));
      gathered_bytes = std::max(gathered_bytes, stored->gathered.bytes);
    }
    const std::size_t groups = call.value_groups();
    weight_row = kBlock * groups + kPad;
    shape = call.state_shape();
    std::size_t used = 0;
    const auto part = [&used](std::size_t floats) {
      const std::size_t at = used;
      used += (floats + kPad + 15) / 16 * 16;
      return at;
    };
    const std::size_t at[] = {
        part(kMaxQueries * key_dim),    part(kMaxQueries * key_groups), part(kMaxQueries * kScoreStride),
        part(kMaxQueries * weight_row), part(shape.floats()),           part(shape.floats())};
    thread_local Buffer floats, blocks;
    auto* const base = reinterpret_cast<float*>(floats.grow(used * sizeof(float)));
    if (base == nullptr) return false;
    float** const parts[] = {&q, &q_sums, &scores, &weights, &states[0], &states[1]};
    for (std::size_t i = 0; i < std::size(at); i++) *parts[i] = base + at[i];
    if (call.gathers) gathered = blocks.grow(gathered_bytes);
    return !call.gathers || gathered != nullptr;
  }
};

}  // namespace windrow::internal
