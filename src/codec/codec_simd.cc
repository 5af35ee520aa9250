// encode_record and decode_record in SIMD, equal to codec_scalar.cc bit for bit on every target.
//
// Encoding an affine vector takes three passes: numbers rounded into L1 and the extremes of each
// group; scale and bias of all groups at once, lanes over groups, so that their three dependent
// divisions are paid once; the codes, joined to words in registers.
//
// Of a NaN and a number, Highway's Min and Max give the second operand (x86) or the number (scalar
// and EMU128 targets): Max(value, other) with an `other` that is never NaN skips NaN on all of them.
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
#include "codec/slices.h"
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

// Codes and words are handled as *fours*: the u32 lane j of a four holds the codes of four adjacent
// elements, 4 * kBits wide. They are taken from four vectors that LoadInterleaved4 has dealt out, lane
// j of vector k being element 4 * j + k. Fours of 8, 4 and 2 bits are words, half words and bytes of
// the stream; the other widths are joined in pairs to the kBits bytes of eight codes.
//
// Four vectors must not exceed the smallest group, 32.
using DFour = hn::CappedTag<float, 8>;
using DFourU = hn::RebindToUnsigned<DFour>;

constexpr bool whole_fours(int bits) { return bits == 2 || bits == 4 || bits == 8; }

template <int kBits>
void StoreFour(hn::Vec<DFourU> four, std::uint8_t* to) {
  const DFourU du;
  if constexpr (kBits == 8) {
    StoreAny(du, four, to);
  } else if constexpr (kBits == 4) {
    const hn::Rebind<std::uint16_t, DFour> d16;
    StoreAny(d16, hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<DFour>(), four)), to);
  } else {
    static_assert(kBits == 2);
    hn::StoreU(hn::U8FromU32(four), hn::Rebind<std::uint8_t, DFour>(), to);
  }
}

template <int kBits>
hn::Vec<DFourU> LoadFour(const std::uint8_t* from) {
  const DFourU du;
  if constexpr (kBits == 8) {
    return LoadAny(du, from);
  } else if constexpr (kBits == 4) {
    return hn::PromoteTo(du, LoadAny(hn::Rebind<std::uint16_t, DFour>(), from));
  } else {
    static_assert(kBits == 2);
    return hn::PromoteTo(du, hn::LoadU(hn::Rebind<std::uint8_t, DFour>(), from));
  }
}

template <int kBits>
void JoinFours(const std::uint32_t* fours, std::size_t eights, std::uint8_t* to) {
  for (std::size_t i = 0; i < eights; i++) {
    const std::uint64_t eight = fours[2 * i] | static_cast<std::uint64_t>(fours[2 * i + 1]) << (4 * kBits);
    // A store of 8 bytes is one instruction; the next ones overwrite its upper zeros.
    std::memcpy(to + i * kBits, &eight, (eights - i) * kBits >= 8 ? 8 : kBits);
  }
}

template <int kBits>
void PartFours(const std::uint8_t* from, std::size_t eights, std::uint32_t* fours) {
  constexpr std::uint32_t kMask = (1u << (4 * kBits)) - 1;
  for (std::size_t i = 0; i < eights; i++) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, from + i * kBits, (eights - i) * kBits >= 8 ? 8 : kBits);
    fours[2 * i] = static_cast<std::uint32_t>(eight) & kMask;
    fours[2 * i + 1] = static_cast<std::uint32_t>(eight >> (4 * kBits)) & kMask;
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

// MinOfLanes and MaxOfLanes, which know no infinities on EMU128: there they begin with the largest
// finite numbers.
float LowestLane(hn::Vec<DF> v) {
#if HWY_TARGET == HWY_EMU128
  alignas(64) float lanes[hn::MaxLanes(DF())];
  hn::Store(v, DF(), lanes);
  return *std::min_element(lanes, lanes + hn::Lanes(DF()));
#else
  return hn::GetLane(hn::MinOfLanes(DF(), v));
#endif
}

float HighestLane(hn::Vec<DF> v) { return -LowestLane(hn::Neg(v)); }

// Rounds `values` to the input type, into x, and takes the extremes of each group.
template <DType kInput>
void RoundAndFindExtremes(const float* values, std::size_t groups, std::size_t group, float* x, Groups& g) {
  const DF df;
  const std::size_t n = hn::Lanes(df);
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
    g.lo[k] = LowestLane(lo);
    g.hi[k] = HighestLane(hi);
  }
}

// The code of each number, in the low bits of a float's: 2^23 + t holds t, rounded to even.
template <int kBits, class D>
hn::Vec<hn::RebindToUnsigned<D>> CodeAboveMagic(D d, hn::Vec<D> x, hn::Vec<D> scale, hn::Vec<D> bias) {
  const auto t = hn::Div(hn::Sub(x, bias), scale);
  const auto clamped = hn::Min(hn::Max(t, hn::Zero(d)), hn::Set(d, affine::max_code(kBits)));
  return hn::BitCast(hn::RebindToUnsigned<D>(), hn::Add(clamped, hn::Set(d, 0x1p23f)));
}

