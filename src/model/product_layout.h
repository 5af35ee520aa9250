// Where a weight lies inside a PackedMatrix, and the job a kernel is given.
//
// A tile is 16 rows of W (16 outputs). Tiles follow one another; a tile holds all of K, two
// columns ("a pair") at a time, so that lanes run over outputs and an activation is a broadcast:
//   f32    128 B a pair: 16 weights of column k, 16 of column k + 1
//   f16     64 B a pair: the same
//   bf16    64 B a pair: 16 dwords, low half column k, high half column k + 1, so that one shift or
//           one mask makes 16 f32
// An odd K ends in a pair whose second column is zero and never used; rows past N are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/checked.h"
#include "windrow/dtype.h"

namespace windrow::internal {

inline constexpr std::size_t kTileRows = 16;
// Columns of one chain of FMAs; the group's sum is then added to the output. Short chains round
// 3 to 6 times less than one chain over K, at no cost.
inline constexpr std::size_t kGroup = 64;

constexpr std::size_t pair_bytes(DType dtype) { return dtype == DType::kF32 ? 128 : 64; }
constexpr std::size_t column_pairs(std::size_t cols) { return cols / 2 + cols % 2; }

// Bytes of a tile, and so from one to the next; nullopt when they overflow.
inline std::optional<std::size_t> checked_tile_stride(DType dtype, std::size_t cols) {
  return checked_mul(column_pairs(cols), pair_bytes(dtype));
}

// 0xffff0000 sixteen times. A variable, so that the compiler reads it from memory where it is used
// and keeps no register for it.
extern std::uint32_t high_half[kTileRows];

// Outputs [tile_begin, tile_end) of one matrix for `rows` rows of x.
struct TileJob {
  const std::byte* weights;  // tile 0
  DType dtype;
  std::size_t tile_stride;
  std::size_t cols;     // K
  std::size_t outputs;  // N; a last tile beyond it is cut when y is written
  std::size_t tile_begin, tile_end;
  const float* x;
  std::size_t ldx;
  const float* panel;  // x in panel order (fill_panel), or null: read x where it lies
  std::size_t rows;
  float* y;  // y[row * ldy + output]
  std::size_t ldy;
};

using TileFunction = void (*)(const TileJob& job);
// The kernels for this processor's best target.
TileFunction tile_function();

// The copy of x that kernels of many rows read: blocks of `block_rows` rows, each [column][row].
struct PanelFunctions {
  std::size_t block_rows;
  std::size_t from_rows;  // a product of fewer rows does without
  // Fills what block `block` takes of `panel`, whose size is [rows rounded up to block_rows][cols].
  void (*fill)(const float* x, std::size_t ldx, std::size_t cols, std::size_t rows, std::size_t block,
               float* panel);
};
PanelFunctions panel_functions();

}  // namespace windrow::internal
