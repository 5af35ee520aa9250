// The codecs one number at a time: the definition that the SIMD code must equal bit for bit.
//
// The affine rule is MLX's (mx.quantize / mx.dequantize, mode "affine", CPU backend), checked
// against its output in tests/codec/golden_test.cc. All arithmetic is f32, one rounding an
// operation, ties to even.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/float16.h"
#include "codec/affine.h"
#include "windrow/codec.h"

namespace windrow {
namespace {

struct GroupParams {
  float scale;
  float bias;
};

GroupParams group_params(std::span<const float> x, int bits) {
  float lo = std::numeric_limits<float>::infinity(), hi = -lo;
  for (const float v : x) {  // a NaN compares false and is passed over
    if (v < lo) lo = v;
    if (v > hi) hi = v;
  }
  // The edge of larger magnitude shall be met exactly by an integer code, so that zero, which
  // is then a whole number of scales away, is met as well.
  const bool low_edge = std::fabs(lo) > std::fabs(hi);
  float scale = (hi - lo) / affine::max_code(bits);
  if (!(scale > affine::kMinScale)) scale = affine::kMinScale;
  if (!low_edge) scale = -scale;
  const float edge = low_edge ? lo : hi;
  const float q0 = std::nearbyint(edge / scale);
  if (q0 == 0) return {scale, 0};
  scale = edge / q0;
  return {std::isnan(scale) ? affine::quiet_nan() : scale, edge};
}

std::uint32_t code_of(float x, GroupParams p, float max_code) {
  const float t = (x - p.bias) / p.scale;
  if (!(t > 0)) return 0;  // NaN as well
  return static_cast<std::uint32_t>(std::nearbyint(t < max_code ? t : max_code));
}

std::uint32_t bits16(DType dtype, float f) {
  return dtype == DType::kF16 ? f16_from_f32(f) : bf16_from_f32(f);
}
float from_bits16(DType dtype, std::uint32_t bits) {
  const auto h = static_cast<std::uint16_t>(bits);
  return dtype == DType::kF16 ? f32_from_f16(h) : f32_from_bf16(h);
}

void put_params(DType input, GroupParams p, std::size_t group, std::span<std::uint32_t> params) {
  if (input == DType::kF32) {
    params[2 * group] = std::bit_cast<std::uint32_t>(p.scale);
    params[2 * group + 1] = std::bit_cast<std::uint32_t>(p.bias);
  } else {
    params[group] = bits16(input, p.scale) | bits16(input, p.bias) << 16;
  }
}

GroupParams get_params(DType input, std::span<const std::uint32_t> params, std::size_t group) {
  if (input == DType::kF32) {
    return {std::bit_cast<float>(params[2 * group]), std::bit_cast<float>(params[2 * group + 1])};
  }
  return {from_bits16(input, params[group] & 0xffff), from_bits16(input, params[group] >> 16)};
}

// Element i of a little-endian stream of `bits`-wide numbers; it may straddle two words.
void put_code(std::span<std::uint32_t> words, std::size_t i, int bits, std::uint32_t code) {
  const std::size_t at = i * static_cast<std::size_t>(bits);
  const std::uint64_t wide = static_cast<std::uint64_t>(code) << (at % 32);
  words[at / 32] |= static_cast<std::uint32_t>(wide);
  if (wide >> 32 != 0) words[at / 32 + 1] |= static_cast<std::uint32_t>(wide >> 32);
}

std::uint32_t get_code(std::span<const std::uint32_t> words, std::size_t i, int bits) {
  const std::size_t at = i * static_cast<std::size_t>(bits);
  std::uint64_t wide = words[at / 32];
  if (at % 32 + static_cast<std::size_t>(bits) > 32) {
    wide |= static_cast<std::uint64_t>(words[at / 32 + 1]) << 32;
  }
  return static_cast<std::uint32_t>(wide >> (at % 32)) & ((1u << bits) - 1);
}

void encode_affine(const Codec& codec, std::span<const float> values, std::span<std::uint32_t> words,
                   std::span<std::uint32_t> params) {
  const auto group = static_cast<std::size_t>(codec.group());
  std::fill(words.begin(), words.end(), 0u);
  float x[affine::kMaxGroup];
  for (std::size_t first = 0; first < values.size(); first += group) {
    for (std::size_t i = 0; i < group; i++) x[i] = round_to(codec.input(), values[first + i]);
    // Codes are taken against the unrounded scale and bias; only then are those rounded.
    const GroupParams p = group_params({x, group}, codec.bits());
    for (std::size_t i = 0; i < group; i++) {
      put_code(words, first + i, codec.bits(), code_of(x[i], p, affine::max_code(codec.bits())));
    }
    put_params(codec.input(), p, first / group, params);
  }
}

void decode_affine(const Codec& codec, std::span<const std::uint32_t> words,
                   std::span<const std::uint32_t> params, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); i++) {
    const GroupParams p = get_params(codec.input(), params, i / static_cast<std::size_t>(codec.group()));
    const float code = static_cast<float>(get_code(words, i, codec.bits()));
    const float v = round_to(codec.input(), round_to(codec.input(), p.scale * code) + p.bias);
    values[i] = std::isnan(v) ? affine::quiet_nan() : v;
  }
}

}  // namespace

void encode_record_scalar(const Codec& codec, std::span<const float> values, std::span<std::uint32_t> words,
                          std::span<std::uint32_t> params) {
  affine::check_record(codec, values.size(), words.size(), params.size());
  if (codec.is_affine()) return encode_affine(codec, values, words, params);
  for (std::size_t i = 0; i < values.size(); i++) {
    if (codec.input() == DType::kF32) {
      words[i] = std::bit_cast<std::uint32_t>(values[i]);
    } else {
      const std::uint32_t h = bits16(codec.input(), values[i]);
      words[i / 2] = i % 2 == 0 ? h : words[i / 2] | h << 16;
    }
  }
}

void decode_record_scalar(const Codec& codec, std::span<const std::uint32_t> words,
                          std::span<const std::uint32_t> params, std::span<float> values) {
  affine::check_record(codec, values.size(), words.size(), params.size());
  if (codec.is_affine()) return decode_affine(codec, words, params, values);
  for (std::size_t i = 0; i < values.size(); i++) {
    if (codec.input() == DType::kF32) {
      values[i] = std::bit_cast<float>(words[i]);
    } else {
      values[i] = from_bits16(codec.input(), words[i / 2] >> (i % 2 * 16) & 0xffff);
    }
  }
}

}  // namespace windrow
