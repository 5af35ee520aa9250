// One row of x times a few tiles of affine weights: codes meet x in the registers they are unpacked in.
// Compiled once per SIMD target (see product_affine_tiles.cc). The arithmetic is that of
// product_affine_kernels-inl.h: the sums are the same integers.
#if defined(WINDROW_PRODUCT_AFFINE_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_PRODUCT_AFFINE_ROW_INL_H_
#undef WINDROW_PRODUCT_AFFINE_ROW_INL_H_
#else
#define WINDROW_PRODUCT_AFFINE_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include "model/product_affine_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {

// One group of one row as prepared (product_affine.h); advanced chunk by chunk.
struct RowInput {
  const std::int32_t* words;  // upper parts [j][2]
  const std::int32_t* lower;  // bytes [j]
  const std::int32_t* high;   // of the upper parts, bytes [j]
  const std::int32_t* low;
};
HWY_INLINE RowInput row_input(const std::int32_t* x, std::size_t group, Compute compute) {
  const std::int32_t* after = x + group / 2 + (compute == Compute::kDefault ? group / 4 : 0);
  return {x, x + group / 2, after, after + group / 4};
}

// Codes of up to 4 bits times bytes of x can be added 8 times (15 * 128 * 2 * 8 < 2^15) before they are
// widened: three products of bytes are then less work than one of bytes and one of words, which need codes
// unpacked to words.
constexpr bool in_bytes(int bits) { return bits <= 4; }

// References: a struct that holds vectors has a constructor without the target's attributes (ARM).
struct RowSums {
  VecI (&high)[kParts];  // in_bytes: words
  VecI (&low)[kParts];
  VecI (&upper)[kParts];
  VecI (&lower)[kParts];  // words where byte_steps() >= 8
};

