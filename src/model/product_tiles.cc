// What one thread does of a product: passes of rows over blocks of tiles, per SIMD target.
//
// One group of k of a block of tiles at a time: the group's weights stay in L1 for all rows of the
// pass, so memory is read once a pass and in several long streams. Few rows are read where they lie and
// 16-bit weights unpacked in registers. Many rows come as a panel, copied once for all tiles in the order
// the kernel reads, and the group's weights are unpacked to f32 in L1 once a pass: 10 to 20 % faster
// on Zen 3 at 512 rows (rows of x far apart miss L1 and its TLB). Which way a row goes changes none of
// its bits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/product_tiles.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "model/product_kernels-inl.h"
#include "model/product_layout.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {

constexpr std::size_t kSumStride = std::max(kFewRowsTiles, kManyRowsTiles) * kTileRows;
// Tiles of a block with a panel, whole strips: 12 KB of weights share L1 with a row block of x.
constexpr std::size_t kPanelTiles = 3;
// Rows of a pass over the weights: their sums (36 KB) are on the stack and stay in L2.
constexpr std::size_t kPassRows = 192;
// From how many rows on a panel pays.
constexpr std::size_t kPanelRowsFrom = 24;

// table[rows - 1][tiles - 1]
using GroupFunction = void (*)(const std::byte*, std::size_t, std::ptrdiff_t, std::size_t, const float*,
                               std::size_t, float*, std::size_t);
constexpr std::size_t kMostTiles = *std::max_element(kMaxTiles, kMaxTiles + kMaxRows);
using Table = std::array<std::array<GroupFunction, kMostTiles>, kMaxRows>;

template <class Format, std::size_t R, std::size_t... T>
constexpr std::array<GroupFunction, kMostTiles> table_row(std::index_sequence<T...>) {
  return {Kernel<Format, R, T + 1>::run...};
}
template <class Format, std::size_t... R>
constexpr Table table(std::index_sequence<R...>) {
  return {table_row<Format, R + 1>(std::make_index_sequence<kMaxTiles[R]>())...};
}
template <class Format>
constexpr Table kKernels = table<Format>(std::make_index_sequence<kMaxRows>());

// Fetches a group's columns of some rows of x, which lie far apart: no hardware prefetcher sees them
// coming.
void fetch_rows(const float* x, std::size_t ldx, std::size_t rows) {
  for (std::size_t r = 0; r < rows; r++) {
    for (std::size_t i = 0; i < kGroup; i += 64 / sizeof(float)) hwy::Prefetch(x + r * ldx + i);
  }
}

// One group of a block for a pass of rows.
template <class Format>
void group(const std::byte* w, std::size_t tile_stride, std::ptrdiff_t ahead, std::size_t tiles,
           std::size_t cols, const float* x, std::size_t ldx, std::size_t rows, bool last, float* sums) {
  // Row blocks as equal as can be: 4 + 4, not 6 + 2.
  const std::size_t blocks = (rows + kMaxRows - 1) / kMaxRows;
  const auto begin = [&](std::size_t block) { return rows * block / blocks; };
  for (std::size_t i = 0; i < blocks; i++) {
    const std::size_t r = begin(i), height = begin(i + 1) - r;
    if (i + 1 < blocks) {
      fetch_rows(x + begin(i + 1) * ldx, ldx, begin(i + 2) - begin(i + 1));
    } else if (!last) {
      fetch_rows(x + kGroup, ldx, begin(1));
    }
    const std::size_t most = kMaxTiles[height - 1];
    for (std::size_t t = 0; t < tiles; t += most) {
      const std::size_t width = std::min(most, tiles - t);
      kKernels<Format>[height - 1][width - 1](w + t * tile_stride, tile_stride, ahead, cols, x + r * ldx, ldx,
                                              sums + r * kSumStride + t * kTileRows, kSumStride);
    }
  }
}

// One pass of rows over the tiles [tile, tile + tiles); those at `following` are read next.
template <class Format>
void block(const TileJob& job, std::size_t tile, std::size_t tiles, std::size_t following, std::size_t row,
           std::size_t rows) {
  HWY_ALIGN float sums[kPassRows * kSumStride];
  std::fill_n(sums, rows * kSumStride, 0.0f);
  const std::byte* begin = job.weights + tile * job.tile_stride;
  const float* x = job.x + row * job.ldx;
  constexpr std::size_t group_bytes = kGroup / 2 * Format::kPairBytes;
  for (std::size_t k = 0; k < job.cols; k += kGroup) {
    const bool last = k + kGroup >= job.cols;
    const std::byte* w = begin + k / kGroup * group_bytes;
    const std::byte* next = last ? job.weights + following * job.tile_stride : w + group_bytes;
    group<Format>(w, job.tile_stride, next - w, tiles, std::min(kGroup, job.cols - k), x + k, job.ldx, rows,
                  last, sums);
  }
  const std::size_t output = tile * kTileRows;
  const std::size_t outputs = std::min(tiles * kTileRows, job.outputs - output);
  for (std::size_t r = 0; r < rows; r++) {
    std::memcpy(job.y + (row + r) * job.ldy + output, sums + r * kSumStride, outputs * sizeof(float));
  }
}

