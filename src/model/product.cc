// Packing of weights into tiles, and the split of a product over threads.
#include "model/product.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/checked.h"
#include "model/product_affine.h"
#include "model/product_input.h"
#include "model/product_layout.h"

namespace windrow {
namespace {

using internal::kTileRows;

// A section shorter than this many multiplications runs on the caller alone: waking the pool costs
// about as much as a core needs for them (2 us).
constexpr std::size_t kAloneMultiplications = 32768;

// Copies `count` words of each of `rows` source rows into lines of 16 words: out[word][row]. Goes
// through the words in runs, so that each cache line of the source is read once: whole rows of
// 4096 * n bytes would fall on the same few lines of L1.
template <typename Word>
void transpose_words(const std::byte* in, std::size_t row_bytes, std::size_t rows, std::size_t count,
                     std::byte* out) {
  constexpr std::size_t run = 64 / sizeof(Word);
  for (std::size_t begin = 0; begin < count; begin += run) {
    const std::size_t n = std::min(run, count - begin);
    for (std::size_t r = 0; r < rows; r++) {
      Word words[run];
      std::memcpy(words, in + r * row_bytes + begin * sizeof(Word), n * sizeof(Word));
      for (std::size_t i = 0; i < n; i++) {
        std::memcpy(out + ((begin + i) * kTileRows + r) * sizeof(Word), &words[i], sizeof(Word));
      }
    }
  }
}

void pack_tile(DType dtype, const std::byte* in, std::size_t rows, std::size_t cols, std::byte* out) {
  const std::size_t row_bytes = cols * dtype_size(dtype);
  if (dtype == DType::kF32) return transpose_words<std::uint32_t>(in, row_bytes, rows, cols, out);
  if (dtype == DType::kF16) return transpose_words<std::uint16_t>(in, row_bytes, rows, cols, out);
  transpose_words<std::uint32_t>(in, row_bytes, rows, cols / 2, out);
  if (cols % 2 == 0) return;
  for (std::size_t r = 0; r < rows; r++) {  // the last column has a dword of its own, high half zero
    std::memcpy(out + (cols / 2 * kTileRows + r) * 4, in + r * row_bytes + (cols - 1) * 2, 2);
  }
}

}  // namespace

Result<PackedMatrix> PackedMatrix::pack(DType dtype, const void* data, std::size_t rows, std::size_t cols,
                                        ThreadPool& pool) {
  if (!is_float(dtype)) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("product weights: type {}, supported are F32, F16 and BF16", dtype_name(dtype)));
  }
  if (rows == 0 || cols == 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("product weights: shape [{}, {}] is empty", rows, cols));
  }
  if (data == nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("product weights: no data for shape [{}, {}]", rows, cols));
  }
  const std::size_t tiles = div_up(rows, kTileRows);
  const auto tile_stride = internal::checked_tile_stride(dtype, cols);
  const auto bytes = tile_stride ? checked_mul(*tile_stride, tiles) : std::nullopt;
  if (!bytes) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("product weights: shape [{}, {}] of {} exceeds the address space", rows, cols,
                              dtype_name(dtype)));
  }
  Result<Arena> arena = Arena::create(*bytes, "product weights");
  if (!arena.ok()) return arena.status();

  PackedMatrix packed;
  packed.arena_ = std::move(*arena);  // zero filled: the padding
  packed.rows_ = rows;
  packed.cols_ = cols;
  packed.tile_stride_ = *tile_stride;
  packed.dtype_ = dtype;
  const auto* source = static_cast<const std::byte*>(data);
  pool.parallel_for(tiles, [&](std::size_t tile, int) {
    const std::size_t row = tile * kTileRows;
    pack_tile(dtype, source + row * cols * dtype_size(dtype), std::min(kTileRows, rows - row), cols,
              packed.arena_.data() + tile * *tile_stride);
  });
  return packed;
}

void products(std::span<const ProductOutput> outputs, const float* x, std::size_t ldx, std::size_t m,
              ThreadPool& pool) {
  if (outputs.empty() || m == 0) return;
  const std::size_t cols = outputs[0].w->cols();
  std::size_t tiles = 0, weights = 0;
  for (const ProductOutput& o : outputs) {
    assert(o.w->cols() == cols && cols != 0 && ldx >= cols && o.ldy >= o.w->rows() && o.y != nullptr);
    tiles += div_up(o.w->rows(), kTileRows);
    weights += o.w->rows() * cols;
  }
  const std::size_t parts =
      weights * m < kAloneMultiplications ? 1 : std::min(tiles, static_cast<std::size_t>(pool.threads()));
  const internal::TileFunction run = internal::tile_function();
  const internal::AffineFunctions affine = internal::affine_functions();
  const internal::InputForms forms(outputs, {x, ldx, cols, m}, pool);

  // All outputs' tiles in one line, cut into one contiguous range a thread.
  pool.parallel_for(parts, [&](std::size_t part, int) {
    const std::size_t begin = tiles * part / parts, end = tiles * (part + 1) / parts;
    std::size_t first = 0;  // of the current output, in that line
    for (const ProductOutput& o : outputs) {
      const std::size_t count = div_up(o.w->rows(), kTileRows), last = first + count;
      if (begin < last && first < end) {
        const std::size_t from = std::max(begin, first) - first, to = std::min(end, last) - first;
        if (o.w->is_affine()) {
          const internal::InputFormat format = internal::input_format(*o.w);
          affine.run({o.w->data(),
                      {o.w->bits(), format.group, o.w->dtype()},
                      format.compute,
                      cols,
                      o.w->rows(),
                      from,
                      to,
                      x,
                      ldx,
                      forms.find(format),
                      m,
                      o.y,
                      o.ldy});
        } else {
          run({o.w->data(), o.w->dtype(), o.w->tile_stride(), cols, o.w->rows(), from, to, x, ldx,
               forms.panel(), m, o.y, o.ldy});
        }
      }
      first = last;
    }
  });
}

}  // namespace windrow