template <int kBits>
void EncodeCodes(const float* x, std::size_t groups, std::size_t group, const Groups& g,
                 std::uint32_t* words) {
  const DFour d;
  const DFourU du;
  // What the bits of 2^23 add up to in a four, modulo 2^32.
  constexpr std::uint32_t kMagic = std::bit_cast<std::uint32_t>(0x1p23f);
  constexpr std::uint32_t kMagics =
      kMagic + (kMagic << kBits) + (kMagic << (2 * kBits)) + (kMagic << (3 * kBits));
  auto* to = reinterpret_cast<std::uint8_t*>(words);
  alignas(64) std::uint32_t fours[affine::kMaxDim / 4];
  for (std::size_t k = 0; k < groups; k++) {
    const auto scale = hn::Set(d, g.lo[k]), bias = hn::Set(d, g.hi[k]);
    for (std::size_t i = k * group; i < (k + 1) * group; i += 4 * hn::Lanes(d)) {
      hn::Vec<DFour> x0, x1, x2, x3;
      hn::LoadInterleaved4(d, x + i, x0, x1, x2, x3);
      auto four = CodeAboveMagic<kBits>(d, x0, scale, bias);
      four = hn::Add(four, hn::ShiftLeft<kBits>(CodeAboveMagic<kBits>(d, x1, scale, bias)));
      four = hn::Add(four, hn::ShiftLeft<2 * kBits>(CodeAboveMagic<kBits>(d, x2, scale, bias)));
      four = hn::Add(four, hn::ShiftLeft<3 * kBits>(CodeAboveMagic<kBits>(d, x3, scale, bias)));
      four = hn::Sub(four, hn::Set(du, kMagics));
      if constexpr (whole_fours(kBits)) {
        StoreFour<kBits>(four, to + i * kBits / 8);
      } else {
        hn::StoreU(four, du, fours + i / 4);
      }
    }
  }
  if constexpr (!whole_fours(kBits)) JoinFours<kBits>(fours, groups * group / 8, to);
}

// As EncodeCodes, in the order of slices.h: the words of a unit gather the codes of kSlice elements slot by
// slot.
template <int kBits, int kSlice>
void EncodeSlices(const float* x, std::size_t groups, std::size_t group, const Groups& g,
                  std::uint32_t* words) {
  using D = hn::CappedTag<float, kSlice>;
  const D d;
  const hn::RebindToUnsigned<D> du;
  constexpr std::size_t kSlots = 32 / kBits;
  std::uint32_t magics = 0;  // what the bits of 2^23 add up to in a word, modulo 2^32
  for (std::size_t e = 0; e < kSlots; e++) magics += std::bit_cast<std::uint32_t>(0x1p23f) << (e * kBits);
  for (std::size_t unit = 0; unit < groups * group; unit += kSlice * kSlots, words += kSlice) {
    for (std::size_t lane = 0; lane < kSlice; lane += hn::Lanes(d)) {
      auto word = hn::Zero(du);
      for (std::size_t e = 0; e < kSlots; e++) {
        const std::size_t element = unit + e * kSlice + lane, k = element / group;
        const auto code =
            CodeAboveMagic<kBits>(d, hn::LoadU(d, x + element), hn::Set(d, g.lo[k]), hn::Set(d, g.hi[k]));
        word = hn::Add(word, hn::ShiftLeftSame(code, static_cast<int>(e) * kBits));
      }
      StoreAny(du, hn::Sub(word, hn::Set(du, magics)), words + lane);
    }
  }
}

template <int kBits>
void EncodeSlicesOf(std::size_t slice, const float* x, std::size_t groups, std::size_t group, const Groups& g,
                    std::uint32_t* words) {
  (slice == 8   ? EncodeSlices<kBits, 8>
   : slice == 4 ? EncodeSlices<kBits, 4>
                : EncodeSlices<kBits, 2>)(x, groups, group, g, words);
}

template <DType kInput>
hn::Vec<DFour> Dequantize(hn::Vec<DFourU> code, hn::Vec<DFour> scale, hn::Vec<DFour> bias) {
  const DFour d;
  const auto number = hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<DFour>(), code));
  const auto v = f16::RoundTo<kInput>(d, hn::Add(f16::RoundTo<kInput>(d, hn::Mul(scale, number)), bias));
  return hn::IfThenElse(hn::Eq(v, v), v, hn::Set(d, affine::quiet_nan()));
}

