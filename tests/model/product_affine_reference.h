// Products by affine weights written down as their definition: one scalar chain an output, straight from the
// file's packing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "model/product.h"
#include "product_reference.h"
#include "windrow/compute.h"

namespace windrow::test {

// A quantized matrix as in an MLX file.
struct AffineMatrix {
  int bits, group;
  std::size_t rows, cols;
  std::vector<std::byte> codes;
  Weights scales, biases;  // [rows, cols / group]

  AffineWeights view() const {
    return {codes.data(), scales.bytes.data(), biases.bytes.data(), scales.dtype, bits, group};
  }
  std::size_t row_bytes() const { return cols * static_cast<std::size_t>(bits) / 8; }
  // Bit by bit, so that nothing is shared with the code under test.
  std::uint32_t code(std::size_t row, std::size_t col) const {
    std::uint32_t code = 0;
    for (int i = 0; i < bits; i++) {
      const std::size_t at = col * static_cast<std::size_t>(bits) + static_cast<std::size_t>(i);
      const auto byte = static_cast<unsigned>(codes[row * row_bytes() + at / 8]);
      code |= (byte >> (at % 8) & 1u) << i;
    }
    return code;
  }
  double weight(std::size_t row, std::size_t col) const {
    const std::size_t g = col / static_cast<std::size_t>(group);
    return static_cast<double>(scales.at(row, g)) * code(row, col) + static_cast<double>(biases.at(row, g));
  }
};

// Codes of every value, scales and biases as quantized normal weights have them.
inline AffineMatrix random_affine(int bits, int group, DType params, std::size_t rows, std::size_t cols,
                                  unsigned seed) {
  const std::size_t groups = cols / static_cast<std::size_t>(group);
  AffineMatrix m{bits, group, rows, cols, {}, {}, {}};
  m.codes.resize(rows * m.row_bytes());
  std::mt19937 random(seed);
  for (std::byte& b : m.codes) b = static_cast<std::byte>(random() & 0xff);
  m.scales = m.biases = {params, rows, groups, std::vector<std::byte>(rows * groups * dtype_size(params))};
  std::uniform_real_distribution<float> range(0.1f, 0.3f);
  const auto most = static_cast<float>((1 << bits) - 1);
  for (std::size_t r = 0; r < rows; r++) {
    for (std::size_t g = 0; g < groups; g++) {
      const float scale = range(random) / most * (random() % 2 == 0 ? 1.0f : -1.0f);
      m.scales.set(r, g, scale);
      m.biases.set(r, g, -scale * std::nearbyint(most / 2));
    }
  }
  return m;
}

// Activations with outlier channels, as in real models: every 97th is 30 times the others.
inline std::vector<float> outlier_activations(std::size_t rows, std::size_t cols, unsigned seed) {
  std::vector<float> x = random_activations(rows * cols, seed);
  for (std::size_t i = 0; i < x.size(); i++) {
    if (i % cols % 97 == 5) x[i] *= 30.0f;
  }
  return x;
}

inline double exact_output(const AffineMatrix& w, std::size_t row, const float* x) {
  double y = 0;
  for (std::size_t k = 0; k < w.cols; k++) y += w.weight(row, k) * static_cast<double>(x[k]);
  return y;
}

// One f32 FMA chain over the dequantized weights: what the error of f32 is.
inline float naive_output(const AffineMatrix& w, std::size_t row, const float* x) {
  float y = 0;
  for (std::size_t k = 0; k < w.cols; k++) y = std::fma(static_cast<float>(w.weight(row, k)), x[k], y);
  return y;
}

// a * b + c with one rounding, or two, as on targets without FMA.
inline float multiply_add(float a, float b, float c, bool fused) {
  const float product = a * b;
  return fused ? std::fma(a, b, c) : product + c;
}

// The chain that src/model/product.h documents.
inline float affine_reference(const AffineMatrix& w, std::size_t row, const float* x, Compute compute,
                              bool fused) {
  if (w.bits == 8 && compute == Compute::kDefault) compute = Compute::kF32;
  float most_of_row = 0, before = 1, after = 1;
  for (std::size_t k = 0; k < w.cols; k++) {
    if (!std::isfinite(x[k])) return std::numeric_limits<float>::quiet_NaN();
    most_of_row = std::max(most_of_row, std::fabs(x[k]));
  }
  if (most_of_row >= 0x1p64f) {
    before = 0x1p-64f, after = 0x1p64f;
  } else if (most_of_row != 0 && most_of_row < 0x1p-64f) {
    before = 0x1p64f, after = 0x1p-64f;
  }
  const auto group = static_cast<std::size_t>(w.group);
  float y = 0;
  for (std::size_t g = 0; g < w.cols / group; g++) {
    const float* v = x + g * group;
    float a = 0, sum = 0;
    if (compute == Compute::kF32) {
      for (std::size_t i = 0; i < group; i++) {
        a = multiply_add(static_cast<float>(w.code(row, g * group + i)), v[i] * before, a, fused);
        sum += v[i] * before;
      }
    } else {
      float most = 0x1p-100f;
      for (std::size_t i = 0; i < group; i++) most = std::max(most, std::fabs(v[i]) * before);
      const float limit = compute == Compute::kFast ? 32638.0f : 4177850.0f;
      const float unit = most / limit, inverse = limit / most;
      std::int64_t upper = 0, lower = 0, total = 0;
      for (std::size_t i = 0; i < group; i++) {
        const auto n = static_cast<std::int64_t>(std::nearbyint(v[i] * before * inverse));
        const auto code = static_cast<std::int64_t>(w.code(row, g * group + i));
        const std::int64_t high = compute == Compute::kFast ? n : (n + 64) >> 7;
        upper += code * high;
        lower += code * (n - high * 128);
        total += n;
      }
      a = static_cast<float>(upper);
      if (compute == Compute::kDefault) a = multiply_add(a, 128, static_cast<float>(lower), fused);
      a *= unit;
      sum = static_cast<float>(total) * unit;
    }
    y = multiply_add(w.scales.at(row, g), a, y, fused);
    y = multiply_add(w.biases.at(row, g), sum, y, fused);
  }
  return y * after;
}

}  // namespace windrow::test
