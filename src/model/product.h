// Batch-invariant matrix products  Y[M, N] = X[M, K] * W[N, K]^T,  f32 activations.
//
// Row m of Y has the same bits whatever M is, whatever the other rows hold, and on any number of
// threads: every output is one fixed chain over k, a group of columns at a time, the groups added in order.
// A library GEMM does not keep this. Weights are plain numbers (f32, f16, bf16) or affine codes.
#pragma once

#include <cstddef>
#include <span>

#include "base/memory.h"
#include "windrow/compute.h"
#include "windrow/dtype.h"
#include "windrow/status.h"
#include "windrow/threads.h"

namespace windrow {

// A quantized matrix as MLX stores it: weight = scale * code + bias, a scale and a bias for each `group`
// columns of a row.
struct AffineWeights {
  // [rows, cols * bits / 32] u32, little endian: a row's codes are one stream of bits, first code lowest.
  const std::byte* codes = nullptr;
  // [rows, cols / group] numbers of type `params` each.
  const void* scales = nullptr;
  const void* biases = nullptr;
  DType params = DType::kBF16;  // f32, f16 or bf16
  int bits = 4;                 // 2, 3, 4, 5, 6 or 8
  int group = 64;               // 32, 64 or 128; cols is a multiple
};

// Weights in the kernels' tile layout (product_layout.h, product_affine.h), in their own type and as many
// bytes as the file's but for N rounded up to 16 and, of plain numbers, K to 2. Immutable once packed, so any
// number of threads may multiply by it.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // `data`: [rows N, cols K] row-major numbers of `dtype`, any alignment. Copies, on the pool's threads.
  // Errors: kUnsupported for another type, kInvalidArgument for an empty shape, null data or a shape
  // beyond the address space, kResourceExhausted without memory.
  static Result<PackedMatrix> pack(DType dtype, const void* data, std::size_t rows, std::size_t cols,
                                   ThreadPool& pool);
  // The same of quantized weights, each array at any alignment. `compute` is how every product by this
  // matrix is computed. Errors as above, and kInvalidArgument for bits, groups or columns other than
  // AffineWeights says.
  static Result<PackedMatrix> pack(const AffineWeights& weights, std::size_t rows, std::size_t cols,
                                   Compute compute, ThreadPool& pool);
  std::size_t rows() const noexcept { return rows_; }
  std::size_t cols() const noexcept { return cols_; }
  // Of the weights, or of the scales and biases of quantized ones.
  DType dtype() const noexcept { return dtype_; }
  bool is_affine() const noexcept { return bits_ != 0; }
  int bits() const noexcept { return bits_; }    // of a code; 0: plain numbers
  int group() const noexcept { return group_; }  // columns of a scale; 0: plain numbers
  Compute compute() const noexcept { return compute_; }
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
  int bits_ = 0;
  int group_ = 0;
  Compute compute_ = Compute::kDefault;
};

// One output of a product: y[m * ldy + n].
struct ProductOutput {
  const PackedMatrix* w = nullptr;
  float* y = nullptr;
  std::size_t ldy = 0;
};

// All outputs from one x[m * ldx + k] in one parallel section (q, k and v; gate and up), plain and affine in
// any mix: their tiles of 16 outputs are dealt out to the threads as one line. Any m >= 0; small products run
// on the caller alone. All weights have the same cols; ldx >= cols, ldy >= rows; no y overlaps x or another
// y. What lies between the rows of a y is left alone. Needs up to 70 KB of each thread's stack and a few
// copies of x [m, cols] in a buffer that the calling thread keeps (without memory for it: slower, same bits).
//
// The chain of one output, for every target; targets without FMA round the product and the sum.
//   plain:  y = 0; for each 64 columns, in order: a = 0; a = fma(w, x, a) for each column, in order; y = y +
//   a.
//           A NaN or infinity in a row of x reaches that row of y only.
//   affine: y = 0; for each group of columns, in order: y = fma(scale, a, y); y = fma(bias, s, y), where
//     kF32      a = 0; a = fma(code, x, a) for each column, in order; s = the sum of x, in order
//     kDefault  unit = max|x| of the group / 4177850; n = round(x * (4177850 / max|x|)): 23 bits with the
//     sign
//               n = 128 * h + l, -64 <= l < 64; a = fma(f32(sum code * h), 128, f32(sum code * l)) * unit;
//               s = f32(sum n) * unit; the sums are exact integers
//               (with codes of 8 bits: as kF32, which is then faster and no less exact)
//     kFast     the same with 32638 and l = 0: 16 bits with the sign
//           Rounding meets the weight, not scale * code, as s is the sum of the rounded x. A row of x whose
//           largest magnitude is outside [2^-64, 2^64) is brought inside by a power of two, 2^-64 or 2^64,
//           and its y taken back; a row with a NaN or infinity makes a row of y that is all NaN.
void products(std::span<const ProductOutput> outputs, const float* x, std::size_t ldx, std::size_t m,
              ThreadPool& pool);

}  // namespace windrow
