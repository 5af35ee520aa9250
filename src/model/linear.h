// A linear layer: a batch-invariant product and, where the checkpoint has one, a bias.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/product.h"
#include "model/weights.h"

namespace windrow {

struct Linear {
  PackedMatrix weight;
  std::vector<float> bias;  // [rows], or empty

  std::size_t outputs() const noexcept { return weight.rows(); }
};

// `name`.weight [rows, cols] and, if `bias`, `name`.bias [rows].
Status read_linear(WeightReader& weights, const std::string& name, std::size_t rows, std::size_t cols,
                   bool bias, Linear& to);

// Stores a result's value, or says its status.
template <class T>
Status put(Result<T> result, T& where) {
  if (!result.ok()) return result.status();
  where = std::move(*result);
  return {};
}

struct LinearOutput {
  const Linear* linear = nullptr;
  float* y = nullptr;  // [tokens, linear->outputs()]
};

// All outputs from one x [tokens, cols], in one parallel section (see products).
void linear(std::span<const LinearOutput> outputs, const float* x, std::size_t tokens, ThreadPool& pool);
inline void linear(const Linear& layer, const float* x, std::size_t tokens, float* y, ThreadPool& pool) {
  const LinearOutput output[] = {{&layer, y}};
  linear(output, x, tokens, pool);
}

}  // namespace windrow
