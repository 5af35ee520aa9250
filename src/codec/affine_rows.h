// Rows of any length through the affine codec, in the arrays of an MLX checkpoint: for weights, which are
// wider than the vectors of a state.
#pragma once

#include <cstddef>

#include "windrow/codec.h"
#include "windrow/dtype.h"
#include "windrow/threads.h"

namespace windrow {

// How a matrix is quantized. What a Codec's constructor says of bits and group holds.
struct AffineFormat {
  int bits = 0;
  int group = 0;
  friend bool operator==(const AffineFormat&, const AffineFormat&) = default;
};

// Bytes of one row of each array. REQUIRES cols to be a multiple of the group.
constexpr std::size_t affine_code_bytes(const AffineFormat& f, std::size_t cols) {
  return cols / 8 * static_cast<std::size_t>(f.bits);
}
inline std::size_t affine_param_bytes(const AffineFormat& f, std::size_t cols, DType params) {
  return cols / static_cast<std::size_t>(f.group) * dtype_size(params);
}

// The arrays of a matrix [rows, cols], row-major, any alignment: codes are one little-endian bit stream a
// row; scales and biases [rows, cols / group] numbers of one float type.
template <class Byte>
struct AffineArrays {
  Byte* codes = nullptr;
  Byte* scales = nullptr;
  Byte* biases = nullptr;
};

// Quantizes `rows` rows of `dtype` (f32, f16 or bf16; any alignment) as MLX quantizes a tensor of that type,
// bit for bit; scales and biases are of it, too. On the pool's threads.
void quantize_rows(const AffineFormat& format, DType dtype, const std::byte* from, std::size_t rows,
                   std::size_t cols, const AffineArrays<std::byte>& to, ThreadPool& pool);

// out[cols] = (scale * code + bias) * factor of one row, each operation rounded to f32 once: what MLX
// computes with activations of f32.
void dequantize_row(const AffineFormat& format, DType params, const AffineArrays<const std::byte>& row,
                    std::size_t cols, float factor, float* out);

}  // namespace windrow