template <int kBits, DType kInput>
void DecodeCodes(const std::uint32_t* words, std::size_t groups, std::size_t group, const Groups& g,
                 float* values) {
  const DFour d;
  const DFourU du;
  const auto mask = hn::Set(du, (1u << kBits) - 1);
  const auto* from = reinterpret_cast<const std::uint8_t*>(words);
  alignas(64) std::uint32_t fours[affine::kMaxDim / 4];
  if constexpr (!whole_fours(kBits)) PartFours<kBits>(from, groups * group / 8, fours);
  for (std::size_t k = 0; k < groups; k++) {
    const auto scale = hn::Set(d, g.lo[k]), bias = hn::Set(d, g.hi[k]);
    for (std::size_t i = k * group; i < (k + 1) * group; i += 4 * hn::Lanes(d)) {
      hn::Vec<DFourU> four;
      if constexpr (whole_fours(kBits)) {
        four = LoadFour<kBits>(from + i * kBits / 8);
      } else {
        four = hn::LoadU(du, fours + i / 4);
      }
      const auto x0 = Dequantize<kInput>(hn::And(four, mask), scale, bias);
      const auto x1 = Dequantize<kInput>(hn::And(hn::ShiftRight<kBits>(four), mask), scale, bias);
      const auto x2 = Dequantize<kInput>(hn::And(hn::ShiftRight<2 * kBits>(four), mask), scale, bias);
      const auto x3 = Dequantize<kInput>(hn::And(hn::ShiftRight<3 * kBits>(four), mask), scale, bias);
      hn::StoreInterleaved4(x0, x1, x2, x3, d, values + i);
    }
  }
}

// body.operator()<bits>() for bits of a valid affine codec.
template <class Body>
void WithBits(int bits, const Body& body) {
  switch (bits) {
    case 2: return body.template operator()<2>();
    case 3: return body.template operator()<3>();
    case 4: return body.template operator()<4>();
    case 5: return body.template operator()<5>();
    case 6: return body.template operator()<6>();
    default: return body.template operator()<8>();
  }
}

// slice: words that the codes are sliced over, 1 for the record's own order.
template <DType kInput>
void EncodeAffine(int bits, std::size_t group, std::size_t slice, const float* values, std::size_t dim,
                  std::uint32_t* words, std::uint32_t* params) {
  const std::size_t groups = dim / group;
  alignas(64) float x[affine::kMaxDim];
  Groups g;
  RoundAndFindExtremes<kInput>(values, groups, group, x, g);
  ScaleAndBias(bits, groups, g);
  WithBits(bits, [&]<int kBits>() {
    if constexpr (whole_fours(kBits)) {
      if (slice > 1) return EncodeSlicesOf<kBits>(slice, x, groups, group, g, words);
    }
    EncodeCodes<kBits>(x, groups, group, g, words);
  });
  PackParams<kInput>(groups, g, params);
}

template <DType kInput>
void DecodeAffine(int bits, std::size_t group, const std::uint32_t* words, const std::uint32_t* params,
                  std::size_t dim, float* values) {
  const std::size_t groups = dim / group;
  Groups g;
  UnpackParams<kInput>(groups, params, g);
  WithBits(bits, [&]<int kBits>() { DecodeCodes<kBits, kInput>(words, groups, group, g, values); });
}

}  // namespace

void EncodeRecord(const Codec& codec, std::size_t slice, const float* values, std::size_t dim,
                  std::uint32_t* words, std::uint32_t* params) {
  const auto group = static_cast<std::size_t>(codec.group());
  const DType input = codec.input();
  if (codec.is_affine()) {
    const auto encode = input == DType::kF32   ? EncodeAffine<DType::kF32>
                        : input == DType::kF16 ? EncodeAffine<DType::kF16>
                                               : EncodeAffine<DType::kBF16>;
    encode(codec.bits(), group, slice, values, dim, words, params);
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
  HWY_DYNAMIC_DISPATCH(EncodeRecord)(codec, 1, values.data(), values.size(), words.data(), params.data());
}

void encode_sliced(const Codec& codec, int lanes, std::span<const float> values,
                   std::span<std::uint32_t> words, std::span<std::uint32_t> params) {
  affine::check_record(codec, values.size(), words.size(), params.size());
  HWY_DYNAMIC_DISPATCH(EncodeRecord)
  (codec, static_cast<std::size_t>(lanes), values.data(), values.size(), words.data(), params.data());
}

void decode_record(const Codec& codec, std::span<const std::uint32_t> words,
                   std::span<const std::uint32_t> params, std::span<float> values) {
  affine::check_record(codec, values.size(), words.size(), params.size());
  HWY_DYNAMIC_DISPATCH(DecodeRecord)(codec, words.data(), params.data(), values.size(), values.data());
}

}  // namespace windrow
#endif  // HWY_ONCE
