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
#undef WINDROW_X86_DOTS
#undef WINDROW_REGISTER
#if HWY_TARGET == HWY_AVX2
#define WINDROW_X86_DOTS 1
#define WINDROW_REGISTER "x"
HWY_INLINE VecI madd_words(VecI a, VecI b) { return VecI{_mm256_madd_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI madd_bytes(VecI a, VecI b) { return VecI{_mm256_maddubs_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI add_words(VecI a, VecI b) { return VecI{_mm256_add_epi16(a.raw, b.raw)}; }
#elif HWY_TARGET == HWY_AVX3
#define WINDROW_X86_DOTS 1
#define WINDROW_REGISTER "v"
HWY_INLINE VecI madd_words(VecI a, VecI b) { return VecI{_mm512_madd_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI madd_bytes(VecI a, VecI b) { return VecI{_mm512_maddubs_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI add_words(VecI a, VecI b) { return VecI{_mm512_add_epi16(a.raw, b.raw)}; }
#elif HWY_TARGET == HWY_SSE4
#define WINDROW_X86_DOTS 1
HWY_INLINE VecI madd_words(VecI a, VecI b) { return VecI{_mm_madd_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI madd_bytes(VecI a, VecI b) { return VecI{_mm_maddubs_epi16(a.raw, b.raw)}; }
HWY_INLINE VecI add_words(VecI a, VecI b) { return VecI{_mm_add_epi16(a.raw, b.raw)}; }
#else
#define WINDROW_X86_DOTS 0
#endif

// A way to multiply and add: add() is one accumulator's step, add_two that of two outputs for one x. Told by
// name to work in place, gcc copies and spills no accumulators; products before sums keep Zen 3's four
// pipes busier (8 %).

// acc += the dot product of two words (codes and upper parts of x), each dword.
struct Words {
  static HWY_INLINE void add(VecI& acc, VecI codes, VecI x) {
#if defined(WINDROW_REGISTER)
    VecI t;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
        : "+" WINDROW_REGISTER(acc.raw), "=&" WINDROW_REGISTER(t.raw)
        : WINDROW_REGISTER(codes.raw), WINDROW_REGISTER(x.raw));
#elif WINDROW_X86_DOTS
    acc = hn::Add(acc, madd_words(codes, x));
#else
    const auto high = hn::Mul(hn::ShiftRight<16>(codes), hn::ShiftRight<16>(x));
    const auto low = hn::Mul(hn::And(codes, hn::Set(I(), 0xffff)), hn::ShiftRight<16>(hn::ShiftLeft<16>(x)));
    acc = hn::Add(acc, hn::Add(low, high));
#endif
  }
  static HWY_INLINE void add_two(VecI& acc0, VecI& acc1, VecI codes0, VecI codes1, VecI x) {
#if defined(WINDROW_REGISTER)
    VecI t, u;
    asm("vpmaddwd %6, %4, %2\n\tvpmaddwd %6, %5, %3\n\tvpaddd %2, %0, %0\n\tvpaddd %3, %1, %1"
        : "+" WINDROW_REGISTER(acc0.raw), "+" WINDROW_REGISTER(acc1.raw), "=&" WINDROW_REGISTER(t.raw),
          "=&" WINDROW_REGISTER(u.raw)
        : WINDROW_REGISTER(codes0.raw), WINDROW_REGISTER(codes1.raw), WINDROW_REGISTER(x.raw));
#else
    add(acc0, codes0, x);
    add(acc1, codes1, x);
#endif
  }
};

// acc += the dot product of four bytes (codes and lower parts of x), each dword; where there are
// instructions for it, as two words that total() adds up.
struct Bytes {
  static HWY_INLINE void add(VecI& acc, VecI codes, VecI x) {
#if defined(WINDROW_REGISTER)
    VecI t;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
        : "+" WINDROW_REGISTER(acc.raw), "=&" WINDROW_REGISTER(t.raw)
        : WINDROW_REGISTER(codes.raw), WINDROW_REGISTER(x.raw));
#elif WINDROW_X86_DOTS
    acc = add_words(acc, madd_bytes(codes, x));
#else
    WINDROW_UNROLL for (int i = 0; i < 4; i++) {
      const auto x_byte = hn::ShiftRight<24>(hn::ShiftLeftSame(x, 24 - 8 * i));
      const auto code = hn::And(hn::ShiftRightSame(codes, 8 * i), hn::Set(I(), 0xff));
      acc = hn::Add(acc, hn::Mul(code, x_byte));
    }
#endif
  }
  static HWY_INLINE void add_two(VecI& acc0, VecI& acc1, VecI codes0, VecI codes1, VecI x) {
#if defined(WINDROW_REGISTER)
    VecI t, u;
    asm("vpmaddubsw %6, %4, %2\n\tvpmaddubsw %6, %5, %3\n\tvpaddw %2, %0, %0\n\tvpaddw %3, %1, %1"
        : "+" WINDROW_REGISTER(acc0.raw), "+" WINDROW_REGISTER(acc1.raw), "=&" WINDROW_REGISTER(t.raw),
          "=&" WINDROW_REGISTER(u.raw)
        : WINDROW_REGISTER(codes0.raw), WINDROW_REGISTER(codes1.raw), WINDROW_REGISTER(x.raw));
#else
    add(acc0, codes0, x);
    add(acc1, codes1, x);
#endif
  }
  static HWY_INLINE VecI total(VecI acc) {
#if WINDROW_X86_DOTS
    return madd_words(acc, hn::Set(I(), 0x00010001));
#else
    return acc;
#endif
  }
};

// The same with the addition of words in each step, for codes of which two products may fill a word.
struct WideBytes {
  static HWY_INLINE void add(VecI& acc, VecI codes, VecI x) {
#if defined(WINDROW_REGISTER)
    VecI t;
    asm("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
        : "+" WINDROW_REGISTER(acc.raw), "=&" WINDROW_REGISTER(t.raw)
        : WINDROW_REGISTER(codes.raw), WINDROW_REGISTER(x.raw),
          WINDROW_REGISTER(hn::Set(I(), 0x00010001).raw));
#elif WINDROW_X86_DOTS
    acc = hn::Add(acc, Bytes::total(madd_bytes(codes, x)));
#else
    Bytes::add(acc, codes, x);
#endif
  }
  static HWY_INLINE void add_two(VecI& acc0, VecI& acc1, VecI codes0, VecI codes1, VecI x) {
    add(acc0, codes0, x);
    add(acc1, codes1, x);
  }
  static HWY_INLINE VecI total(VecI acc) { return acc; }
};
#undef WINDROW_REGISTER

// How many times Bytes may add before total: steps * 2 * max code * 64 <= 32767.
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
    Dot::add_two(acc[r][0], acc[r][1], c[0], c[1], b);
  }
  // Without this the compiler moves the loads of later steps here, and spills.
  std::atomic_signal_fence(std::memory_order_seq_cst);
}
// acc = the dots of `lines` lines of weights, an even number, with x.
template <std::size_t H, class Dot>
HWY_INLINE void dots(Block<H>& acc, const std::int32_t* line, std::size_t stride, const std::int32_t* x,
                     std::size_t lines) {
  clear<H>(acc);
  for (const std::int32_t* end = x + lines * H; x != end; line += 2 * kTileRows, x += 2 * H) {
    step<H>(acc, line, stride, x, Dot());
    step<H>(acc, line + kTileRows, stride, x + H, Dot());
  }
}

// out[r][v][lane] = or += the widened dots of bytes. Not inlined: within a loop of its caller's the
// accumulators would live in memory.
template <std::size_t H, class Dot>
HWY_NOINLINE void lower_span(const std::int32_t* line, std::size_t stride, const std::int32_t* x,
                             std::size_t lines, bool add, std::int32_t* out) {
  Block<H> acc;
  dots<H, Dot>(acc, line, stride, x, lines);
  WINDROW_UNROLL for (std::size_t r = 0; r < H; r++) {
    WINDROW_UNROLL for (std::size_t v = 0; v < kStripVectors; v++) {
      std::int32_t* to = out + (r * kStripVectors + v) * kLanes;
      VecI sum = Dot::total(acc[r][v]);
      if (add) sum = hn::Add(sum, hn::Load(I(), to));
      hn::Store(sum, I(), to);
    }
  }
}

// out[r][v][lane] = sum code * lower, of weights with `steps` additions to a widening.
template <std::size_t H, std::size_t steps>
HWY_INLINE void lower_sums(const Strip& s, const std::int32_t* x, std::int32_t* out) {
  const std::size_t lines = s.group / 4, stride = s.code_stride_bytes;
  if constexpr (steps < 8) {
    lower_span<H, WideBytes>(s.codes.bytes, stride, x, lines, false, out);
  } else {
    const std::size_t span = std::min(lines, steps);
    for (std::size_t l = 0; l < lines; l += span) {
      lower_span<H, Bytes>(s.codes.bytes + l * kTileRows, stride, x + l * H, span, l != 0, out);
    }
  }
}

// y += scale * a + bias * sum, the end of a group of one output.
HWY_INLINE Vec finish(Vec a, Vec scale, Vec bias, Vec sum, Vec y) {
  return hn::MulAdd(bias, sum, hn::MulAdd(scale, a, y));
}

// A group's sum in units of x, from the integer sums.
template <Compute compute>
HWY_INLINE Vec fixed_sum(VecI upper, VecI lower, Vec unit) {
  const F f;
  Vec a = hn::ConvertTo(f, upper);
  if constexpr (compute == Compute::kDefault) {
    a = hn::MulAdd(a, hn::Set(f, 128.0f), hn::ConvertTo(f, lower));
  }
  return hn::Mul(a, unit);
}

// Adds one group to y[r * ldy + output], vector aligned.
template <std::size_t H, Compute compute, std::size_t steps>
HWY_NOINLINE void fixed_strip(const Strip& s, const std::byte* prepared, float* y, std::size_t ldy) {
  const F f;
  const auto* x = reinterpret_cast<const std::int32_t*>(prepared);
  const std::size_t words = s.group / 2 * H;
  const auto* sums = reinterpret_cast<const float*>(x + InputFormat{compute, s.group}.words(H) * H);
  HWY_ALIGN std::int32_t lower[H * kAffineStrip];
  if constexpr (compute == Compute::kDefault) {
    lower_sums<H, steps>(s, x + words, lower);
  }
  Block<H> acc;
  dots<H, Words>(acc, s.codes.words, s.code_stride_words, x, s.group / 2);
  WINDROW_UNROLL for (std::size_t v = 0; v < kStripVectors; v++) {
    const Vec scale = hn::Load(f, s.params + v * s.param_stride);
    const Vec bias = hn::Load(f, s.params + v * s.param_stride + kTileRows);
    WINDROW_UNROLL for (std::size_t r = 0; r < H; r++) {
      VecI low = hn::Zero(I());
      if constexpr (compute == Compute::kDefault) {
        low = hn::Load(I(), lower + (r * kStripVectors + v) * kLanes);
      }
      const Vec a = fixed_sum<compute>(acc[r][v], low, hn::Set(f, sums[H + r]));
      float* out = y + r * ldy + v * kLanes;
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
