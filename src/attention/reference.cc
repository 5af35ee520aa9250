// The scalar oracle: attention as its formula reads, one position after the other, sums in f64.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "attention/validate.h"
#include "base/float16.h"
#include "codec/block_layout.h"
#include "windrow/attention.h"

namespace windrow {
namespace {

std::uint32_t bits_at(const std::vector<std::uint32_t>& words, std::size_t offset, int count) {
  const std::size_t w = offset / 32, shift = offset % 32;
  std::uint64_t pair = words[w];
  if (w + 1 < words.size()) pair |= static_cast<std::uint64_t>(words[w + 1]) << 32;
  return static_cast<std::uint32_t>((pair >> shift) & ((std::uint64_t{1} << count) - 1));
}

float number_of(DType dtype, std::uint32_t bits) {
  if (dtype == DType::kF32) return std::bit_cast<float>(bits);
  const auto half = static_cast<std::uint16_t>(bits);
  return dtype == DType::kF16 ? f32_from_f16(half) : f32_from_bf16(half);
}

// Reads the vectors of one side as scale * code + bias, unrounded.
class VectorReader {
 public:
  explicit VectorReader(const SideLayout& side)
      : side_(side),
        words_(static_cast<std::size_t>(side.words)),
        params_(static_cast<std::size_t>(side.params)),
        values_(static_cast<std::size_t>(side.head_dim)) {}

  const std::vector<double>& read(const std::byte* block, int slot) {
    side_.get(block, slot, words_, params_);
    const Codec& codec = side_.codec;
    for (std::size_t d = 0; d < values_.size(); d++) {
      const std::uint32_t code = bits_at(words_, d * static_cast<std::size_t>(codec.bits()), codec.bits());
      values_[d] = codec.is_affine() ? affine(code, d / static_cast<std::size_t>(codec.group()))
                                     : static_cast<double>(number_of(codec.input(), code));
    }
    return values_;
  }

 private:
  double affine(std::uint32_t code, std::size_t group) const {
    const DType dtype = side_.codec.input();
    const bool wide = dtype == DType::kF32;
    const float scale = number_of(dtype, wide ? params_[2 * group] : params_[group] & 0xffff);
    const float bias = number_of(dtype, wide ? params_[2 * group + 1] : params_[group] >> 16);
    return static_cast<double>(scale) * code + static_cast<double>(bias);
  }

  const SideLayout& side_;
  std::vector<std::uint32_t> words_, params_;
  std::vector<double> values_;
};

// The positions that token t sees, ascending.
std::vector<std::int32_t> visible_positions(const KvRead& read, std::int32_t t) {
  const std::int32_t begin = read.begins[static_cast<std::size_t>(t)];
  const std::int32_t end = read.ends[static_cast<std::size_t>(t)];
  std::vector<std::int32_t> visible;
  for (std::int32_t p = 0; p < std::min(read.sinks, begin); p++) visible.push_back(p);
  for (std::int32_t p = begin; p < end; p++) visible.push_back(p);
  return visible;
}

// The attention of one query of token t of a row to kv head `kv_head`.
void attend_one(const KvRead& read, std::size_t row, std::int32_t t, int kv_head, const float* q,
                const AttentionParams& params, const float* sink, float* out) {
  const KvRead::Row& r = read.rows[row];
  const BlockLayout& layout = *read.storages[r.storage].layout;
  VectorReader keys(layout.keys), values(layout.values);
  const auto vector_of = [&](VectorReader& reader, std::int32_t position) -> const std::vector<double>& {
    const std::int32_t slot = read.slot_of(row, t, position);
    return reader.read(read.block(r, slot / read.page_tokens, kv_head), slot % read.page_tokens);
  };
  const std::vector<std::int32_t> visible = visible_positions(read, t);
  std::vector<double> scores;
  double top = sink != nullptr ? static_cast<double>(*sink) : -std::numeric_limits<double>::infinity();
  for (const std::int32_t p : visible) {
    const std::vector<double>& key = vector_of(keys, p);
    double score = 0;
    for (std::size_t d = 0; d < key.size(); d++) score += static_cast<double>(q[d]) * key[d];
    score *= static_cast<double>(params.scale);
    const double cap = static_cast<double>(params.softcap);
    if (cap > 0) score = cap * std::tanh(score / cap);
    scores.push_back(score);
    top = std::max(top, score);
  }
  double sum = sink != nullptr ? std::exp(static_cast<double>(*sink) - top) : 0.0;
  std::vector<double> mix(static_cast<std::size_t>(read.value_dim), 0.0);
  for (std::size_t i = 0; i < visible.size(); i++) {
    const std::vector<double>& value = vector_of(values, visible[i]);
    const double weight = std::exp(scores[i] - top);
    sum += weight;
    for (std::size_t d = 0; d < mix.size(); d++) mix[d] += weight * value[d];
  }
  for (std::size_t d = 0; d < mix.size(); d++) out[d] = static_cast<float>(mix[d] / sum);
}

}  // namespace

Status attend_reference(const KvRead& read, std::span<const float> q, const AttentionParams& params,
                        std::span<float> out) {
  if (Status s = internal::validate_attention(read, q.size(), params, out.size()); !s.ok()) return s;
  try {
    const auto heads = static_cast<std::size_t>(params.q_heads);
    const int heads_per_kv = params.q_heads / read.kv_heads;
    for (std::size_t row = 0; row < read.rows.size(); row++) {
      for (std::int32_t t = read.row_offsets[row]; t < read.row_offsets[row + 1]; t++) {
        for (int h = 0; h < params.q_heads; h++) {
          const std::size_t query = static_cast<std::size_t>(t) * heads + static_cast<std::size_t>(h);
          attend_one(read, row, t, h / heads_per_kv,
                     q.data() + query * static_cast<std::size_t>(read.head_dim), params,
                     params.sinks.empty() ? nullptr : &params.sinks[static_cast<std::size_t>(h)],
                     out.data() + query * static_cast<std::size_t>(read.value_dim));
        }
      }
    }
  } catch (const std::exception& e) {
    return Status(StatusCode::kResourceExhausted, std::string("attention reference: ") + e.what());
  }
  return {};
}

}  // namespace windrow
