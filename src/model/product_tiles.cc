// Blocks of tiles times passes of rows, per SIMD target: what runs inside one thread's share of a
// product.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/product_tiles.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "model/product_kernels-inl.h"
#include "model/product_layout.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {

// Tiles walked together, each one sequential stream through memory. Eight streams read 20 to 45 %
// faster than one (Zen 4), and a group of them fits L1.
constexpr std::size_t kBlockTiles = 8;
// Rows per pass over the weights. A pass's sums (48 KB with 8 tiles) stay in L2 and on the stack;
// both kinds of row blocks, 6 and 8, divide it.
constexpr std::size_t kPassRows = 96;

using GroupFunction = void (*)(const std::byte*, std::size_t, std::ptrdiff_t, std::size_t, const float*,
                               std::size_t, float*, std::size_t);
constexpr std::size_t kMostTiles = *std::max_element(kMaxTiles, kMaxTiles + kMaxRows);
using RowTable = std::array<GroupFunction, kMostTiles>;

template <class Format, std::size_t R, std::size_t... T>
constexpr RowTable row_table(std::index_sequence<T...>) {
  return {group_kernel<Format, R, T + 1>...};
}
template <class Format, std::size_t... R>
constexpr std::array<RowTable, kMaxRows> kernel_table(std::index_sequence<R...>) {
  return {row_table<Format, R + 1>(std::make_index_sequence<kMaxTiles[R]>())...};
}
// kKernels<Format>[rows - 1][tiles - 1]
template <class Format>
constexpr std::array<RowTable, kMaxRows> kKernels =
    kernel_table<Format>(std::make_index_sequence<kMaxRows>());

// Where part i begins when n is cut into `parts` parts as equal as can be.
constexpr std::size_t cut(std::size_t n, std::size_t parts, std::size_t i) { return n * i / parts; }
constexpr std::size_t parts_of(std::size_t n, std::size_t most) { return (n + most - 1) / most; }

// One group of `tiles` tiles for `rows` rows.
template <class Format>
void group(const std::byte* w, std::size_t tile_stride, std::ptrdiff_t ahead, std::size_t tiles,
           std::size_t cols, const float* x, std::size_t ldx, std::size_t rows, float* sums) {
  const std::size_t row_parts = parts_of(rows, kMaxRows);
  for (std::size_t i = 0; i < row_parts; i++) {
    const std::size_t r = cut(rows, row_parts, i), height = cut(rows, row_parts, i + 1) - r;
    const std::size_t tile_parts = parts_of(tiles, kMaxTiles[height - 1]);
    for (std::size_t j = 0; j < tile_parts; j++) {
      const std::size_t t = cut(tiles, tile_parts, j), width = cut(tiles, tile_parts, j + 1) - t;
      kKernels<Format>[height - 1][width - 1](w + t * tile_stride, tile_stride, ahead, cols, x + r * ldx, ldx,
                                              sums + r * kBlockTiles * kTileRows + t * kTileRows,
                                              kBlockTiles * kTileRows);
    }
  }
}

// Tiles [tile, tile + tiles) for `rows` rows; the tiles after `next` are read after these.
template <class Format>
void block(const TileJob& job, std::size_t tile, std::size_t tiles, std::size_t next, std::size_t row,
           std::size_t rows) {
  HWY_ALIGN float sums[kPassRows * kBlockTiles * kTileRows];
  std::fill_n(sums, rows * kBlockTiles * kTileRows, 0.0f);
  constexpr std::size_t group_bytes = kGroup / 2 * Format::kPairBytes;
  const std::size_t tile_stride = column_pairs(job.cols) * Format::kPairBytes;
  const std::byte* begin = job.weights + tile * tile_stride;
  const std::byte* following = job.weights + next * tile_stride;
  const float* x = job.x + row * job.ldx;
  for (std::size_t k = 0; k < job.cols; k += kGroup) {
    const std::byte* w = begin + k / kGroup * group_bytes;
    const std::byte* ahead = k + kGroup < job.cols ? w + group_bytes : following;
    group<Format>(w, tile_stride, ahead - w, tiles, std::min(kGroup, job.cols - k), x + k, job.ldx, rows,
                  sums);
  }
  const std::size_t output = tile * kTileRows;
  const std::size_t outputs = std::min(tiles * kTileRows, job.outputs - output);
  for (std::size_t r = 0; r < rows; r++) {
    std::memcpy(job.y + (row + r) * job.ldy + output, sums + r * kBlockTiles * kTileRows,
                outputs * sizeof(float));
  }
}

template <class Format>
void all_blocks(const TileJob& job) {
  const std::size_t tiles = job.tile_end - job.tile_begin;
  const std::size_t blocks = parts_of(tiles, kBlockTiles), passes = parts_of(job.rows, kPassRows);
  for (std::size_t p = 0; p < passes; p++) {
    const std::size_t row = cut(job.rows, passes, p), rows = cut(job.rows, passes, p + 1) - row;
    for (std::size_t b = 0; b < blocks; b++) {
      const std::size_t tile = job.tile_begin + cut(tiles, blocks, b);
      const std::size_t end = job.tile_begin + cut(tiles, blocks, b + 1);
      block<Format>(job, tile, end - tile, b + 1 < blocks ? end : job.tile_begin, row, rows);
    }
  }
}

void run_tiles(const TileJob& job) {
  switch (job.dtype) {
    case DType::kF32: return all_blocks<F32Format>(job);
    case DType::kF16: return all_blocks<F16Format>(job);
    default: return all_blocks<BF16Format>(job);
  }
}

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow::internal {

HWY_EXPORT(run_tiles);
TileFunction tile_function() { return HWY_DYNAMIC_DISPATCH(run_tiles); }

}  // namespace windrow::internal
#endif
