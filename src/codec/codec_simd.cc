// encode_record and decode_record in SIMD, equal to codec_scalar.cc bit for bit on every target.
//
// Encoding an affine vector takes three passes over a copy in L1: the extremes of each group; scale
// and bias of all groups at once, lanes over groups, so that their three dependent divisions are paid
// once; the codes, one byte each. Then eight code bytes at a time are pressed together inside a u64
// lane and laid end to end.
//
// Min and Max of Highway return the second operand when the first is NaN (x86) or when either is
// NaN the other (scalar target): Max(value, other) with an `other` that is never NaN skips NaN on all.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/codec_simd.cc"  // NOLINT
#include <hwy/foreach_target.h>                   // IWYU pragma: keep
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "codec/affine.h"
#include "codec/float16-inl.h"
#include "windrow/codec.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace f16 = windrow::float16::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little, "records are little endian");

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using DU64 = hn::ScalableTag<std::uint64_t>;
static_assert(hn::MaxLanes(DF()) <= 16, "head_dim is a multiple of 16, group of 32");

// Lanes to or from memory that holds objects of another type. The scalar target stores through a
// typed pointer, all others through types that may alias.
template <class D>
void StoreAny(D d, hn::Vec<D> v, void* to) {
#if HWY_TARGET == HWY_SCALAR
  const hn::TFromD<D> lane = hn::GetLane(v);
  (void)d;
  std::memcpy(to, &lane, sizeof(lane));
#else
  hn::StoreU(v, d, static_cast<hn::TFromD<D>*>(to));
#endif
}

template <class D>
hn::Vec<D> LoadAny(D d, const void* from) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> lane;
  std::memcpy(&lane, from, sizeof(lane));
  return hn::Set(d, lane);
#else
  return hn::LoadU(d, static_cast<const hn::TFromD<D>*>(from));
#endif
}

// ---- plain 16-bit

template <DType kType>
void EncodePlain16(const float* values, std::size_t dim, std::uint32_t* words) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<std::uint16_t, DF> d16;
  auto* to = reinterpret_cast<std::uint8_t*>(words);
  for (std::size_t i = 0; i < dim; i += hn::Lanes(df)) {
    const auto bits = f16::Bits16<kType>(df, hn::LoadU(df, values + i));
    StoreAny(d16, hn::DemoteTo(d16, hn::BitCast(di, bits)), to + 2 * i);
  }
}

template <DType kType>
void DecodePlain16(const std::uint32_t* words, std::size_t dim, float* values) {
  const DF df;
  const DU du;
  const hn::Rebind<std::uint16_t, DF> d16;
  const auto* from = reinterpret_cast<const std::uint8_t*>(words);
  for (std::size_t i = 0; i < dim; i += hn::Lanes(df)) {
    const auto bits = hn::PromoteTo(du, LoadAny(d16, from + 2 * i));
    hn::StoreU(f16::F32FromBits16<kType>(df, bits), df, values + i);
  }
}

// ---- affine

// Eight codes as bytes of a u64 and the same end to end, `bits` apart, in its low 8 * bits: three
// steps, each of which joins (or parts) neighbours of `width` bits in fields of twice that.
struct Press {
  explicit Press(int bits) {
    for (int s = 0; s < 3; s++) {
      const int field = 8 << s;  // holds a run of bits << s
      const int run = bits << s;
      shift[s] = field - run;
      std::uint64_t ones = 0;
      for (int at = 0; at < 64; at += 2 * field) ones |= ((std::uint64_t{1} << run) - 1) << at;
      even[s] = ones;
      odd[s] = ones << run;
    }
  }
  int shift[3];
  std::uint64_t even[3];  // the lower run of each pair
  std::uint64_t odd[3];   // the upper run where it stands pressed
};

hn::Vec<DU64> PressTogether(DU64 d, const Press& p, hn::Vec<DU64> x) {
  for (int s = 0; s < 3; s++) {
    const auto low = hn::And(x, hn::Set(d, p.even[s]));
    x = hn::Or(low, hn::And(hn::ShiftRightSame(x, p.shift[s]), hn::Set(d, p.odd[s])));
  }
  return x;
}

