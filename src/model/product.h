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

// Weights in the kernels' tile layout (product_layout.h), in their own type (f32, f16 or bf16) and as
// many bytes as the file's but for N rounded up to 16 and K to 2. Immutable once packed, so any number
// of threads may multiply by it.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // `data`: [rows N, cols K] row-major numbers of `dtype`, any alignment. Copies, on the pool's threads.
  // Errors: kUnsupported for another type, kInvalidArgument for an empty shape, null data or a shape
  // beyond the address space, kResourceExhausted without memory.
  static Result<PackedMatrix> pack(DType dtype, const void* data, std::size_t rows, std::size_t cols,
                                   ThreadPool& pool);
  std::size_t rows() const noexcept { return rows_; }
  std::size_t cols() const noexcept { return cols_; }
  DType dtype() const noexcept { return dtype_; }
  // Bytes held, the layout's padding included.
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

// All outputs from one x[m * ldx + k] in one parallel section (q, k and v; gate and up): their tiles of
// 16 outputs are dealt out to the threads as one line. Any m >= 0; small products run on the caller
// alone. All weights have the same cols; ldx >= cols, ldy >= rows; no y overlaps x or another y. What
// lies between the rows of a y is left alone. Needs up to 50 KB of each thread's stack, and from 24 rows on
// a copy of x [m, cols] in a buffer that the calling thread keeps (without memory for it: slower, same
// bits). A NaN or infinity in a row of x reaches that row of y only.
//
// The chain, for every target: y = 0; for each 64 columns, in order: a = 0; a = fma(w, x, a) for each
// column, in order; y = y + a. Targets without FMA round the product and the sum.
void products(std::span<const ProductOutput> outputs, const float* x, std::size_t ldx, std::size_t m,
              ThreadPool& pool);

}  // namespace windrow
