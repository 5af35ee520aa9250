#include "codec/affine_rows.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "base/load_float.h"
#include "codec/affine.h"

namespace windrow {
namespace {

// The codec takes vectors of at most kMaxDim, a multiple of every group.
constexpr std::size_t kPiece = affine::kMaxDim;

Codec plain(DType dtype) {
  return dtype == DType::kF32 ? Codec::f32() : dtype == DType::kF16 ? Codec::f16() : Codec::bf16();
}

// A record's params <-> the two arrays of numbers.
void part_params(DType dtype, const std::uint32_t* params, std::size_t groups, std::byte* scales,
                 std::byte* biases) {
  const std::size_t size = dtype_size(dtype);
  for (std::size_t g = 0; g < groups; g++) {  // little endian: the low half comes first
    const std::uint32_t* scale = size == 4 ? params + 2 * g : params + g;
    const std::uint32_t bias = size == 4 ? params[2 * g + 1] : params[g] >> 16;
    std::memcpy(scales + g * size, scale, size);
    std::memcpy(biases + g * size, &bias, size);
  }
}

void quantize_row(const Codec& codec, const std::byte* from, std::size_t cols, std::byte* codes,
                  std::byte* scales, std::byte* biases) {
  const Codec source = plain(codec.input());
  const std::size_t size = dtype_size(codec.input());
  alignas(64) std::uint32_t raw[kPiece];
  alignas(64) float values[kPiece];
  alignas(64) std::uint32_t words[affine::kMaxWords];
  std::uint32_t params[affine::kMaxParams];
  for (std::size_t done = 0; done < cols; done += kPiece) {
    const std::size_t n = std::min(kPiece, cols - done);
    const int dim = static_cast<int>(n);
    const auto count = [](int words_of) { return static_cast<std::size_t>(words_of); };
    std::memcpy(raw, from + done * size, n * size);
    decode_record(source, {raw, count(source.record_words(dim))}, {}, {values, n});
    const std::size_t code_words = count(codec.record_words(dim));
    encode_record(codec, {values, n}, {words, code_words}, {params, count(codec.record_params(dim))});
    std::memcpy(codes, words, 4 * code_words);
    codes += 4 * code_words;
    const std::size_t groups = n / static_cast<std::size_t>(codec.group());
    part_params(codec.input(), params, groups, scales, biases);
    scales += groups * size;
    biases += groups * size;
  }
}

}  // namespace

void quantize_rows(const AffineFormat& format, DType dtype, const std::byte* from, std::size_t rows,
                   std::size_t cols, const AffineArrays<std::byte>& to, ThreadPool& pool) {
  const Codec codec = Codec::affine(format.bits, format.group, dtype);
  assert(codec.valid() && cols % static_cast<std::size_t>(format.group) == 0);
  const std::size_t row_bytes = cols * dtype_size(dtype), code_bytes = affine_code_bytes(format, cols);
  const std::size_t param_bytes = affine_param_bytes(format, cols, dtype);
  pool.parallel_for(rows, [&](std::size_t r, int) {
    quantize_row(codec, from + r * row_bytes, cols, to.codes + r * code_bytes, to.scales + r * param_bytes,
                 to.biases + r * param_bytes);
  });
}

void dequantize_row(const AffineFormat& format, DType params, const AffineArrays<const std::byte>& row,
                    std::size_t cols, float factor, float* out) {
  // As parameters of f32, whatever type they are of: a codec rounds its results to its own type.
  const Codec codec = Codec::affine(format.bits, format.group, DType::kF32);
  const std::size_t size = dtype_size(params), group = static_cast<std::size_t>(format.group);
  alignas(64) std::uint32_t words[affine::kMaxWords];
  std::uint32_t record[affine::kMaxParams];
  for (std::size_t done = 0; done < cols; done += kPiece) {
    const std::size_t n = std::min(kPiece, cols - done), first = done / group;
    const auto code_words = static_cast<std::size_t>(codec.record_words(static_cast<int>(n)));
    std::memcpy(words, row.codes + affine_code_bytes(format, done), 4 * code_words);
    for (std::size_t g = 0; g < n / group; g++) {
      const float scale = load_float(params, row.scales + (first + g) * size);
      const float bias = load_float(params, row.biases + (first + g) * size);
      std::memcpy(record + 2 * g, &scale, sizeof scale);
      std::memcpy(record + 2 * g + 1, &bias, sizeof bias);
    }
    decode_record(codec, {words, code_words}, {record, 2 * n / group}, {out + done, n});
  }
  if (factor == 1.0f) return;
  for (std::size_t i = 0; i < cols; i++) out[i] *= factor;
}

}  // namespace windrow
