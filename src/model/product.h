// Batch-invariant matrix products  Y[M, N] = X[M, K] * W[N, K]^T,  f32 activations.
//
// Row m of Y has the same bits whatever M is, whatever the other rows hold, and on any number of
// threads: every output is one fixed chain over k (per 64 k a chain of f32 FMAs from zero, the
// groups' sums added in order). A library GEMM does not keep this.
#pragma once

#include <cstddef>
#include <span>

#include "base/memory.h"
#include "windrow/dtype.h"
#include "windrow/status.h"
#include "windrow/threads.h"

namespace windrow {

// Weights in the kernels' tile layout, in their own type (f32, f16 or bf16).
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // `data`: [rows N, cols K] row-major numbers of `dtype`, any alignment. Copies.
  static Result<PackedMatrix> pack(DType dtype, const void* data, std::size_t rows, std::size_t cols,
                                   ThreadPool& pool);
  std::size_t rows() const noexcept { return rows_; }
  std::size_t cols() const noexcept { return cols_; }
  DType dtype() const noexcept { return dtype_; }
  // Bytes held, with the padding of the layout (src/model/product_layout.h).
  std::size_t bytes() const noexcept { return arena_.size(); }
  const std::byte* data() const noexcept { return arena_.data(); }
  std::size_t tile_stride() const noexcept { return tile_stride_; }

 private:
  Arena arena_;
  std::size_t rows_ = 0;
  std::size_t cols_ = 0;
  std::size_t tile_stride_ = 0;
  DType dtype_ = DType::kF32;
};

// One output of a product: y[m * ldy + n].
struct ProductOutput {
  const PackedMatrix* w = nullptr;
  float* y = nullptr;
  std::size_t ldy = 0;
};

// All outputs from one x[m * ldx + k] in one parallel section (q, k and v; gate and up). All
// weights have the same cols. m >= 0.
void products(std::span<const ProductOutput> outputs, const float* x, std::size_t ldx, std::size_t m,
              ThreadPool& pool);

}  // namespace windrow