hn::Vec<DU64> SpreadApart(DU64 d, const Press& p, hn::Vec<DU64> x) {
  for (int s = 2; s >= 0; s--) {
    const auto high = hn::And(x, hn::Set(d, p.odd[s]));
    x = hn::Or(hn::And(x, hn::Set(d, p.even[s])), hn::ShiftLeftSame(high, p.shift[s]));
  }
  return x;
}

// One byte a code; room for a whole vector behind the last.
struct Codes {
  alignas(64) std::uint64_t eights[affine::kMaxDim / 8 + 8];
  std::uint8_t* bytes() { return reinterpret_cast<std::uint8_t*>(eights); }
};

void PackCodes(int bits, Codes& codes, std::size_t dim, std::uint32_t* words) {
  if (bits == 8) {
    std::memcpy(words, codes.eights, dim);
    return;
  }
  const DU64 d;
  const Press press(bits);
  const std::size_t eights = dim / 8;
  std::memset(codes.eights + eights, 0, 64);  // the lanes behind the last
  for (std::size_t i = 0; i < eights; i += hn::Lanes(d)) {
    hn::Store(PressTogether(d, press, hn::Load(d, codes.eights + i)), d, codes.eights + i);
  }
  // Each store's upper bytes are zeros that the next one overwrites.
  std::uint8_t stream[affine::kMaxDim + 8];
  const auto step = static_cast<std::size_t>(bits);
  for (std::size_t i = 0; i < eights; i++) std::memcpy(stream + i * step, codes.eights + i, 8);
  std::memcpy(words, stream, eights * step);
}

void UnpackCodes(int bits, const std::uint32_t* words, std::size_t dim, Codes& codes) {
  if (bits == 8) {
    std::memcpy(codes.eights, words, dim);
    return;
  }
  const DU64 d;
  const Press press(bits);
  const std::size_t eights = dim / 8;
  const auto step = static_cast<std::size_t>(bits);
  std::uint8_t stream[affine::kMaxDim + 8];
  std::memcpy(stream, words, eights * step);
  std::memset(stream + eights * step, 0, 8);
  for (std::size_t i = 0; i < eights; i++) std::memcpy(codes.eights + i, stream + i * step, 8);
  std::memset(codes.eights + eights, 0, 64);
  for (std::size_t i = 0; i < eights; i += hn::Lanes(d)) {
    hn::Store(SpreadApart(d, press, hn::Load(d, codes.eights + i)), d, codes.eights + i);
  }
}

// nearbyint: adding 2^23 to a smaller magnitude leaves no bit for a fraction.
hn::Vec<DF> RoundToEven(DF d, hn::Vec<DF> v) {
  const auto big = hn::Set(d, 0x1p23f);
  const auto abs = hn::Abs(v);
  const auto rounded = hn::Sub(hn::Add(abs, big), big);
  return hn::CopySign(hn::IfThenElse(hn::Lt(abs, big), rounded, abs), v);
}

// Per group, with room for a whole vector behind the last.
struct Groups {
  alignas(64) float lo[affine::kMaxGroups + 16];  // becomes the scale
  alignas(64) float hi[affine::kMaxGroups + 16];  // becomes the bias
};

// Extremes -> unrounded scale and bias, as group_params of codec_scalar.cc.
void ScaleAndBias(int bits, std::size_t groups, Groups& g) {
  const DF d;
  for (std::size_t i = 0; i < groups; i += hn::Lanes(d)) {
    const auto lo = hn::Load(d, g.lo + i), hi = hn::Load(d, g.hi + i);
    const auto low_edge = hn::Gt(hn::Abs(lo), hn::Abs(hi));
    const auto floor = hn::Set(d, affine::kMinScale);
    const auto range = hn::Div(hn::Sub(hi, lo), hn::Set(d, affine::max_code(bits)));
    const auto size = hn::IfThenElse(hn::Gt(range, floor), range, floor);
    const auto first = hn::IfThenElse(low_edge, size, hn::Neg(size));
    const auto edge = hn::IfThenElse(low_edge, lo, hi);
    const auto q0 = RoundToEven(d, hn::Div(edge, first));
    const auto zero = hn::Eq(q0, hn::Zero(d));
    const auto exact = hn::Div(edge, q0);
    const auto number = hn::IfThenElse(hn::Eq(exact, exact), exact, hn::Set(d, affine::quiet_nan()));
    hn::Store(hn::IfThenElse(zero, first, number), d, g.lo + i);
    hn::Store(hn::IfThenZeroElse(zero, edge), d, g.hi + i);
  }
}

