// Codecs: how one position's key or value vector of one head is stored.
//
//   plain    f32, f16 or bf16 numbers.
//   affine   `bits`-wide unsigned codes in groups of `group` along head_dim, with one scale
//            and one bias a group:  value = scale * code + bias.  Bit-equal to MLX's affine
//            quantization of a tensor of type `input` (codes, scales, biases); scales and
//            biases are stored as `input`. A scale may be negative.
//
// The affine rule, of a group of f32 numbers x (already rounded to `input`), in f32, ties to even:
//   step  = max((max x - min x) / (2^bits - 1), 1e-7), negated unless |min x| > |max x|
//   edge  = the extreme of larger magnitude, max x if equal
//   q0    = rint(edge / step);  scale = edge / q0, bias = edge;  if q0 = 0: scale = step, bias = 0
//   code  = clamp(rint((x - bias) / scale), 0, 2^bits - 1)
// Then scale and bias are rounded to `input`. Decoding is round(round(scale * code) + bias).
//
// Numbers that are none. Plain codecs keep NaN (16-bit types: quiet, the payload cut) and
// infinities; numbers beyond the largest f16 or bf16 become infinities. Affine: a NaN does not
// take part in min and max and gets code 0; a group that holds an infinity, or nothing but NaN,
// decodes to NaN throughout, and so does one whose range exceeds the largest f32. A NaN that
// arithmetic makes is always 0x7fc00000 (or its 16-bit form), so that equal input gives equal bytes
// on every machine.
//
// Groups never cross positions, so positions are cut, copied and saved byte-exactly.
//
// The *record* of a vector is its logical, layout-free form: `words` (uint32) then
// `params` (uint32), see record_words() and record_params():
//   plain    words = the numbers, little endian (two per word for 16-bit types); no params.
//   affine   words = MLX's packed codes: one little-endian bit stream, element 0 in the low
//            bits, also for 3, 5 and 6 bits. params = per group `scale | bias << 16` (raw
//            16-bit floats), or the two words scale, bias when input is f32.
//
// Thread safety: values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "windrow/dtype.h"
#include "windrow/export.h"
#include "windrow/status.h"

namespace windrow {

class WINDROW_API Codec {
 public:
  enum class Kind : std::uint8_t { kPlain, kAffine };

  constexpr Codec() = default;  // bf16
  static constexpr Codec f32() { return Codec(Kind::kPlain, 32, 0, DType::kF32); }
  static constexpr Codec f16() { return Codec(Kind::kPlain, 16, 0, DType::kF16); }
  static constexpr Codec bf16() { return Codec(Kind::kPlain, 16, 0, DType::kBF16); }
  // bits: 2, 3, 4, 5, 6 or 8; group: 32, 64 or 128; input: f32, f16 or bf16. Numbers of
  // another float type are rounded to `input` first, as a model of that type would have.
  // Anything else makes a codec for which valid() is false.
  static constexpr Codec affine(int bits, int group = 64, DType input = DType::kBF16) {
    return Codec(Kind::kAffine, bits, group, input);
  }
  // "f32", "f16", "bf16", "qBITS", "qBITS:GROUP", "qBITS:GROUP:INPUT" (q4 = q4:64:bf16). Lower
  // case, no spaces, no leading zeros: one codec is written one way. Else kInvalidArgument.
  static Result<Codec> parse(std::string_view text);
  // What parse() reads back: "bf16", "q4:64", "q4:64:f32" (an input of bf16 goes unsaid). A codec
  // that is not valid() has a name too, for messages.
  std::string to_string() const;

  constexpr Kind kind() const noexcept { return kind_; }
  constexpr bool is_affine() const noexcept { return kind_ == Kind::kAffine; }
  constexpr int bits() const noexcept { return bits_; }    // bits of one code or number
  constexpr int group() const noexcept { return group_; }  // 0 for plain
  constexpr DType input() const noexcept { return input_; }
  bool valid() const noexcept;

  // kOk when vectors of `head_dim` can be stored: 16 <= head_dim <= 1024, a multiple of
  // 16 (plain) or of the group (affine).
  Status check(int head_dim) const;

  // Sizes of a record. REQUIRES check(head_dim).ok().
  constexpr int record_words(int head_dim) const noexcept { return head_dim * bits_ / 32; }
  constexpr int record_params(int head_dim) const noexcept {
    return is_affine() ? head_dim / group_ * (input_ == DType::kF32 ? 2 : 1) : 0;
  }
  constexpr std::size_t record_bytes(int head_dim) const noexcept {
    return 4 * static_cast<std::size_t>(record_words(head_dim) + record_params(head_dim));
  }

  friend constexpr bool operator==(const Codec&, const Codec&) = default;

 private:
  constexpr Codec(Kind kind, int bits, int group, DType input)
      : kind_(kind), bits_(bits), group_(group), input_(input) {}

  Kind kind_ = Kind::kPlain;
  int bits_ = 16;
  int group_ = 0;
  DType input_ = DType::kBF16;
};

// values[head_dim] -> words[record_words], params[record_params]. SIMD; equal, bit for bit,
// to encode_record_scalar on every instruction set. REQUIRES codec.check(values.size()).ok()
// and exact span sizes.
WINDROW_API void encode_record(const Codec& codec, std::span<const float> values,
                               std::span<std::uint32_t> words, std::span<std::uint32_t> params);
WINDROW_API void encode_record_scalar(const Codec& codec, std::span<const float> values,
                                      std::span<std::uint32_t> words, std::span<std::uint32_t> params);

// The inverse, as MLX dequantizes: round(round(scale * code) + bias), both roundings to
// `input` (plain codecs: exact). SIMD equals scalar bit for bit.
WINDROW_API void decode_record(const Codec& codec, std::span<const std::uint32_t> words,
                               std::span<const std::uint32_t> params, std::span<float> values);
WINDROW_API void decode_record_scalar(const Codec& codec, std::span<const std::uint32_t> words,
                                      std::span<const std::uint32_t> params, std::span<float> values);

}  // namespace windrow
