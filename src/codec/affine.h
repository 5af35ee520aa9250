// What the scalar and the SIMD codec share: the constants of the affine rule.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "windrow/codec.h"

namespace windrow::affine {

// MLX's floor of |scale|: a group of smaller range is stored as a constant.
inline constexpr float kMinScale = 1e-7f;

inline constexpr std::size_t kMaxDim = 1024;  // the largest head_dim that Codec::check lets pass
inline constexpr std::size_t kMaxGroup = 128;
inline constexpr std::size_t kMinGroup = 32;
inline constexpr std::size_t kMaxGroups = kMaxDim / kMinGroup;
inline constexpr std::size_t kMaxWords = kMaxDim;          // plain f32
inline constexpr std::size_t kMaxParams = 2 * kMaxGroups;  // affine with f32 input

constexpr float max_code(int bits) { return static_cast<float>((1 << bits) - 1); }

// The one NaN that a scale or a decoded affine number can be: which NaN an operation makes
// depends on the instruction set and on the order of its operands.
inline float quiet_nan() { return std::bit_cast<float>(0x7fc00000u); }

// The preconditions of encode and decode; a breach is the library's own mistake.
inline void check_record([[maybe_unused]] const Codec& codec, [[maybe_unused]] std::size_t values,
                         [[maybe_unused]] std::size_t words, [[maybe_unused]] std::size_t params) {
  assert(codec.check(static_cast<int>(values)).ok());
  assert(words == static_cast<std::size_t>(codec.record_words(static_cast<int>(values))));
  assert(params == static_cast<std::size_t>(codec.record_params(static_cast<int>(values))));
}

}  // namespace windrow::affine
