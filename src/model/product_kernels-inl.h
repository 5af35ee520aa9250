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

#include "model/product_layout.h"

// Register arrays must be indexed by constants; each compiler has its own word for it. Not where there
// are no vector registers, nor under sanitizers, which take minutes to compile the unrolled checks.
#undef WINDROW_UNROLL
#if HWY_TARGET == HWY_SCALAR || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WINDROW_UNROLL
#elif defined(__clang__)
#define WINDROW_UNROLL _Pragma("unroll")
#else
#define WINDROW_UNROLL _Pragma("GCC unroll 32")
#endif

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, kTileRows>;
using U = hn::RebindToUnsigned<F>;
using Vec = hn::Vec<F>;
inline constexpr std::size_t kLanes = hn::MaxLanes(F());
inline constexpr std::size_t kParts = kTileRows / kLanes;  // vectors of one column of a tile

// ---- formats: vector `part` of column `odd` of the pair at p, as f32

struct F32Format {
  static constexpr std::size_t kPairBytes = pair_bytes(DType::kF32);
  template <std::size_t odd>
  static HWY_INLINE Vec load(const std::byte* p, std::size_t part) {
    return hn::Load(F(), reinterpret_cast<const float*>(p) + odd * kTileRows + part * kLanes);
  }
};

struct BF16Format {
  static constexpr std::size_t kPairBytes = pair_bytes(DType::kBF16);
  template <std::size_t odd>
  static HWY_INLINE Vec load(const std::byte* p, std::size_t part) {
    const auto both = hn::Load(U(), reinterpret_cast<const std::uint32_t*>(p) + part * kLanes);
    if constexpr (odd == 0) return hn::BitCast(F(), hn::ShiftLeft<16>(both));
    return hn::BitCast(F(), hn::And(both, hn::Load(U(), high_half)));
  }
};

struct F16Format {
  static constexpr std::size_t kPairBytes = pair_bytes(DType::kF16);
  template <std::size_t odd>
  static HWY_INLINE Vec load(const std::byte* p, std::size_t part) {
    const auto* h = reinterpret_cast<const std::uint16_t*>(p) + odd * kTileRows + part * kLanes;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    const hn::Rebind<hwy::float16_t, F> dh;
    return hn::PromoteTo(F(), hn::Load(dh, reinterpret_cast<const hwy::float16_t*>(h)));
#else
    // No conversion instruction (or one that Highway 1.0.3 does not make exact for infinities).
    const F f;
    const U u;
    const auto bits = hn::PromoteTo(u, hn::Load(hn::Rebind<std::uint16_t, F>(), h));
    const auto magnitude = hn::And(bits, hn::Set(u, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(u, (127u - 15u) << 23));
    const auto denormal =
        hn::Mul(hn::ConvertTo(f, hn::BitCast(hn::RebindToSigned<F>(), magnitude)), hn::Set(f, 0x1p-24f));
    const auto small =
        hn::Lt(hn::BitCast(f, hn::ShiftLeft<13>(magnitude)), hn::BitCast(f, hn::Set(u, 0x400u << 13)));
    const auto special =
        hn::Ge(hn::BitCast(f, hn::ShiftLeft<13>(magnitude)), hn::BitCast(f, hn::Set(u, 0x7c00u << 13)));
    const auto infinite = hn::IfThenElseZero(special, hn::BitCast(f, hn::Set(u, 0x7f800000u)));
    const auto value = hn::IfThenElse(small, denormal, hn::BitCast(f, normal));
    return hn::Or(hn::Or(value, infinite), hn::BitCast(f, sign));
#endif
  }
};

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

// acc = w * x + acc. Told by name to work in place, gcc needs no copies and so spills nothing (a fifth).
HWY_INLINE void fma_in_place(Vec& acc, Vec w, Vec x) {
#if HWY_TARGET == HWY_AVX2
  asm("vfmadd231ps %2, %1, %0" : "+x"(acc.raw) : "x"(w.raw), "x"(x.raw));
#elif HWY_TARGET == HWY_AVX3
  asm("vfmadd231ps %2, %1, %0" : "+v"(acc.raw) : "v"(w.raw), "v"(x.raw));
#else
  acc = hn::MulAdd(w, x, acc);
#endif
}

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
