// What one thread does of a product with affine weights: passes of rows over blocks of tiles, per SIMD
// target.
//
// One group of a block of tiles at a time: its codes are unpacked into L1 once a pass and meet all rows of
// the pass there, so memory is read once a pass, in as many streams as a block has tiles.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/product_affine_tiles.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "model/product_affine.h"
#include "model/product_affine_input-inl.h"
#include "model/product_affine_kernels-inl.h"
#include "model/product_affine_row-inl.h"
#include "model/product_affine_unpack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {

constexpr std::size_t kAffineTiles = kRowTiles;  // of a block
static_assert(kAffineTiles * kTileRows % kAffineStrip == 0);
// Rows of a pass: their sums, 32 KB, stay in L2.
constexpr std::size_t kAffinePassRows = 128;
// Columns of a block's group that share L1 with x: at 64 columns four tiles are 12 KB of words and bytes, or
// 16 KB of f32.
constexpr std::size_t kUnpackedColumns = 256;

// About how far ahead of one row's kernel each stream is fetched, a group at least. On Zen 3 twice as far
// took a third longer at 8 bits; at 4 bits one to eight times as far were alike.
constexpr std::size_t kRowAhead = 1152;

using UnpackCodes = void (*)(const std::byte*, std::ptrdiff_t, std::size_t, Unpacked);
using UnpackParams = void (*)(const std::byte*, std::ptrdiff_t, float*);
using StripFunction = void (*)(const Strip&, const std::byte*, float*, std::size_t);

template <Compute compute>
UnpackCodes unpack_function(int bits) {
  switch (bits) {
    case 2: return unpack_codes<2, compute>;
    case 3: return unpack_codes<3, compute>;
    case 4: return unpack_codes<4, compute>;
    case 5: return unpack_codes<5, compute>;
    case 6: return unpack_codes<6, compute>;
    default: return unpack_codes<8, compute>;
  }
}
UnpackCodes unpack_function(int bits, Compute compute) {
  switch (compute) {
    case Compute::kF32: return unpack_function<Compute::kF32>(bits);
    case Compute::kFast: return unpack_function<Compute::kFast>(bits);
    default: return unpack_function<Compute::kDefault>(bits);
  }
}
UnpackParams params_function(DType dtype) {
  switch (dtype) {
    case DType::kF32: return unpack_params<F32Format>;
    case DType::kF16: return unpack_params<F16Format>;
    default: return unpack_params<BF16Format>;
  }
}

using RowFunction = void (*)(const RowGroup&);
template <int bits>
RowFunction row_function(Compute compute) {
  switch (compute) {
    case Compute::kF32: return row_float<bits>;
    case Compute::kFast: return row_fixed<bits, Compute::kFast>;
    default: return row_fixed<bits, Compute::kDefault>;
  }
}
RowFunction row_function(int bits, Compute compute) {
  switch (bits) {
    case 2: return row_function<2>(compute);
    case 3: return row_function<3>(compute);
    case 4: return row_function<4>(compute);
    case 5: return row_function<5>(compute);
    case 6: return row_function<6>(compute);
    default: return row_function<8>(compute);
  }
}

// [height - 1]
using StripFunctions = std::array<StripFunction, kBlockRows>;
template <std::size_t steps>
constexpr StripFunctions kDefaultStrips = {
    fixed_strip<1, Compute::kDefault, steps>, fixed_strip<2, Compute::kDefault, steps>,
    fixed_strip<3, Compute::kDefault, steps>, fixed_strip<4, Compute::kDefault, steps>};
constexpr StripFunctions kFastStrips = {fixed_strip<1, Compute::kFast, 1>, fixed_strip<2, Compute::kFast, 1>,
                                        fixed_strip<3, Compute::kFast, 1>, fixed_strip<4, Compute::kFast, 1>};
constexpr StripFunctions kFloatStrips = {float_strip<1>, float_strip<2>, float_strip<3>, float_strip<4>};

const StripFunctions& strip_functions(int bits, Compute compute) {
  if (compute == Compute::kF32) return kFloatStrips;
  if (compute == Compute::kFast) return kFastStrips;
  switch (byte_steps(bits)) {
    case 1:
    case 4: return kDefaultStrips<1>;
    case 8: return kDefaultStrips<8>;
    default: return kDefaultStrips<16>;
  }
}

struct Functions {
  UnpackCodes unpack;
  UnpackParams params;
  const StripFunctions* strips;
};

