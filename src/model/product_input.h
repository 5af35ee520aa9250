// The forms that kernels read activations in, made once a call of products() for all its outputs.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "model/product.h"
#include "model/product_affine.h"

namespace windrow::internal {

inline InputFormat input_format(const PackedMatrix& w) {
  return {affine_chain(w.bits(), w.compute()), static_cast<std::size_t>(w.group())};
}

struct InputRows {
  const float* x;
  std::size_t ldx, cols, rows;
};

// Lives for one call, in a buffer of the calling thread that is grown and kept. A form without memory for
// it is missing, and the kernels then do with x where it lies: slower, for the same bits.
class InputForms {
 public:
  InputForms(std::span<const ProductOutput> outputs, const InputRows& in, ThreadPool& pool);

  // x in panel order for plain weights, or null: too few rows to pay.
  const float* panel() const { return panel_; }
  // For affine weights of this format.
  const PreparedInput* find(const InputFormat& format) const {
    for (std::size_t i = 0; i < count_; i++) {
      if (prepared_[i].format == format) return &prepared_[i];
    }
    return nullptr;
  }

 private:
  const float* panel_ = nullptr;
  std::array<PreparedInput, 9> prepared_;  // 3 modes, 3 groups
  std::size_t count_ = 0;
};

}  // namespace windrow::internal