template <DType kInput>
void PackParams(std::size_t groups, const Groups& g, std::uint32_t* params) {
  if constexpr (kInput == DType::kF32) {
    for (std::size_t i = 0; i < groups; i++) {
      params[2 * i] = std::bit_cast<std::uint32_t>(g.lo[i]);
      params[2 * i + 1] = std::bit_cast<std::uint32_t>(g.hi[i]);
    }
  } else {
    const DF df;
    const DU du;
    alignas(64) std::uint32_t packed[affine::kMaxGroups + 16];
    for (std::size_t i = 0; i < groups; i += hn::Lanes(df)) {
      const auto scale = f16::Bits16<kInput>(df, hn::Load(df, g.lo + i));
      const auto bias = f16::Bits16<kInput>(df, hn::Load(df, g.hi + i));
      hn::Store(hn::Or(scale, hn::ShiftLeft<16>(bias)), du, packed + i);
    }
    std::memcpy(params, packed, 4 * groups);
  }
}

template <DType kInput>
void UnpackParams(std::size_t groups, const std::uint32_t* params, Groups& g) {
  if constexpr (kInput == DType::kF32) {
    for (std::size_t i = 0; i < groups; i++) {
      g.lo[i] = std::bit_cast<float>(params[2 * i]);
      g.hi[i] = std::bit_cast<float>(params[2 * i + 1]);
    }
  } else {
    const DF df;
    const DU du;
    alignas(64) std::uint32_t packed[affine::kMaxGroups + 16] = {};
    std::memcpy(packed, params, 4 * groups);
    for (std::size_t i = 0; i < groups; i += hn::Lanes(df)) {
      const auto both = hn::Load(du, packed + i);
      const auto scale = hn::And(both, hn::Set(du, 0xffffu));
      hn::Store(f16::F32FromBits16<kInput>(df, scale), df, g.lo + i);
      hn::Store(f16::F32FromBits16<kInput>(df, hn::ShiftRight<16>(both)), df, g.hi + i);
    }
  }
}

template <DType kInput>
void EncodeAffine(int bits, std::size_t group, const float* values, std::size_t dim, std::uint32_t* words,
                  std::uint32_t* params) {
  const DF df;
  const DU du;
  const hn::Rebind<std::uint8_t, DF> d8;
  const std::size_t n = hn::Lanes(df);
  const std::size_t groups = dim / group;
  alignas(64) float x[affine::kMaxDim];
  Groups g;
  hn::Store(hn::Zero(df), df, g.lo + groups / n * n);  // defines the lanes behind the last group
  hn::Store(hn::Zero(df), df, g.hi + groups / n * n);
  for (std::size_t k = 0; k < groups; k++) {
    auto lo = hn::Set(df, std::numeric_limits<float>::infinity()), hi = hn::Neg(lo);
    for (std::size_t i = k * group; i < (k + 1) * group; i += n) {
      const auto v = f16::RoundTo<kInput>(df, hn::LoadU(df, values + i));
      lo = hn::Min(v, lo);
      hi = hn::Max(v, hi);
      hn::Store(v, df, x + i);
    }
    g.lo[k] = hn::GetLane(hn::MinOfLanes(df, lo));
    g.hi[k] = hn::GetLane(hn::MaxOfLanes(df, hi));
  }
  ScaleAndBias(bits, groups, g);
  Codes codes;
  const auto max_code = hn::Set(df, affine::max_code(bits));
  for (std::size_t k = 0; k < groups; k++) {
    const auto scale = hn::Set(df, g.lo[k]), bias = hn::Set(df, g.hi[k]);
    for (std::size_t i = k * group; i < (k + 1) * group; i += n) {
      const auto t = hn::Div(hn::Sub(hn::Load(df, x + i), bias), scale);
      const auto clamped = hn::Min(hn::Max(t, hn::Zero(df)), max_code);
      // 2^23 + t has t, rounded to even, in its low bits.
      const auto code = hn::BitCast(du, hn::Add(clamped, hn::Set(df, 0x1p23f)));
      hn::StoreU(hn::U8FromU32(hn::And(code, hn::Set(du, 0xffu))), d8, codes.bytes() + i);
    }
  }
  PackCodes(bits, codes, dim, words);
  PackParams<kInput>(groups, g, params);
}

