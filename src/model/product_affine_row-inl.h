// One row of x times a tile of affine weights: codes meet x in the registers they are unpacked in.
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

struct RowSums {
  VecI high[kParts], low[kParts];  // in_bytes: words
  VecI upper[kParts];
  VecI lower[kParts];  // words where byte_steps() >= 8
};

template <int bits, Compute compute, int j>
HWY_INLINE void row_quad(const std::byte* chunk, const RowInput& x, RowSums& sums) {
  const I d;
  WINDROW_UNROLL for (std::size_t p = 0; p < kParts; p++) {
    const VecI v = code_bytes<bits, j>(chunk, p);
    if constexpr (in_bytes(bits)) {
      dot_bytes(sums.high[p], v, hn::Set(d, x.high[j]));
      dot_bytes(sums.low[p], v, hn::Set(d, x.low[j]));
    } else {
      dot_words(sums.upper[p], even_bytes(v), hn::Set(d, x.words[2 * j]));
      dot_words(sums.upper[p], odd_bytes(v), hn::Set(d, x.words[2 * j + 1]));
    }
    if constexpr (compute == Compute::kDefault) {
      if constexpr (byte_steps(bits) >= 8) {
        dot_bytes(sums.lower[p], v, hn::Set(d, x.lower[j]));
      } else {
        dot_bytes_wide(sums.lower[p], v, hn::Set(d, x.lower[j]));
      }
    }
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// upper += and lower += the chunk's sums.
template <int bits, Compute compute>
HWY_INLINE void row_chunk(const std::byte* chunk, const RowInput& x, VecI (&upper)[kParts],
                          VecI (&lower)[kParts]) {
  RowSums sums;
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
      const VecI both = hn::Add(hn::ShiftLeft<8>(widen(sums.high[p])), widen(sums.low[p]));
      upper[p] = hn::Add(upper[p], both);
    } else {
      upper[p] = sums.upper[p];
    }
    if constexpr (compute == Compute::kDefault) {
      lower[p] = wide ? sums.lower[p] : hn::Add(lower[p], widen(sums.lower[p]));
    }
  }
}

// Adds one group of the 16 outputs of a tile to y[16], and fetches the weights `ahead` bytes further on.
template <int bits, Compute compute>
HWY_NOINLINE void row_group(const std::byte* w, std::ptrdiff_t ahead, std::size_t group,
                            const std::byte* prepared, const float* params, float* y) {
  const F f;
  const auto* words = reinterpret_cast<const std::int32_t*>(prepared);
  RowInput x = row_input(words, group, compute);
  const auto* sums = reinterpret_cast<const float*>(x.low + group / 4);
  VecI upper[kParts], lower[kParts];
  WINDROW_UNROLL for (std::size_t p = 0; p < kParts; p++) upper[p] = lower[p] = hn::Zero(I());
  for (std::size_t c = 0; c < group; c += kChunk, w += bits * 64) {
    WINDROW_UNROLL for (int line = 0; line < bits; line++) __builtin_prefetch(w + line * 64 + ahead, 0, 2);
    row_chunk<bits, compute>(w, x, upper, lower);
    x = {x.words + 16, x.lower + 8, x.high + 8, x.low + 8};
  }
  WINDROW_UNROLL for (std::size_t p = 0; p < kParts; p++) {
    const Vec a = fixed_sum<compute>(upper[p], lower[p], hn::Set(f, sums[1]));
    const Vec scale = hn::Load(f, params + p * kLanes), bias = hn::Load(f, params + kTileRows + p * kLanes);
    float* out = y + p * kLanes;
    hn::Store(finish(a, scale, bias, hn::Set(f, sums[0]), hn::Load(f, out)), f, out);
  }
}

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
