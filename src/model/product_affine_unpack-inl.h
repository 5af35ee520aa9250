// From the lines of an affine tile (product_affine.h) to the operands of its kernels: bytes, words, f32.
// Compiled once per SIMD target (see product_affine_tiles.cc).
#if defined(WINDROW_PRODUCT_AFFINE_UNPACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_PRODUCT_AFFINE_UNPACK_INL_H_
#undef WINDROW_PRODUCT_AFFINE_UNPACK_INL_H_
#else
#define WINDROW_PRODUCT_AFFINE_UNPACK_INL_H_
#endif

#include <hwy/highway.h>

#include "model/product_affine.h"
#include "model/product_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {

using I = hn::RebindToSigned<F>;
using VecI = hn::Vec<I>;

// Bits [from, from + width) of a byte at bit `to`, the others zero; of each byte.
template <int width, int from, int to>
HWY_INLINE VecI field(VecI v) {
  const U u;
  const auto mask = hn::Set(u, (((1u << width) - 1) << to) * 0x01010101u);
  const auto bits = hn::BitCast(u, v);
  if constexpr (width == 8) return v;
  if constexpr (from > to) return hn::BitCast(I(), hn::And(hn::ShiftRight<from - to>(bits), mask));
  if constexpr (from < to) return hn::BitCast(I(), hn::And(hn::ShiftLeft<to - from>(bits), mask));
  return hn::BitCast(I(), hn::And(bits, mask));
}

// The codes of columns 4j .. 4j + 3 of a chunk, j < 8, as bytes; of the outputs of vector `part` of a tile.
template <int bits, int j>
HWY_INLINE VecI code_bytes(const std::byte* chunk, std::size_t part) {
  constexpr int low = low_plane(bits), high = high_plane(bits);
  const auto line = [&](int l) HWY_ATTR {
    return hn::Load(I(), reinterpret_cast<const std::int32_t*>(chunk + l * 64) + part * kLanes);
  };
  const VecI v = field<low, j * low % 8, 0>(line(j * low / 8));
  if constexpr (high == 0) {
    return v;
  } else {
    return hn::Or(v, field<high, j * high % 8, low>(line(low + j * high / 8)));
  }
}

// Bytes 0 and 2, and 1 and 3, as the words of a dword.
HWY_INLINE VecI even_bytes(VecI v) { return hn::And(v, hn::Set(I(), 0x00ff00ff)); }
HWY_INLINE VecI odd_bytes(VecI v) {
#if HWY_TARGET == HWY_SCALAR  // one lane holds no two words
  return hn::And(hn::ShiftRight<8>(v), hn::Set(I(), 0x00ff00ff));
#else
  const hn::Repartition<std::uint16_t, I> words;
  return hn::BitCast(I(), hn::ShiftRight<8>(hn::BitCast(words, v)));
#endif
}

// What a tile's group becomes for a pass of many rows, of 16 outputs a line.
struct Unpacked {
  std::int32_t* bytes;  // [j][16]: columns 4j .. 4j + 3
  std::int32_t* words;  // [j][2][16]: columns (4j, 4j + 2) and (4j + 1, 4j + 3)
  float* floats;        // [column][16]
};

template <int bits, Compute compute, int j>
HWY_INLINE void unpack_column_quad(const std::byte* chunk, const Unpacked& out) {
  WINDROW_UNROLL for (std::size_t part = 0; part < kParts; part++) {
    const VecI v = code_bytes<bits, j>(chunk, part);
    const std::size_t at = part * kLanes;
    if constexpr (compute == Compute::kF32) {
      const VecI low = hn::Set(I(), 0xff);
      float* to = out.floats + 4 * j * kTileRows + at;
      hn::Store(hn::ConvertTo(F(), hn::And(v, low)), F(), to);
      hn::Store(hn::ConvertTo(F(), hn::And(hn::ShiftRight<8>(v), low)), F(), to + kTileRows);
      hn::Store(hn::ConvertTo(F(), hn::And(hn::ShiftRight<16>(v), low)), F(), to + 2 * kTileRows);
      hn::Store(hn::ConvertTo(F(), hn::And(hn::ShiftRight<24>(v), low)), F(), to + 3 * kTileRows);
    } else {
      if constexpr (compute == Compute::kDefault) hn::Store(v, I(), out.bytes + j * kTileRows + at);
      hn::Store(even_bytes(v), I(), out.words + 2 * j * kTileRows + at);
      hn::Store(odd_bytes(v), I(), out.words + (2 * j + 1) * kTileRows + at);
    }
  }
}

template <int bits, Compute compute>
HWY_NOINLINE void unpack_codes(const std::byte* in, std::ptrdiff_t ahead, std::size_t chunks, Unpacked out) {
  for (std::size_t c = 0; c < chunks; c++, in += bits * 64) {
    for (int line = 0; line < bits; line++) __builtin_prefetch(in + line * 64 + ahead, 0, 2);
    unpack_column_quad<bits, compute, 0>(in, out);
    unpack_column_quad<bits, compute, 1>(in, out);
    unpack_column_quad<bits, compute, 2>(in, out);
    unpack_column_quad<bits, compute, 3>(in, out);
    unpack_column_quad<bits, compute, 4>(in, out);
    unpack_column_quad<bits, compute, 5>(in, out);
    unpack_column_quad<bits, compute, 6>(in, out);
    unpack_column_quad<bits, compute, 7>(in, out);
    out.bytes += 8 * kTileRows;
    out.words += 16 * kTileRows;
    out.floats += kChunk * kTileRows;
  }
}

// A group's scales and biases: out[16], out[16].
template <class Format>
void unpack_params(const std::byte* in, std::ptrdiff_t ahead, float* out) {
  for (std::size_t line = 0; line < Format::kPairBytes; line += 64) {
    __builtin_prefetch(in + line + ahead, 0, 2);
  }
  for (std::size_t part = 0; part < kParts; part++) {
    hn::Store(Format::template load<0>(in, part), F(), out + part * kLanes);
    hn::Store(Format::template load<1>(in, part), F(), out + kTileRows + part * kLanes);
  }
}

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
