// Register kernels of affine products: H rows of prepared x times a strip of outputs over one group.
// Compiled once per SIMD target (see product_affine_tiles.cc).
//
// The arithmetic of one output and group is fixed here and nowhere else:
//   kF32      a = 0;  for k in order: a = fma(code[k], x[k], a)
//   kDefault  a = fma(f32(sum code * upper), 128, f32(sum code * lower)) * unit
//   kFast     a = f32(sum code * upper) * unit                           (the sums are exact integers)
//   then      y = fma(scale, a, y);  y = fma(bias, sum x, y)
#if defined(WINDROW_PRODUCT_AFFINE_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_PRODUCT_AFFINE_KERNELS_INL_H_
#undef WINDROW_PRODUCT_AFFINE_KERNELS_INL_H_
#else
#define WINDROW_PRODUCT_AFFINE_KERNELS_INL_H_
#endif

#include <hwy/highway.h>

#include <atomic>

#include "model/product_affine_unpack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {

// A strip is two vectors of outputs: with four rows of x that leaves registers for two vectors of weights and
// one of x, and takes 6 loads for 8 multiply-adds.
inline constexpr std::size_t kStripVectors = 2;
inline constexpr std::size_t kAffineStrip = kStripVectors * kLanes;  // outputs

// The instructions that Highway 1.0.3 has no name for. Elsewhere their sums are taken lane by lane.
#if HWY_TARGET == HWY_AVX2
#define WINDROW_X86_DOTS 1
HWY_INLINE VecI madd_words(VecI a, VecI b) { return VecI{_mm256_madd_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI madd_bytes(VecI a, VecI b) { return VecI{_mm256_maddubs_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI add_words(VecI a, VecI b) { return VecI{_mm256_add_epi16(a.raw, b.raw)}; }
#elif HWY_TARGET == HWY_AVX3
#define WINDROW_X86_DOTS 1
HWY_INLINE VecI madd_words(VecI a, VecI b) { return VecI{_mm512_madd_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI madd_bytes(VecI a, VecI b) { return VecI{_mm512_maddubs_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI add_words(VecI a, VecI b) { return VecI{_mm512_add_epi16(a.raw, b.raw)}; }
#elif HWY_TARGET == HWY_SSE4
#define WINDROW_X86_DOTS 1
HWY_INLINE VecI madd_words(VecI a, VecI b) { return VecI{_mm_madd_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI madd_bytes(VecI a, VecI b) { return VecI{_mm_maddubs_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI add_words(VecI a, VecI b) { return VecI{_mm_add_epi16(a.raw, b.raw)}; }
#else
#undef WINDROW_X86_DOTS
#define WINDROW_X86_DOTS 0
#endif

// acc += the dot product of two words (codes and upper parts of x), each dword.
HWY_INLINE VecI dot_words(VecI acc, VecI codes, VecI x) {
#if WINDROW_X86_DOTS
  return hn::Add(acc, madd_words(codes, x));
#else
  const auto high = hn::Mul(hn::ShiftRight<16>(codes), hn::ShiftRight<16>(x));
  const auto low = hn::Mul(hn::And(codes, hn::Set(I(), 0xffff)), hn::ShiftRight<16>(hn::ShiftLeft<16>(x)));
  return hn::Add(acc, hn::Add(low, high));
#endif
}

// acc += the dot product of four bytes (codes and lower parts of x), each dword; where there are
// instructions for it, as two words that widen() adds up.
HWY_INLINE VecI dot_bytes(VecI acc, VecI codes, VecI x) {
#if WINDROW_X86_DOTS
  return add_words(acc, madd_bytes(codes, x));
#else
  WINDROW_UNROLL for (int i = 0; i < 4; i++) {
    const auto x_byte = hn::ShiftRight<24>(hn::ShiftLeftSame(x, 24 - 8 * i));
    const auto code = hn::And(hn::ShiftRightSame(codes, 8 * i), hn::Set(I(), 0xff));
    acc = hn::Add(acc, hn::Mul(code, x_byte));
  }
  return acc;
#endif
}
HWY_INLINE VecI widen(VecI acc) {
#if WINDROW_X86_DOTS
  return madd_words(acc, hn::Set(I(), 0x00010001));
#else
  return acc;
#endif
}

// How many times dot_bytes may add before widen: steps * 2 * max code * 64 <= 32767.
constexpr std::size_t byte_steps(int bits) { return bits == 8 ? 1 : bits == 6 ? 4 : bits == 5 ? 8 : 16; }
static_assert(1 * 2 * 255 * 64 <= 32767 && 4 * 2 * 63 * 64 <= 32767 && 8 * 2 * 31 * 64 <= 32767 &&
              16 * 2 * 15 * 64 <= 32767);

// A strip's weights of one group, unpacked: vector v of a line lies v * stride floats or dwords on.
struct Strip {
  Unpacked codes;
  std::size_t code_stride_bytes = 0, code_stride_words = 0, code_stride_floats = 0;
  const float* params;  // [scale, bias][16]
  std::size_t param_stride;
  std::size_t group;
};

template <std::size_t H>
using Block = VecI[H][kStripVectors];

template <std::size_t H>
HWY_INLINE void clear(Block<H>& acc) {
  WINDROW_UNROLL for (std::size_t r = 0; r < H; r++) {
    WINDROW_UNROLL for (std::size_t v = 0; v < kStripVectors; v++) acc[r][v] = hn::Zero(I());
  }
}

// One step of all accumulators: line of weights, dword of each row of x.
template <std::size_t H, class Dot>
HWY_INLINE void step(Block<H>& acc, const std::int32_t* line, std::size_t stride, const std::int32_t* x,
                     Dot) {
  VecI c[kStripVectors];
  WINDROW_UNROLL for (std::size_t v = 0; v < kStripVectors; v++) c[v] = hn::Load(I(), line + v * stride);
  WINDROW_UNROLL for (std::size_t r = 0; r < H; r++) {
    const VecI b = hn::Set(I(), x[r]);
    WINDROW_UNROLL for (std::size_t v = 0; v < kStripVectors; v++) acc[r][v] = Dot::add(acc[r][v], c[v], b);
  }
  // Without this the compiler moves the loads of later steps here, and spills.
  std::atomic_signal_fence(std::memory_order_seq_cst);
}
struct Words {
  static HWY_INLINE VecI add(VecI acc, VecI c, VecI x) { return dot_words(acc, c, x); }
};
struct Bytes {
  static HWY_INLINE VecI add(VecI acc, VecI c, VecI x) { return dot_bytes(acc, c, x); }
};
struct WideBytes {
  static HWY_INLINE VecI add(VecI acc, VecI c, VecI x) {
    return hn::Add(acc, widen(dot_bytes(hn::Zero(I()), c, x)));
  }
};

// sums[r * kStripVectors + v] = sum code * lower, of weights with `steps` additions to a widening.
template <std::size_t H, std::size_t steps>
HWY_INLINE void lower_sums(const Strip& s, const std::int32_t* x, VecI (&sums)[H * kStripVectors]) {
  const std::int32_t* line = s.codes.bytes;
  const std::int32_t* end = line + s.group / 4 * kTileRows;
  const std::size_t stride = s.code_stride_bytes;
  Block<H> acc;
  if constexpr (steps < 8) {
    clear<H>(acc);
    for (; line != end; line += kTileRows, x += H) step<H>(acc, line, stride, x, WideBytes());
    WINDROW_UNROLL for (std::size_t i = 0; i < H * kStripVectors; i++) {
      sums[i] = acc[i / kStripVectors][i % kStripVectors];
    }
  } else {
    for (std::size_t i = 0; i < H * kStripVectors; i++) sums[i] = hn::Zero(I());
    while (line != end) {
      clear<H>(acc);
      const std::int32_t* stop = std::min(line + steps * kTileRows, end);
      for (; line != stop; line += kTileRows, x += H) step<H>(acc, line, stride, x, Bytes());
      WINDROW_UNROLL for (std::size_t i = 0; i < H * kStripVectors; i++) {
        sums[i] = hn::Add(sums[i], widen(acc[i / kStripVectors][i % kStripVectors]));
      }
    }
  }
}

// y += scale * a + bias * sum, the end of a group of one output.
HWY_INLINE Vec finish(Vec a, Vec scale, Vec bias, Vec sum, Vec y) {
  return hn::MulAdd(bias, sum, hn::MulAdd(scale, a, y));
}

// Adds one group to y[r * ldy + output], vector aligned.
template <std::size_t H, Compute compute, std::size_t steps>
HWY_NOINLINE void fixed_strip(const Strip& s, const std::byte* prepared, float* y, std::size_t ldy) {
  const F f;
  const auto* x = reinterpret_cast<const std::int32_t*>(prepared);
  const std::size_t words = s.group / 2 * H;
  const auto* sums = reinterpret_cast<const float*>(x + words);
  VecI lower[H * kStripVectors];
  if constexpr (compute == Compute::kDefault) {
    lower_sums<H, steps>(s, x + words, lower);
    sums += s.group / 4 * H;
  }
  Block<H> acc;
  clear<H>(acc);
  const std::int32_t* line = s.codes.words;
  for (const std::int32_t* end = x + words; x != end; line += kTileRows, x += H) {
    step<H>(acc, line, s.code_stride_words, x, Words());
  }
  WINDROW_UNROLL for (std::size_t v = 0; v < kStripVectors; v++) {
    const Vec scale = hn::Load(f, s.params + v * s.param_stride);
    const Vec bias = hn::Load(f, s.params + v * s.param_stride + kTileRows);
    WINDROW_UNROLL for (std::size_t r = 0; r < H; r++) {
      Vec a = hn::ConvertTo(f, acc[r][v]);
      if constexpr (compute == Compute::kDefault) {
        a = hn::MulAdd(a, hn::Set(f, 128.0f), hn::ConvertTo(f, lower[r * kStripVectors + v]));
      }
      float* out = y + r * ldy + v * kLanes;
      a = hn::Mul(a, hn::Set(f, sums[H + r]));
      hn::Store(finish(a, scale, bias, hn::Set(f, sums[r]), hn::Load(f, out)), f, out);
    }
  }
}

template <std::size_t H>
HWY_NOINLINE void float_strip(const Strip& s, const std::byte* prepared, float* y, std::size_t ldy) {
  const F f;
  const auto* x = reinterpret_cast<const float*>(prepared);
  const float* sums = x + s.group * H;
  Vec acc[H][kStripVectors];
  WINDROW_UNROLL for (std::size_t r = 0; r < H; r++) {
    WINDROW_UNROLL for (std::size_t v = 0; v < kStripVectors; v++) acc[r][v] = hn::Zero(f);
  }
  for (const float* line = s.codes.floats; x != sums; line += kTileRows, x += H) {
    Vec c[kStripVectors];
    WINDROW_UNROLL for (std::size_t v = 0; v < kStripVectors; v++) {
      c[v] = hn::Load(f, line + v * s.code_stride_floats);
    }
    WINDROW_UNROLL for (std::size_t r = 0; r < H; r++) {
      const Vec b = hn::Set(f, x[r]);
      WINDROW_UNROLL for (std::size_t v = 0; v < kStripVectors; v++) fma_in_place(acc[r][v], c[v], b);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  WINDROW_UNROLL for (std::size_t v = 0; v < kStripVectors; v++) {
    const Vec scale = hn::Load(f, s.params + v * s.param_stride);
    const Vec bias = hn::Load(f, s.params + v * s.param_stride + kTileRows);
    WINDROW_UNROLL for (std::size_t r = 0; r < H; r++) {
      float* out = y + r * ldy + v * kLanes;
      hn::Store(finish(acc[r][v], scale, bias, hn::Set(f, sums[r]), hn::Load(f, out)), f, out);
    }
  }
}

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