// x of a pass: what was prepared for all threads, or block by block as it is needed.
class Input {
 public:
  Input(const AffineJob& job, std::size_t row, std::size_t rows) : job_(job), row_(row), rows_(rows) {
    if (job.prepared != nullptr) return;
    for (std::size_t r = 0; r < rows; r++) scales_[r] = row_scale(job.x + (row + r) * job.ldx, job.cols);
  }
  const std::byte* block(std::size_t group, std::size_t block) {
    if (job_.prepared != nullptr) return job_.prepared->block(group, row_ / kBlockRows + block);
    const std::size_t r = block * kBlockRows, columns = job_.format.group;
    prepare_rows({job_.compute, columns}, std::min(kBlockRows, rows_ - r),
                 job_.x + (row_ + r) * job_.ldx + group * columns, job_.ldx, scales_ + r, buffer_);
    return buffer_;
  }
  float after(std::size_t r) const {
    return job_.prepared != nullptr ? job_.prepared->scales()[row_ + r].after : scales_[r].after;
  }

 private:
  const AffineJob& job_;
  std::size_t row_, rows_;
  HWY_ALIGN std::byte buffer_[kMaxBlockBytes];
  RowScale scales_[kAffinePassRows];
};

// One pass of rows over the tiles [tile, tile + tiles); those at `following` are read next.
void affine_block(const AffineJob& job, const Functions& functions, std::size_t tile, std::size_t tiles,
                  std::size_t following, std::size_t row, std::size_t rows) {
  constexpr std::size_t stride = kAffineTiles * kTileRows;
  HWY_ALIGN float sums[kAffinePassRows * stride];
  HWY_ALIGN float params[kAffineTiles * 2 * kTileRows] = {};
  HWY_ALIGN std::int32_t unpacked[kUnpackedColumns * kTileRows];
  const std::size_t group = job.format.group, groups = job.cols / group;
  const std::size_t group_bytes = job.format.group_bytes(), tile_bytes = groups * group_bytes;
  const std::size_t blocks = div_up(rows, kBlockRows);
  std::fill_n(sums, blocks * kBlockRows * stride, 0.0f);
  // A strip beyond the last tile is computed with it, from zeros, and dropped.
  if (tiles * kTileRows % kAffineStrip != 0) std::fill_n(unpacked, std::size(unpacked), 0);

  // The areas of all tiles: words, then bytes; or f32 alone.
  const std::size_t most_tiles = kUnpackedColumns / group;
  const auto codes = [&](std::size_t t) {
    return Unpacked{unpacked + most_tiles * group / 2 * kTileRows + t * group / 4 * kTileRows,
                    unpacked + t * group / 2 * kTileRows,
                    reinterpret_cast<float*>(unpacked) + t * group * kTileRows};
  };
  Strip strips[kAffineTiles * kTileRows / kAffineStrip];
  const std::size_t strip_count = div_up(tiles * kTileRows, kAffineStrip);
  for (std::size_t s = 0; s < strip_count; s++) {
    const std::size_t t = s * kAffineStrip / kTileRows, lane = s * kAffineStrip % kTileRows;
    Unpacked of_tile = codes(t);
    of_tile.bytes += lane;
    of_tile.words += lane;
    of_tile.floats += lane;
    // From a strip's first vector to its second: in the next tile if a vector is a whole one.
    constexpr bool whole = kLanes == kTileRows;
    strips[s] = {of_tile,
                 whole ? group / 4 * kTileRows : kLanes,
                 whole ? group / 2 * kTileRows : kLanes,
                 whole ? group * kTileRows : kLanes,
                 params + t * 2 * kTileRows + lane,
                 whole ? 2 * kTileRows : kLanes,
                 group};
  }

  Input input(job, row, rows);
  for (std::size_t g = 0; g < groups; g++) {
    const std::byte* w = job.weights + tile * tile_bytes + g * group_bytes;
    const std::byte* next = g + 1 < groups ? w + group_bytes : job.weights + following * tile_bytes;
    for (std::size_t t = 0; t < tiles; t++) {
      const std::byte* in = w + t * tile_bytes;
      functions.unpack(in, next - w, group / kChunk, codes(t));
      functions.params(in + job.format.code_bytes(), next - w, params + t * 2 * kTileRows);
    }
    for (std::size_t b = 0; b < blocks; b++) {
      const std::byte* x = input.block(g, b);
      const StripFunction run = (*functions.strips)[std::min(kBlockRows, rows - b * kBlockRows) - 1];
      float* y = sums + b * kBlockRows * stride;
      for (std::size_t s = 0; s < strip_count; s++) run(strips[s], x, y + s * kAffineStrip, stride);
    }
  }
  const std::size_t output = tile * kTileRows, outputs = std::min(tiles * kTileRows, job.outputs - output);
  for (std::size_t r = 0; r < rows; r++) {
    const float after = input.after(r);
    float* y = job.y + (row + r) * job.ldy + output;
    for (std::size_t i = 0; i < outputs; i++) y[i] = sums[r * stride + i] * after;
  }
}

