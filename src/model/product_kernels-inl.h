// Register kernels of the products: R rows of x times T tiles of weights over one group of k.
// Compiled once per SIMD target (see product_tiles.cc).
//
// The arithmetic of one output is fixed here and nowhere else:
//   a = 0;  for k of the group, in order: a = fma(w[k], x[k], a);  y = y + a
// Which R and T a call has only decides which outputs share registers.
#if defined(WINDROW_PRODUCT_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_PRODUCT_KERNELS_INL_H_
#undef WINDROW_PRODUCT_KERNELS_INL_H_
#else
#define WINDROW_PRODUCT_KERNELS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "model/product_formats-inl.h"
#include "model/product_layout.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// R rows times T tiles.
template <class FormatOf, std::size_t R, std::size_t T>
struct Kernel {
  using Format = FormatOf;
  static constexpr std::size_t kTiles = T;
  static constexpr std::size_t V = T * kParts;

  template <std::size_t odd>
  static HWY_INLINE void column(Vec (&acc)[R][V], const std::byte* w, std::size_t tile_stride, const float* x,
                                std::size_t ldx) {
    if constexpr (R < V) {  // fewer registers hold x than w
      Vec b[R];
      WINDROW_UNROLL for (std::size_t r = 0; r < R; r++) b[r] = hn::Set(F(), x[r * ldx]);
      WINDROW_UNROLL for (std::size_t v = 0; v < V; v++) {
        const Vec c = Format::template load<odd>(w + v / kParts * tile_stride, v % kParts);
        WINDROW_UNROLL for (std::size_t r = 0; r < R; r++) acc[r][v] = hn::MulAdd(c, b[r], acc[r][v]);
      }
    } else {
      Vec c[V];
      WINDROW_UNROLL for (std::size_t v = 0; v < V; v++) {
        c[v] = Format::template load<odd>(w + v / kParts * tile_stride, v % kParts);
      }
      WINDROW_UNROLL for (std::size_t r = 0; r < R; r++) {
        const Vec b = hn::Set(F(), x[r * ldx]);
        WINDROW_UNROLL for (std::size_t v = 0; v < V; v++) acc[r][v] = hn::MulAdd(c[v], b, acc[r][v]);
      }
    }
    // Without this the compiler keeps weights of one column in registers for the next, and spills.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  // The `cols` columns of one group: tile t's at w + t * tile_stride, row r's at x + r * ldx. Adds to
  // sums[r * sum_stride + t * 16 ...], vector aligned. Fetches the weights `ahead` bytes further on.
  static void run(const std::byte* w, std::size_t tile_stride, std::ptrdiff_t ahead, std::size_t cols,
                  const float* x, std::size_t ldx, float* sums, std::size_t sum_stride) {
    const F f;
    Vec acc[R][V];
    WINDROW_UNROLL for (std::size_t r = 0; r < R; r++) {
      WINDROW_UNROLL for (std::size_t v = 0; v < V; v++) acc[r][v] = hn::Zero(f);
    }
    for (const float* end = x + cols / 2 * 2; x != end; w += Format::kPairBytes, x += 2) {
      WINDROW_UNROLL for (std::size_t t = 0; t < T; t++) {
        WINDROW_UNROLL for (std::size_t line = 0; line < Format::kPairBytes; line += 64) {
          __builtin_prefetch(w + t * tile_stride + line + ahead, 0, 2);  // to L2
        }
      }
      column<0>(acc, w, tile_stride, x, ldx);
      column<1>(acc, w, tile_stride, x + 1, ldx);
    }
    if (cols % 2 != 0) column<0>(acc, w, tile_stride, x, ldx);
    WINDROW_UNROLL for (std::size_t r = 0; r < R; r++) {
      WINDROW_UNROLL for (std::size_t v = 0; v < V; v++) {
        float* out = sums + r * sum_stride + v * kLanes;
        hn::Store(hn::Add(hn::Load(f, out), acc[r][v]), f, out);
      }
    }
  }
};

// ---- many rows: x and weights both come in the order they are read

// One strip: kPanelRows rows times kStrip vectors of outputs, whose 12 (24 with AVX-512) accumulators
// leave just enough registers for a column's weights and one number of x: 7 loads for 12 FMAs.
inline constexpr std::size_t kPanelRows = HWY_TARGET == HWY_AVX3 ? 8 : 4;
inline constexpr std::size_t kStrip = 3;
inline constexpr std::size_t kStripOutputs = kStrip * kLanes;
static_assert(3 * kTileRows % kStripOutputs == 0, "three tiles are whole strips");

// The `cols` columns of one group: weights [column][kStripOutputs], x [column][kPanelRows]. Adds to
// sums[r * sum_stride + output]. Not inlined: among its caller's variables it would spill.
HWY_NOINLINE void panel_strip(const float* weights, std::size_t cols, const float* x, float* sums,
                              std::size_t sum_stride) {
  const F f;
  Vec acc[kPanelRows][kStrip];
  WINDROW_UNROLL for (std::size_t r = 0; r < kPanelRows; r++) {
    WINDROW_UNROLL for (std::size_t v = 0; v < kStrip; v++) acc[r][v] = hn::Zero(f);
  }
  for (const float* end = x + cols * kPanelRows; x != end; x += kPanelRows, weights += kStripOutputs) {
    Vec c[kStrip];
    WINDROW_UNROLL for (std::size_t v = 0; v < kStrip; v++) c[v] = hn::Load(f, weights + v * kLanes);
    WINDROW_UNROLL for (std::size_t r = 0; r < kPanelRows; r++) {
      const Vec b = hn::Set(f, x[r]);
      WINDROW_UNROLL for (std::size_t v = 0; v < kStrip; v++) fma_in_place(acc[r][v], c[v], b);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  WINDROW_UNROLL for (std::size_t r = 0; r < kPanelRows; r++) {
    WINDROW_UNROLL for (std::size_t v = 0; v < kStrip; v++) {
      float* out = sums + r * sum_stride + v * kLanes;
      hn::Store(hn::Add(hn::Load(f, out), acc[r][v]), f, out);
    }
  }
}

// ---- which kernels exist: kMaxTiles[R - 1] tiles for R rows. 8 accumulators or more hide the latency
// of FMA (4 cycles, 2 a cycle). Blocks that need the last register (4 rows x 3 vectors of AVX2, 12
// accumulators) are a fifth slower than those with a few to spare (4 x 2) when weights are unpacked too.
//
// And how many tiles are walked together, a group of k at a time, each one sequential stream through
// memory. At up to kMaxRows rows memory is waited for: 4 streams are 10 % faster than 8 on Zen 3, 8 are
// faster on Zen 4 with AVX-512. With more rows a block's weights and rows of x should share L1.

#if HWY_TARGET == HWY_AVX3  // 32 registers, a tile is one
inline constexpr std::size_t kMaxRows = 8;
inline constexpr std::size_t kMaxTiles[kMaxRows] = {8, 8, 4, 4, 3, 3, 3, 3};
inline constexpr std::size_t kFewRowsTiles = 8, kManyRowsTiles = 6;
#elif HWY_TARGET == HWY_AVX2  // 16 registers, a tile is two
inline constexpr std::size_t kMaxRows = 6;
inline constexpr std::size_t kMaxTiles[kMaxRows] = {4, 2, 2, 1, 1, 1};
inline constexpr std::size_t kFewRowsTiles = 4, kManyRowsTiles = 4;
#else                         // 16 registers or fewer, a tile is four or more
inline constexpr std::size_t kMaxRows = 3;
inline constexpr std::size_t kMaxTiles[kMaxRows] = {2, 1, 1};
inline constexpr std::size_t kFewRowsTiles = 4, kManyRowsTiles = 4;
#endif

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
