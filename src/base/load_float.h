// Numbers of any float type out of raw bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "windrow/dtype.h"

namespace windrow {

// The number at `bytes`, of any alignment. REQUIRES f32, f16 or bf16.
inline float load_float(DType dtype, const std::byte* bytes) {
  if (dtype == DType::kF32) {
    float f;
    std::memcpy(&f, bytes, sizeof f);
    return f;
  }
  std::uint16_t h;
  std::memcpy(&h, bytes, sizeof h);
  return dtype == DType::kBF16 ? f32_from_bf16(h) : f32_from_f16(h);
}

}  // namespace windrow