template <int bits, Compute compute, int j>
HWY_INLINE void row_quad(const std::byte* chunk, const RowInput& x, const RowSums& sums) {
  const I d;
  WINDROW_UNROLL for (std::size_t p = 0; p < kParts; p++) {
    const VecI v = code_bytes<bits, j>(chunk, p);
    if constexpr (in_bytes(bits)) {
      Bytes::add(sums.high[p], v, hn::Set(d, x.high[j]));
      Bytes::add(sums.low[p], v, hn::Set(d, x.low[j]));
    } else {
      Words::add(sums.upper[p], even_bytes(v), hn::Set(d, x.words[2 * j]));
      Words::add(sums.upper[p], odd_bytes(v), hn::Set(d, x.words[2 * j + 1]));
    }
    if constexpr (compute == Compute::kDefault) {
      if constexpr (byte_steps(bits) >= 8) {
        Bytes::add(sums.lower[p], v, hn::Set(d, x.lower[j]));
      } else {
        WideBytes::add(sums.lower[p], v, hn::Set(d, x.lower[j]));
      }
    }
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// upper += and lower += the chunk's sums.
template <int bits, Compute compute>
HWY_INLINE void row_chunk(const std::byte* chunk, const RowInput& x, VecI (&upper)[kParts],
                          VecI (&lower)[kParts]) {
  VecI high[kParts], low[kParts], of_words[kParts], of_bytes[kParts];
  const RowSums sums{high, low, of_words, of_bytes};
  constexpr bool wide = byte_steps(bits) < 8;
  WINDROW_UNROLL for (std::size_t p = 0; p < kParts; p++) {
    sums.high[p] = sums.low[p] = hn::Zero(I());
    sums.upper[p] = upper[p];
    sums.lower[p] = wide ? lower[p] : hn::Zero(I());
  }
  row_quad<bits, compute, 0>(chunk, x, sums);
  row_quad<bits, compute, 1>(chunk, x, sums);
  row_quad<bits, compute, 2>(chunk, x, sums);
  row_quad<bits, compute, 3>(chunk, x, sums);
  row_quad<bits, compute, 4>(chunk, x, sums);
  row_quad<bits, compute, 5>(chunk, x, sums);
  row_quad<bits, compute, 6>(chunk, x, sums);
  row_quad<bits, compute, 7>(chunk, x, sums);
  WINDROW_UNROLL for (std::size_t p = 0; p < kParts; p++) {
    if constexpr (in_bytes(bits)) {
      const VecI both = hn::Add(hn::ShiftLeft<8>(Bytes::total(sums.high[p])), Bytes::total(sums.low[p]));
      upper[p] = hn::Add(upper[p], both);
    } else {
      upper[p] = sums.upper[p];
    }
    if constexpr (compute == Compute::kDefault) {
      lower[p] = wide ? sums.lower[p] : hn::Add(lower[p], Bytes::total(sums.lower[p]));
    }
  }
}

// What a row's kernels are given: one group of `tiles` tiles.
struct RowGroup {
  const std::byte* w;  // tile t's at w + t * tile_bytes
  std::size_t tile_bytes, tiles;
  std::ptrdiff_t ahead;  // weights this far on are fetched
  std::size_t group;
  const std::byte* x;   // prepared
  const float* params;  // [tile][scale, bias][16]
  float* y;             // [tile][16], added to; vector aligned
};
inline constexpr std::size_t kRowTiles = 4;  // at most; as many streams read fastest on Zen 3

HWY_INLINE void finish_tile(const RowGroup& g, std::size_t t, const Vec (&a)[kParts], float sum) {
  const F f;
  WINDROW_UNROLL for (std::size_t p = 0; p < kParts; p++) {
    const float* params = g.params + t * 2 * kTileRows + p * kLanes;
    float* y = g.y + t * kTileRows + p * kLanes;
    hn::Store(
        finish(a[p], hn::Load(f, params), hn::Load(f, params + kTileRows), hn::Set(f, sum), hn::Load(f, y)),
        f, y);
  }
}

template <int bits>
HWY_INLINE void fetch_chunk(const std::byte* w) {
  WINDROW_UNROLL for (int line = 0; line < bits; line++) __builtin_prefetch(w + line * 64, 0, 3);
}

template <int bits, Compute compute>
void row_fixed(const RowGroup& g) {
  const auto* words = reinterpret_cast<const std::int32_t*>(g.x);
  const RowInput begin = row_input(words, g.group, compute);
  const auto* sums = reinterpret_cast<const float*>(begin.low + g.group / 4);
  for (std::size_t t = 0; t < g.tiles; t++) {
    const std::byte* w = g.w + t * g.tile_bytes;
    RowInput x = begin;
    VecI upper[kParts], lower[kParts];
    WINDROW_UNROLL for (std::size_t p = 0; p < kParts; p++) upper[p] = lower[p] = hn::Zero(I());
    for (std::size_t c = 0; c < g.group; c += kChunk, w += bits * 64) {
      fetch_chunk<bits>(w + g.ahead);
      row_chunk<bits, compute>(w, x, upper, lower);
      x = {x.words + 16, x.lower + 8, x.high + 8, x.low + 8};
    }
    Vec a[kParts];
    WINDROW_UNROLL for (std::size_t p = 0; p < kParts; p++) {
      a[p] = fixed_sum<compute>(upper[p], lower[p], hn::Set(F(), sums[1]));
    }
    finish_tile(g, t, a, sums[0]);
  }
}

// Byte i of each dword as f32. One shuffle where there is one, for a shift and a mask.
template <int i>
HWY_INLINE Vec float_of_byte(VecI v) {
#if HWY_TARGET == HWY_SCALAR
  return hn::ConvertTo(F(), hn::And(hn::ShiftRight<8 * i>(v), hn::Set(I(), 0xff)));
#else
  const hn::Repartition<std::uint8_t, I> bytes;
  alignas(16) static constexpr std::uint8_t from[16] = {i,     0x80, 0x80, 0x80, i + 4,  0x80, 0x80, 0x80,
                                                        i + 8, 0x80, 0x80, 0x80, i + 12, 0x80, 0x80, 0x80};
  const auto byte = hn::TableLookupBytesOr0(hn::BitCast(bytes, v), hn::LoadDup128(bytes, from));
  return hn::ConvertTo(F(), hn::BitCast(I(), byte));
#endif
}

// a = fma(code, x, a) for the columns 4j .. 4j + 3 of a chunk.
template <int bits, int j>
HWY_INLINE void row_float_quad(const std::byte* const (&w)[kRowTiles], const float* x,
                               Vec (&acc)[kRowTiles][kParts]) {
  const F f;
  Vec b[4];
  WINDROW_UNROLL for (int i = 0; i < 4; i++) b[i] = hn::Set(f, x[4 * j + i]);
  WINDROW_UNROLL for (std::size_t t = 0; t < kRowTiles; t++) {
    WINDROW_UNROLL for (std::size_t p = 0; p < kParts; p++) {
      const VecI v = code_bytes<bits, j>(w[t], p);
      fma_in_place(acc[t][p], float_of_byte<0>(v), b[0]);
      fma_in_place(acc[t][p], float_of_byte<1>(v), b[1]);
      fma_in_place(acc[t][p], float_of_byte<2>(v), b[2]);
      fma_in_place(acc[t][p], float_of_byte<3>(v), b[3]);
    }
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// All tiles at once: a chain of FMAs alone would wait for itself. Tiles beyond the last repeat it.
template <int bits>
void row_float(const RowGroup& g) {
  const auto* x = reinterpret_cast<const float*>(g.x);
  const std::byte* w[kRowTiles];
  for (std::size_t t = 0; t < kRowTiles; t++) w[t] = g.w + std::min(t, g.tiles - 1) * g.tile_bytes;
  Vec acc[kRowTiles][kParts];
  WINDROW_UNROLL for (std::size_t t = 0; t < kRowTiles; t++) {
    WINDROW_UNROLL for (std::size_t p = 0; p < kParts; p++) acc[t][p] = hn::Zero(F());
  }
  for (const float* end = x + g.group; x != end; x += kChunk) {
    row_float_quad<bits, 0>(w, x, acc);
    row_float_quad<bits, 1>(w, x, acc);
    row_float_quad<bits, 2>(w, x, acc);
    row_float_quad<bits, 3>(w, x, acc);
    row_float_quad<bits, 4>(w, x, acc);
    row_float_quad<bits, 5>(w, x, acc);
    row_float_quad<bits, 6>(w, x, acc);
    row_float_quad<bits, 7>(w, x, acc);
    for (std::size_t t = 0; t < kRowTiles; t++) {
      fetch_chunk<bits>(w[t] + g.ahead);
      w[t] += bits * 64;
    }
  }
  for (std::size_t t = 0; t < g.tiles; t++) finish_tile(g, t, acc[t], x[0]);
}

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
