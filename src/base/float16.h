// Scalar conversions between f32 and the two 16-bit floats: round to nearest, ties to
// even; NaN stays NaN (quiet), infinities stay. f16 denormals are exact.
#pragma once

#include <bit>
#include <cstdint>

#include "windrow/dtype.h"

namespace windrow {

inline float f32_from_bf16(std::uint16_t h) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16);
}

inline std::uint16_t bf16_from_f32(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

inline float f32_from_f16(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000) << 16;
  const std::uint32_t magnitude = h & 0x7fff;
  if (magnitude >= 0x7c00) {  // infinity or NaN
    const std::uint32_t quiet = magnitude > 0x7c00 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | ((magnitude & 0x3ff) << 13));
  }
  if (magnitude < 0x400) {  // zero or denormal: magnitude * 2^-24 is exact in f32
    const float f = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
}

inline std::uint16_t f16_from_f32(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
  const std::uint16_t sign = static_cast<std::uint16_t>((u >> 16) & 0x8000);
  const std::uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x1ff));
  }
  // 65520 and above rounds to infinity: half a unit above the largest f16, 65504.
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the f16 is denormal. Adding 0.5 aligns the unit of the sum (2^-24)
    // with the f16 unit, so the addition itself rounds to nearest even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1);
  return static_cast<std::uint16_t>(sign | ((rounded - ((127u - 15u) << 23)) >> 13));
}

// The f32 value that `f` has after one rounding to `dtype` (f32, f16 or bf16).
inline float round_to(DType dtype, float f) {
  if (dtype == DType::kBF16) return f32_from_bf16(bf16_from_f32(f));
  if (dtype == DType::kF16) return f32_from_f16(f16_from_f32(f));
  return f;
}

}  // namespace windrow
