// SIMD conversions between f32 and the two 16-bit floats, equal to base/float16.h bit for bit on
// every target. The bits of a 16-bit float stand in the low half of a u32 lane, its high half zero.
//
// Highway's own are not used where they differ: its bf16 truncates, and its f16 without F16C
// neither rounds to even nor keeps NaN.

// Per-target include guard.
#if defined(WINDROW_CODEC_FLOAT16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_CODEC_FLOAT16_INL_H_
#undef WINDROW_CODEC_FLOAT16_INL_H_
#else
#define WINDROW_CODEC_FLOAT16_INL_H_
#endif

#include <hwy/highway.h>

#include "windrow/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::float16 {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class DF>
using VU32 = hn::Vec<hn::RebindToUnsigned<DF>>;

template <class DF>
VU32<DF> BF16Bits(DF df, hn::Vec<DF> v) {
  const hn::RebindToUnsigned<DF> du;
  const auto u = hn::BitCast(du, v);
  const auto high = hn::ShiftRight<16>(u);
  const auto odd = hn::And(high, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto quiet = hn::Or(high, hn::Set(du, 0x40u));
  return hn::BitCast(du, hn::IfThenElse(hn::Eq(v, v), hn::BitCast(df, rounded), hn::BitCast(df, quiet)));
}

template <class DF>
hn::Vec<DF> F32FromBF16Bits(DF df, VU32<DF> bits) {
  return hn::BitCast(df, hn::ShiftLeft<16>(bits));
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3  // have F16C

template <class DF>
VU32<DF> F16Bits(DF df, hn::Vec<DF> v) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  const hn::Rebind<std::uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> du;
  (void)df;
  return hn::PromoteTo(du, hn::BitCast(d16, hn::DemoteTo(dh, v)));
}

template <class DF>
hn::Vec<DF> F32FromF16Bits(DF df, VU32<DF> bits) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  const hn::Rebind<std::uint16_t, DF> d16;
  const hn::RebindToSigned<DF> di;
  return hn::PromoteTo(df, hn::BitCast(dh, hn::DemoteTo(d16, hn::BitCast(di, bits))));
}

#else

// Selects by a comparison of floats, so that it needs no u32 comparison.
template <class DF, class Mask>
VU32<DF> Select(DF df, Mask mask, VU32<DF> yes, VU32<DF> no) {
  const hn::RebindToUnsigned<DF> du;
  return hn::BitCast(du, hn::IfThenElse(mask, hn::BitCast(df, yes), hn::BitCast(df, no)));
}

template <class DF>
VU32<DF> F16Bits(DF df, hn::Vec<DF> v) {
  const hn::RebindToUnsigned<DF> du;
  const auto u = hn::BitCast(du, v);
  const auto sign = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 0x8000u));
  const auto abs = hn::Abs(v);
  const auto magnitude = hn::BitCast(du, abs);
  // The four cases of f16_from_f32, whose comments say why.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto rebias = hn::Set(du, 0xfffu - ((127u - 15u) << 23));
  auto r = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, rebias)));
  const auto aligned = hn::BitCast(du, hn::Add(abs, hn::Set(df, 0.5f)));
  r = Select(df, hn::Lt(abs, hn::Set(df, 0x1p-14f)), hn::Sub(aligned, hn::Set(du, 0x3f000000u)), r);
  r = Select(df, hn::Ge(abs, hn::Set(df, 65520.0f)), hn::Set(du, 0x7c00u), r);
  const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x1ffu));
  r = Select(df, hn::Eq(v, v), r, hn::Or(payload, hn::Set(du, 0x7e00u)));
  return hn::Or(r, sign);
}

template <class DF>
hn::Vec<DF> F32FromF16Bits(DF df, VU32<DF> bits) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffu));
  const auto m = hn::ConvertTo(df, hn::BitCast(di, magnitude));  // exact, for float comparisons
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  auto r = hn::Add(shifted, hn::Set(du, (127u - 15u) << 23));
  const auto denormal = hn::BitCast(du, hn::Mul(m, hn::Set(df, 0x1p-24f)));
  r = Select(df, hn::Lt(m, hn::Set(df, 0x400p0f)), denormal, r);
  const auto special = hn::Or(shifted, hn::Set(du, 0x7f800000u));
  r = Select(df, hn::Ge(m, hn::Set(df, 0x7c00p0f)), special, r);
  r = Select(df, hn::Gt(m, hn::Set(df, 0x7c00p0f)), hn::Or(special, hn::Set(du, 0x400000u)), r);
  return hn::BitCast(df, hn::Or(r, sign));
}

#endif

template <DType kType, class DF>
VU32<DF> Bits16(DF df, hn::Vec<DF> v) {
  static_assert(kType == DType::kF16 || kType == DType::kBF16);
  if constexpr (kType == DType::kF16) {
    return F16Bits(df, v);
  } else {
    return BF16Bits(df, v);
  }
}

template <DType kType, class DF>
hn::Vec<DF> F32FromBits16(DF df, VU32<DF> bits) {
  static_assert(kType == DType::kF16 || kType == DType::kBF16);
  if constexpr (kType == DType::kF16) {
    return F32FromF16Bits(df, bits);
  } else {
    return F32FromBF16Bits(df, bits);
  }
}

// round_to(kType, v), but for the payload of a NaN.
template <DType kType, class DF>
hn::Vec<DF> RoundTo(DF df, hn::Vec<DF> v) {
  if constexpr (kType == DType::kF32) {
    return v;
  } else if constexpr (kType == DType::kF16) {
    return F32FromF16Bits(df, F16Bits(df, v));
  } else {
    const hn::RebindToUnsigned<DF> du;
    const auto u = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
    const auto carried = hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu)));
    const auto rounded = hn::BitCast(df, hn::And(carried, hn::Set(du, 0xffff0000u)));
    return hn::IfThenElse(hn::Eq(v, v), rounded, v);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow::float16
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
