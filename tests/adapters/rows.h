// Stores fed with tokens that are named by number, and MLX caches that hold the same tokens.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/float16.h"
#include "oracle/batch_kv.h"
#include "state/program.h"
#include "windrow/mlx.h"

namespace windrow::testing {

// [1, heads, tokens, dim] of one layer, as an engine of the oracle's shape would compute it.
inline oracle::Tensor token_tensor(const std::vector<int>& ids, int layer, int heads, int dim, bool key) {
  oracle::Tensor out(1, heads, static_cast<int>(ids.size()), dim);
  for (int t = 0; t < out.columns; t++) {
    for (int h = 0; h < heads; h++) {
      for (int d = 0; d < dim; d++) out.at(0, h, t)[d] = token_number(ids[t], layer, h, d, key);
    }
  }
  return out;
}
inline oracle::Kv token_kv(const std::vector<int>& ids, int layer, const AttentionGroup& g) {
  return {token_tensor(ids, layer, g.kv_heads, g.head_dim, true),
          token_tensor(ids, layer, g.kv_heads, g.value_dim, false)};
}

// The bytes of an array of that codec, every vector encoded by itself. Columns that are all zeros stay zero
// bytes, as mx.zeros makes them.
struct ArrayBytes {
  Codec codec;
  std::vector<std::byte> data, scales, biases;
  MlxArray view() const { return {codec, data, scales, biases, nullptr}; }
};
inline ArrayBytes array_of(const oracle::Tensor& x, const Codec& codec) {
  ArrayBytes out{codec, {}, {}, {}};
  const auto put = [](std::vector<std::byte>& to, const void* from, std::size_t n) {
    const auto* p = static_cast<const std::byte*>(from);
    to.insert(to.end(), p, p + n);
  };
  const int dim = x.dim;
  for (std::size_t at = 0; at < x.values.size(); at += dim) {
    const std::span<const float> vector(x.values.data() + at, dim);
    std::vector<std::uint32_t> words(codec.record_words(dim)), params(codec.record_params(dim));
    if (std::ranges::any_of(vector, [](float f) { return f != 0; })) {
      encode_record_scalar(codec, vector, words, params);
    }
    put(out.data, words.data(), 4 * words.size());
    const int groups = codec.is_affine() ? dim / codec.group() : 0;
    for (int g = 0; g < groups; g++) {
      if (codec.input() == DType::kF32) {
        put(out.scales, &params[2 * g], 4);
        put(out.biases, &params[2 * g + 1], 4);
      } else {
        const std::uint16_t both[] = {static_cast<std::uint16_t>(params[g]),
                                      static_cast<std::uint16_t>(params[g] >> 16)};
        put(out.scales, &both[0], 2);
        put(out.biases, &both[1], 2);
      }
    }
  }
  return out;
}

inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}
inline bool same_array(const MlxArray& a, const MlxArray& b) {
  return a.codec == b.codec && same_bytes(a.data, b.data) && same_bytes(a.scales, b.scales) &&
         same_bytes(a.biases, b.biases);
}

// A cache that borrows its arrays, and the arrays.
struct SerialBytes {
  ArrayBytes keys, values;
  MlxSerialCache cache;
};
inline std::unique_ptr<SerialBytes> serial_of(const oracle::Kv& buffer, int offset, int idx, int keep,
                                              int max_size, const Codec& keys, const Codec& values) {
  auto out = std::make_unique<SerialBytes>();
  out->keys = array_of(buffer.k, keys);
  out->values = array_of(buffer.v, values);
  out->cache = {out->keys.view(), out->values.view(), buffer.columns(), offset, idx, keep, max_size, true};
  return out;
}
inline std::unique_ptr<SerialBytes> serial_of(const oracle::SerialRing& ring, const Codec& keys,
                                              const Codec& values) {
  return serial_of(ring.buffer(), ring.offset(), ring.idx(), ring.keep(), ring.max_size(), keys, values);
}

struct BatchBytes {
  ArrayBytes keys, values;
  MlxBatchCache cache;
};
inline std::unique_ptr<BatchBytes> batch_of(const oracle::BatchRing& ring, const Codec& keys,
                                            const Codec& values) {
  auto out = std::make_unique<BatchBytes>();
  out->keys = array_of(ring.buffer().k, keys);
  out->values = array_of(ring.buffer().v, values);
  out->cache = {out->keys.view(),  out->values.view(),  ring.buffer().columns(),
                ring.row_offset(), ring.left_padding(), ring.idx(),
                ring.offset(),     ring.rotated(),      ring.max_size()};
  return out;
}
inline std::unique_ptr<BatchBytes> batch_of(const oracle::BatchKv& kv, const Codec& keys,
                                            const Codec& values) {
  auto out = std::make_unique<BatchBytes>();
  out->keys = array_of(kv.buffer().k, keys);
  out->values = array_of(kv.buffer().v, values);
  out->cache = {out->keys.view(),
                out->values.view(),
                kv.buffer().columns(),
                kv.row_offset(),
                kv.left_padding(),
                kv.idx(),
                kv.idx(),
                false,
                kFullWindow};
  return out;
}

// What records hold, one column for every position of theirs, as plain f32: the oracle's shape again.
inline oracle::Tensor decoded(const std::vector<std::uint32_t>& words,
                              const std::vector<std::uint32_t>& params, const Codec& codec, int heads,
                              int positions, int dim) {
  oracle::Tensor out(1, heads, positions, dim);
  const std::size_t w = codec.record_words(dim), p = codec.record_params(dim);
  for (std::size_t at = 0; at < static_cast<std::size_t>(heads) * positions; at++) {
    decode_record_scalar(codec, std::span(words).subspan(at * w, w), std::span(params).subspan(at * p, p),
                         std::span(out.values).subspan(at * dim, dim));
  }
  return out;
}
inline oracle::Kv decoded(const LayerRecords& r, const AttentionGroup& g) {
  const Codec& k = r.converted ? g.keys : g.delayed->keys;
  const Codec& v = r.converted ? g.values : g.delayed->values;
  return {decoded(r.key_words, r.key_params, k, g.kv_heads, r.positions(), g.head_dim),
          decoded(r.value_words, r.value_params, v, g.kv_heads, r.positions(), g.value_dim)};
}

// The positions that records hold, in their order.
inline std::vector<int> positions_of(const LayerRecords& r) {
  std::vector<int> out;
  for (int p = 0; p < r.sinks; p++) out.push_back(p);
  for (int p = r.begin; p < r.end; p++) out.push_back(p);
  return out;
}

inline StatePlan must(Result<StatePlan> plan) {
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *std::move(plan);
}

// Feeds the tokens in one step.
inline void feed(StateStore& store, Row& row, const std::vector<int>& ids) {
  Row* const rows[] = {&row};
  const int lengths[] = {static_cast<int>(ids.size())};
  Result<Step> step = store.begin(rows, lengths);
  ASSERT_TRUE(step.ok()) << step.status().message();
  const Status appended = append_all(*step, store.plan(), ids);
  ASSERT_TRUE(appended.ok()) << appended.message();
  const Status resolved = step->resolve();
  ASSERT_TRUE(resolved.ok()) << resolved.message();
}

}  // namespace windrow::testing
