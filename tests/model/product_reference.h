// The products written down as their definition: one scalar chain an output.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "windrow/dtype.h"

namespace windrow::test {

// [rows, cols] weights of one type, as bytes of a file.
struct Weights {
  DType dtype;
  std::size_t rows, cols;
  std::vector<std::byte> bytes;

  float at(std::size_t row, std::size_t col) const {
    const std::byte* p = bytes.data() + (row * cols + col) * dtype_size(dtype);
    if (dtype == DType::kF32) {
      float f;
      std::memcpy(&f, p, sizeof(f));
      return f;
    }
    std::uint16_t h;
    std::memcpy(&h, p, sizeof(h));
    return dtype == DType::kF16 ? f32_from_f16(h) : f32_from_bf16(h);
  }
  void set(std::size_t row, std::size_t col, float f) {
    std::byte* p = bytes.data() + (row * cols + col) * dtype_size(dtype);
    if (dtype == DType::kF32) {
      std::memcpy(p, &f, sizeof(f));
      return;
    }
    const std::uint16_t h = dtype == DType::kF16 ? f16_from_f32(f) : bf16_from_f32(f);
    std::memcpy(p, &h, sizeof(h));
  }
};

inline Weights random_weights(DType dtype, std::size_t rows, std::size_t cols, unsigned seed) {
  Weights w{dtype, rows, cols, std::vector<std::byte>(rows * cols * dtype_size(dtype))};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  for (std::size_t r = 0; r < rows; r++) {
    for (std::size_t c = 0; c < cols; c++) w.set(r, c, normal(random));
  }
  return w;
}

inline std::vector<float> random_activations(std::size_t count, unsigned seed) {
  std::vector<float> x(count);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(random);
  return x;
}

// y = sum over groups of 64 k, in order, of the group's chain from zero. `fused`: each step is one
// fma; else a rounded product and a rounded sum, as on targets without FMA.
inline float reference_output(const Weights& w, std::size_t row, const float* x, bool fused) {
  float y = 0.0f;
  for (std::size_t k = 0; k < w.cols; k += 64) {
    float a = 0.0f;
    for (std::size_t i = k; i < std::min(k + 64, w.cols); i++) {
      const float product = w.at(row, i) * x[i];
      a = fused ? std::fma(w.at(row, i), x[i], a) : a + product;
    }
    y += a;
  }
  return y;
}

}  // namespace windrow::test