template <DType kInput>
void DecodeAffine(int bits, std::size_t group, const std::uint32_t* words, const std::uint32_t* params,
                  std::size_t dim, float* values) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<std::uint8_t, DF> d8;
  const std::size_t groups = dim / group;
  Codes codes;
  Groups g;
  UnpackCodes(bits, words, dim, codes);
  UnpackParams<kInput>(groups, params, g);
  for (std::size_t k = 0; k < groups; k++) {
    const auto scale = hn::Set(df, g.lo[k]), bias = hn::Set(df, g.hi[k]);
    for (std::size_t i = k * group; i < (k + 1) * group; i += hn::Lanes(df)) {
      const auto code = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, codes.bytes() + i)));
      const auto product = f16::RoundTo<kInput>(df, hn::Mul(scale, code));
      const auto v = f16::RoundTo<kInput>(df, hn::Add(product, bias));
      hn::StoreU(hn::IfThenElse(hn::Eq(v, v), v, hn::Set(df, affine::quiet_nan())), df, values + i);
    }
  }
}

}  // namespace

void EncodeRecord(const Codec& codec, const float* values, std::size_t dim, std::uint32_t* words,
                  std::uint32_t* params) {
  const auto group = static_cast<std::size_t>(codec.group());
  const DType input = codec.input();
  if (codec.is_affine()) {
    const auto encode = input == DType::kF32   ? EncodeAffine<DType::kF32>
                        : input == DType::kF16 ? EncodeAffine<DType::kF16>
                                               : EncodeAffine<DType::kBF16>;
    encode(codec.bits(), group, values, dim, words, params);
  } else if (input == DType::kF32) {
    std::memcpy(words, values, 4 * dim);
  } else {
    (input == DType::kF16 ? EncodePlain16<DType::kF16> : EncodePlain16<DType::kBF16>)(values, dim, words);
  }
}

void DecodeRecord(const Codec& codec, const std::uint32_t* words, const std::uint32_t* params,
                  std::size_t dim, float* values) {
  const auto group = static_cast<std::size_t>(codec.group());
  const DType input = codec.input();
  if (codec.is_affine()) {
    const auto decode = input == DType::kF32   ? DecodeAffine<DType::kF32>
                        : input == DType::kF16 ? DecodeAffine<DType::kF16>
                                               : DecodeAffine<DType::kBF16>;
    decode(codec.bits(), group, words, params, dim, values);
  } else if (input == DType::kF32) {
    std::memcpy(values, words, 4 * dim);
  } else {
    (input == DType::kF16 ? DecodePlain16<DType::kF16> : DecodePlain16<DType::kBF16>)(words, dim, values);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

HWY_EXPORT(EncodeRecord);
HWY_EXPORT(DecodeRecord);

void encode_record(const Codec& codec, std::span<const float> values, std::span<std::uint32_t> words,
                   std::span<std::uint32_t> params) {
  affine::check_record(codec, values.size(), words.size(), params.size());
  HWY_DYNAMIC_DISPATCH(EncodeRecord)(codec, values.data(), values.size(), words.data(), params.data());
}

void decode_record(const Codec& codec, std::span<const std::uint32_t> words,
                   std::span<const std::uint32_t> params, std::span<float> values) {
  affine::check_record(codec, values.size(), words.size(), params.size());
  HWY_DYNAMIC_DISPATCH(DecodeRecord)(codec, words.data(), params.data(), values.size(), values.data());
}

}  // namespace windrow
#endif  // HWY_ONCE