// One row over the tiles [tile, tile + tiles); those at `following` are read next.
void row_block(const AffineJob& job, UnpackParams unpack, RowFunction run, std::size_t tile,
               std::size_t tiles, std::size_t following) {
  HWY_ALIGN float sums[kRowTiles * kTileRows] = {};
  HWY_ALIGN float params[kRowTiles * 2 * kTileRows];
  const std::size_t group = job.format.group, groups = job.cols / group;
  const std::size_t group_bytes = job.format.group_bytes(), tile_bytes = groups * group_bytes;
  const std::size_t distance = std::clamp<std::size_t>(kRowAhead / group_bytes, 1, groups);
  Input input(job, 0, 1);
  for (std::size_t g = 0; g < groups; g++) {
    const std::byte* w = job.weights + tile * tile_bytes + g * group_bytes;
    const std::byte* next =
        g + distance < groups ? w + distance * group_bytes
                              : job.weights + following * tile_bytes + (g + distance - groups) * group_bytes;
    for (std::size_t t = 0; t < tiles; t++) {
      unpack(w + t * tile_bytes + job.format.code_bytes(), next - w, params + t * 2 * kTileRows);
    }
    run({w, tile_bytes, tiles, next - w, group, input.block(g, 0), params, sums});
  }
  const std::size_t output = tile * kTileRows, outputs = std::min(tiles * kTileRows, job.outputs - output);
  const float after = input.after(0);
  for (std::size_t i = 0; i < outputs; i++) job.y[output + i] = sums[i] * after;
}

void run_affine(const AffineJob& job) {
  if (job.rows == 1) {
    const RowFunction run = row_function(job.format.bits, job.compute);
    for (std::size_t tile = job.tile_begin; tile < job.tile_end; tile += kRowTiles) {
      const std::size_t end = std::min(tile + kRowTiles, job.tile_end);
      const std::size_t following = end < job.tile_end ? end : job.tile_begin;
      row_block(job, params_function(job.format.params), run, tile, end - tile, following);
    }
    return;
  }
  const Functions functions{unpack_function(job.format.bits, job.compute), params_function(job.format.params),
                            &strip_functions(job.format.bits, job.compute)};
  const std::size_t most = std::min(kAffineTiles, kUnpackedColumns / job.format.group);
  for (std::size_t row = 0; row < job.rows; row += kAffinePassRows) {
    const std::size_t rows = std::min(kAffinePassRows, job.rows - row);
    for (std::size_t tile = job.tile_begin; tile < job.tile_end; tile += most) {
      const std::size_t end = std::min(tile + most, job.tile_end);
      const std::size_t following = end < job.tile_end ? end : job.tile_begin;
      affine_block(job, functions, tile, end - tile, following, row, rows);
    }
  }
}

void prepare_block(const PreparedInput& to, const float* x, std::size_t ldx, std::size_t block,
                   std::size_t group_begin, std::size_t group_end) {
  const std::size_t row = block * kBlockRows, height = std::min(kBlockRows, to.rows - row);
  x += row * ldx;
  RowScale scales[kBlockRows];
  for (std::size_t r = 0; r < height; r++) scales[r] = row_scale(x + r * ldx, to.cols);
  if (group_begin == 0) std::copy_n(scales, height, to.scales() + row);
  for (std::size_t g = group_begin; g < group_end; g++) {
    prepare_rows(to.format, height, x + g * to.format.group, ldx, scales, to.block(g, block));
  }
}

AffineFunctions affine_functions() { return {&run_affine, &prepare_block}; }

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow::internal {

HWY_EXPORT(affine_functions);
AffineFunctions affine_functions() { return HWY_DYNAMIC_DISPATCH(affine_functions)(); }

}  // namespace windrow::internal
#endif