// A group's weights of a block of tiles as f32, [strip][column][kStripOutputs].
template <class Format>
void unpack(const std::byte* w, std::size_t tile_stride, std::ptrdiff_t ahead, std::size_t tiles,
            std::size_t cols, float* out) {
  for (std::size_t t = 0; t < tiles; t++) {
    const std::byte* in = w + t * tile_stride;
    for (std::size_t pair = 0; pair < column_pairs(cols); pair++, in += Format::kPairBytes) {
      for (std::size_t line = 0; line < Format::kPairBytes; line += 64) {
        __builtin_prefetch(in + line + ahead, 0, 2);
      }
      for (std::size_t part = 0; part < kParts; part++) {
        const std::size_t vector = t * kParts + part;
        float* to = out + (vector / kStrip * kGroup + 2 * pair) * kStripOutputs + vector % kStrip * kLanes;
        hn::Store(Format::template load<0>(in, part), F(), to);
        hn::Store(Format::template load<1>(in, part), F(), to + kStripOutputs);
      }
    }
  }
}

// As block, for rows that come in a panel; `row` is a multiple of kPanelRows. Strips beyond the tiles and
// rows beyond the last are computed with them, from zeros, and dropped.
template <class Format>
void panel_block(const TileJob& job, std::size_t tile, std::size_t tiles, std::size_t following,
                 std::size_t row, std::size_t rows) {
  HWY_ALIGN float sums[kPassRows * kPanelTiles * kTileRows];
  HWY_ALIGN float weights[kPanelTiles * kTileRows * kGroup];
  constexpr std::size_t stride = kPanelTiles * kTileRows;
  const std::size_t blocks = div_up(rows, kPanelRows), strips = div_up(tiles * kTileRows, kStripOutputs);
  std::fill_n(sums, blocks * kPanelRows * stride, 0.0f);
  if (tiles < kPanelTiles) std::fill_n(weights, std::size(weights), 0.0f);
  const std::byte* begin = job.weights + tile * job.tile_stride;
  constexpr std::size_t group_bytes = kGroup / 2 * Format::kPairBytes;
  for (std::size_t k = 0; k < job.cols; k += kGroup) {
    const std::byte* w = begin + k / kGroup * group_bytes;
    const std::byte* next =
        k + kGroup >= job.cols ? job.weights + following * job.tile_stride : w + group_bytes;
    const std::size_t cols = std::min(kGroup, job.cols - k);
    unpack<Format>(w, job.tile_stride, next - w, tiles, cols, weights);
    for (std::size_t i = 0; i < blocks; i++) {
      const float* x = job.panel + row * job.cols + (k * blocks + i * cols) * kPanelRows;
      for (std::size_t s = 0; s < strips; s++) {
        panel_strip(weights + s * kGroup * kStripOutputs, cols, x,
                    sums + i * kPanelRows * stride + s * kStripOutputs, stride);
      }
    }
  }
  const std::size_t output = tile * kTileRows;
  const std::size_t outputs = std::min(tiles * kTileRows, job.outputs - output);
  for (std::size_t r = 0; r < rows; r++) {
    std::memcpy(job.y + (row + r) * job.ldy + output, sums + r * stride, outputs * sizeof(float));
  }
}

// One block of kPanelRows rows of x. A panel is [pass][group of k][block][column][row]: what a pass reads
// of a group is one stream. Rows beyond the last are zeros.
void fill_panel(const float* x, std::size_t ldx, std::size_t cols, std::size_t rows, std::size_t block,
                float* panel) {
  const std::size_t first = block * kPanelRows, height = std::min(kPanelRows, rows - first);
  const std::size_t pass = first / kPassRows * kPassRows;
  const std::size_t blocks = div_up(std::min(kPassRows, rows - pass), kPanelRows);
  const float* from[kPanelRows];
  for (std::size_t r = 0; r < kPanelRows; r++) from[r] = x + (first + std::min(r, height - 1)) * ldx;
  for (std::size_t k = 0; k < cols; k += kGroup) {
    const std::size_t n = std::min(kGroup, cols - k);
    float* out = panel + pass * cols + (k * blocks + (first - pass) / kPanelRows * n) * kPanelRows;
    for (std::size_t i = 0; i < n; i++) {
      for (std::size_t r = 0; r < kPanelRows; r++) out[i * kPanelRows + r] = from[r][k + i];
    }
    for (std::size_t r = height; r < kPanelRows; r++) {
      for (std::size_t i = 0; i < n; i++) out[i * kPanelRows + r] = 0;
    }
  }
}

template <class Format>
void run_format(const TileJob& job) {
  for (std::size_t row = 0; row < job.rows; row += kPassRows) {
    const std::size_t rows = std::min(kPassRows, job.rows - row);
    const std::size_t most = job.panel != nullptr ? kPanelTiles
                             : rows <= kMaxRows   ? kFewRowsTiles
                                                  : kManyRowsTiles;
    for (std::size_t tile = job.tile_begin; tile < job.tile_end; tile += most) {
      const std::size_t end = std::min(tile + most, job.tile_end);
      const std::size_t following = end < job.tile_end ? end : job.tile_begin;
      if (job.panel != nullptr) {
        panel_block<Format>(job, tile, end - tile, following, row, rows);
      } else {
        block<Format>(job, tile, end - tile, following, row, rows);
      }
    }
  }
}

void run_tiles(const TileJob& job) {
  switch (job.dtype) {
    case DType::kF32: return run_format<F32Format>(job);
    case DType::kF16: return run_format<F16Format>(job);
    default: return run_format<BF16Format>(job);
  }
}

PanelFunctions panel_functions() { return {kPanelRows, kPanelRowsFrom, &fill_panel}; }

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow::internal {

alignas(64) std::uint32_t high_half[kTileRows] = {
    0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000,
    0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};

HWY_EXPORT(run_tiles);
TileFunction tile_function() { return HWY_DYNAMIC_DISPATCH(run_tiles); }
HWY_EXPORT(panel_functions);
PanelFunctions panel_functions() { return HWY_DYNAMIC_DISPATCH(panel_functions)(); }

}  // namespace windrow::internal
#endif
