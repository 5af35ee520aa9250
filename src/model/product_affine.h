// Affine weights (x = scale * code + bias in groups along K) inside a PackedMatrix, and the jobs of their
// kernels.
//
// A tile is 16 outputs; it holds all of K, one group after another, in 64-byte lines whose 16 dwords belong
// to the 16 outputs:
//   group  = group / 32 chunks, then one column pair of the parameters' type (product_layout.h): the 16
//            scales, then the 16 biases
//   chunk  = 32 columns of `bits` bits, which are `bits` lines: the planes one after another
//   planes = 2, 4 or 8 bits wide for those bits; 3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2, low bits first
// A plane of w bits takes w lines. Its bits of columns 4j .. 4j + 3 stand in the four bytes of a dword of
// line j * w / 8, at bit j * w % 8: one shift and one mask make a vector of bytes, whatever the width, and
// columns come out in order. The file's bytes exactly, but for N rounded up to 16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/checked.h"
#include "model/product_layout.h"
#include "windrow/compute.h"
#include "windrow/dtype.h"

namespace windrow::internal {

inline constexpr std::size_t kChunk = 32;  // columns; the smallest group
inline constexpr std::size_t kMaxAffineGroup = 128;

constexpr bool is_affine_bits(int bits) { return bits >= 2 && bits <= 8 && bits != 7; }
constexpr bool is_affine_group(int group) { return group == 32 || group == 64 || group == 128; }

// The wide plane's bits, and those of the narrow one above it (0: none).
constexpr int low_plane(int bits) { return bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits; }
constexpr int high_plane(int bits) { return bits - low_plane(bits); }

// The chain that a matrix is computed by. Sums of bytes of x with codes of 8 bits must be widened at each
// step, for which AVX2 takes longer than for f32 FMAs: there the default is that chain.
constexpr Compute affine_chain(int bits, Compute compute) {
  return bits == 8 && compute == Compute::kDefault ? Compute::kF32 : compute;
}

struct AffineFormat {
  int bits = 0;
  std::size_t group = 0;
  DType params = DType::kF32;

  std::size_t chunk_bytes() const { return static_cast<std::size_t>(bits) * 64; }
  std::size_t code_bytes() const { return group / kChunk * chunk_bytes(); }
  std::size_t group_bytes() const { return code_bytes() + pair_bytes(params); }
};

// ---- activations, prepared once for all tiles. Rows come in blocks of kBlockRows; a last, lower block of H
// rows is laid out as H rows. One (group, block) of H rows holds, a dword each:
//   kF32            x [column][row]
//   kDefault, kFast the upper 16 bits of fixed point, columns (4j, 4j + 2) and (4j + 1, 4j + 3) in a dword:
//                   [j][2][row]
//   kDefault        the lower 7 bits as bytes, columns 4j .. 4j + 3 in a dword: [j][row]
//   both, if H = 1  the upper 16 bits once more as bytes: all high ones [j], then all low, signed ones [j]
//   all             the sums of the group's x [row]; kDefault and kFast: units of the fixed point [row]
inline constexpr std::size_t kBlockRows = 4;

struct InputFormat {
  Compute compute = Compute::kDefault;
  std::size_t group = 0;

  // Dwords before the sums, a row.
  std::size_t words(std::size_t height) const {
    if (compute == Compute::kF32) return group;
    return group / 2 + (compute == Compute::kDefault ? group / 4 : 0) + (height == 1 ? group / 2 : 0);
  }
  std::size_t block_bytes(std::size_t height) const { return round_up((words(height) + 2) * height * 4, 64); }
  friend bool operator==(const InputFormat&, const InputFormat&) = default;
};
inline constexpr std::size_t kMaxBlockBytes = (kMaxAffineGroup + 2) * kBlockRows * 4 + 64;

// What becomes of a row as a whole: it is multiplied by `before`, a power of two, on its way in, and its
// outputs by `after` on their way out. 1 and 1 but for rows of which f32 products would overflow or
// underflow, and for rows with a NaN or infinity: 0 and NaN.
struct RowScale {
  float before = 1, after = 1;
};

// Where prepared activations lie: [group][block], then a RowScale a row.
struct PreparedInput {
  InputFormat format;
  std::size_t cols = 0, rows = 0;
  std::byte* data = nullptr;

  std::size_t groups() const { return cols / format.group; }
  std::size_t blocks() const { return div_up(rows, kBlockRows); }
  std::size_t height() const { return rows < kBlockRows ? rows : kBlockRows; }  // of all blocks but the last
  std::optional<std::size_t> bytes() const {
    const auto all = checked_product({groups(), blocks(), format.block_bytes(height())});
    const auto scales = checked_mul(blocks() * kBlockRows, sizeof(RowScale));
    return all && scales ? checked_add(*all, round_up(*scales, 64)) : std::nullopt;
  }
  std::byte* block(std::size_t g, std::size_t b) const {
    return data + (g * blocks() + b) * format.block_bytes(height());
  }
  RowScale* scales() const {
    return reinterpret_cast<RowScale*>(data + groups() * blocks() * format.block_bytes(height()));
  }
};

// Outputs [tile_begin, tile_end) of one affine matrix.
struct AffineJob {
  const std::byte* weights;  // tile 0
  AffineFormat format;
  Compute compute;  // the chain
  std::size_t cols, outputs;
  std::size_t tile_begin, tile_end;
  const float* x;
  std::size_t ldx;
  const PreparedInput* prepared;  // or null: prepare as you go
  std::size_t rows;
  float* y;
  std::size_t ldy;
};

struct AffineFunctions {
  void (*run)(const AffineJob& job);
  // Fills groups [group_begin, group_end) of one block, and the block's row scales when that begins at 0.
  void (*prepare)(const PreparedInput& to, const float* x, std::size_t ldx, std::size_t block,
                  std::size_t group_begin, std::size_t group_end);
};
AffineFunctions affine_functions();

}  // namespace windrow::internal
