// Stored numbers as f32 vectors, per instruction set: what all kernels share, and keys. Values are in
// unpack_values-inl.h.
// Included inside HWY_BEFORE_NAMESPACE by foreach_target; no include guard of its own kind.
#if defined(WINDROW_ATTENTION_UNPACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_ATTENTION_UNPACK_INL_H_
#undef WINDROW_ATTENTION_UNPACK_INL_H_
#else
#define WINDROW_ATTENTION_UNPACK_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attention/kernel.h"
#include "hwy/highway.h"

// Register arrays need full unrolling to stay in registers.
#ifndef WINDROW_UNROLL
#ifdef __clang__
#define WINDROW_UNROLL _Pragma("unroll")
#else
#define WINDROW_UNROLL _Pragma("GCC unroll 16")
#endif
#endif
// Keeps a vector in a register across a loop: compilers else make constants anew, or load them, each time.
#undef WINDROW_IN_REGISTER
#if HWY_ARCH_X86 && defined(__GNUC__) && defined(__OPTIMIZE__) && HWY_TARGET != HWY_EMU128
#define WINDROW_IN_REGISTER(v) asm("" : "+v"((v).raw))
#else
#define WINDROW_IN_REGISTER(v) static_cast<void>(v)
#endif
// Whether Highway converts f16 by an instruction, of which infinities and NaN come out right too.
#undef WINDROW_HAS_F16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define WINDROW_HAS_F16 1
#else
#define WINDROW_HAS_F16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;

inline constexpr int kLanes = static_cast<int>(HWY_LANES(float));
static_assert(kLanes <= kTile, "a line of a K tile is at least one vector");
inline constexpr int kVectors = kTile / kLanes;  // of 16 positions or dims
// Independent sums of a register block: 4 cycles latency x 2 units, in 16 registers; twice that
// with the 32 of AVX-512 (16 lanes), where the unpacking then hides better.
inline constexpr int kSums = kLanes == 16 ? 16 : kLanes == 1 ? 4 : 8;
// Queries that share unpacked codes in registers: panels of kMaxPanel while there are as many, then of 2 and
// of 1. Four with 4 lanes are more sums than SSE has registers for, and one lane gains nothing.
inline constexpr int kMaxPanel = kLanes == 1 ? 1 : kLanes == 4 ? 2 : 4;
// Calls body.operator()<queries of the panel>(its first query) for each of them.
template <class Body>
HWY_INLINE void ForEachPanel(int queries, const Body& body) {
  int query = 0;
  for (; query + kMaxPanel <= queries; query += kMaxPanel) body.template operator()<kMaxPanel>(query);
  if constexpr (kMaxPanel > 2) {
    for (; query + 2 <= queries; query += 2) body.template operator()<2>(query);
  }
  if constexpr (kMaxPanel > 1) {
    if (query < queries) body.template operator()<1>(query);
  }
}

// f16 bits in the low half of each lane (the high half 0), exact, infinities and NaN too. Where no
// instruction does it: shifted into place the number is 2^-112 of its value, denormals included.
HWY_INLINE VF FloatFromHalfBits(VU half) {
#if WINDROW_HAS_F16
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(DF(), hn::BitCast(d16, hn::TruncateTo(hn::Rebind<std::uint16_t, DF>(), half)));
#else
  const DU du;
  const DF df;
  const VU magnitude = hn::And(half, hn::Set(du, 0x7fffu));
  const VU sign = hn::ShiftLeft<16>(hn::Xor(half, magnitude));
  const VF value = hn::Mul(hn::BitCast(df, hn::ShiftLeft<13>(magnitude)), hn::Set(df, 0x1p112f));
  const DI di;
  const auto special = hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7bff)));
  const VU infinite = hn::IfThenElseZero(special, hn::Set(du, 0x7f800000u));
  return hn::BitCast(df, hn::Or(hn::Or(hn::BitCast(du, value), infinite), sign));
#endif
}

// The low or high 16 bits of each lane as a number.
template <DType kType>
HWY_INLINE VF LowNumber(VU word) {
  if constexpr (kType == DType::kBF16) return hn::BitCast(DF(), hn::ShiftLeft<16>(word));
  return FloatFromHalfBits(hn::And(word, hn::Set(DU(), 0xffffu)));
}
template <DType kType>
HWY_INLINE VF HighNumber(VU word) {
  if constexpr (kType == DType::kBF16) return hn::BitCast(DF(), hn::And(word, hn::Set(DU(), 0xffff0000u)));
  return FloatFromHalfBits(hn::ShiftRight<16>(word));
}

HWY_INLINE VU LoadWords(const std::byte* p) {
  return hn::LoadU(DU(), reinterpret_cast<const std::uint32_t*>(p));
}

// The params of one group for the positions of a vector, `params` pointing at its lanes in the tile's first
// line of params.
struct ScaleBias {
  VF scale, bias;
};
HWY_INLINE ScaleBias LoadParams(const std::byte* params, DType type, int group) {
  if (type == DType::kF32) {
    return {hn::BitCast(DF(), LoadWords(params + group * 128)),
            hn::BitCast(DF(), LoadWords(params + group * 128 + 64))};
  }
  const VU word = LoadWords(params + group * 64);
  if (type == DType::kBF16) return {LowNumber<DType::kBF16>(word), HighNumber<DType::kBF16>(word)};
  return {LowNumber<DType::kF16>(word), HighNumber<DType::kF16>(word)};
}

// Keys: a unit is kFields fields of kCodes dims, in kWords lines of a tile. A Pass<kFirst> takes kCount codes
// of each field, from code kFirst on. Field<k> is field k, and anything above it, for one vector's positions,
// `line` pointing at its lanes in the unit's first line; Get<i> is its code kFirst + i, times 2^key_shift.

template <int kBits>
struct AffineKeys {
  static constexpr bool kAffine = true;
  static constexpr int kCodes = key_field_codes(kBits);
  static constexpr int kPassCodes = 2;
  static constexpr int kFieldBits = kCodes * kBits;  // 32, or 24 (3 and 6 bits) or 20 (5 bits)
  static constexpr int kFields = kFieldBits == 32 ? 1 : kFieldBits == 24 ? 4 : 8;
  static constexpr int kWords = kFields * kFieldBits / 32;

  template <int k>
  static HWY_INLINE VU Field(const std::byte* line) {
    constexpr int kBit = k * kFieldBits % 32, kWord = k * kFieldBits / 32;
    const VU word = LoadWords(line + kWord * 64);
    if constexpr (kBit == 0) return word;
    if constexpr (kBit + kFieldBits <= 32) return hn::ShiftRight<kBit>(word);
    return hn::Or(hn::ShiftRight<kBit>(word),
                  hn::ShiftLeft<(32 - kBit) % 32>(LoadWords(line + kWord * 64 + 64)));
  }

  template <int kFirstCode>
  struct Pass {
    using Keys = AffineKeys;
    static constexpr int kFirst = kFirstCode;
    static constexpr int kCount = HWY_MIN(kPassCodes, kCodes - kFirst);
    VU masks[kCount];

    HWY_INLINE Pass() {
      WINDROW_UNROLL
      for (int i = 0; i < kCount; i++) {
        masks[i] = hn::Set(DU(), ((1u << kBits) - 1) << ((kFirst + i) * kBits));
        WINDROW_IN_REGISTER(masks[i]);
      }
    }
    template <int i>
    HWY_INLINE VF Get(VU field) const {
      if constexpr ((kFirst + i + 1) * kBits == 32) {
        field = hn::ShiftRight<32 - kBits>(field);
      } else {
        field = hn::And(field, masks[i]);
      }
      return hn::ConvertTo(DF(), hn::BitCast(DI(), field));
    }
  };
};

template <DType kType>
struct PlainKeys {
  static constexpr bool kAffine = false;
  static constexpr int kCodes = kType == DType::kF32 ? 1 : 2;
  static constexpr int kPassCodes = kCodes;
  static constexpr int kFieldBits = 32;
  static constexpr int kFields = 1;
  static constexpr int kWords = 1;

  template <int k>
  static HWY_INLINE VU Field(const std::byte* line) {
    return LoadWords(line);
  }

  template <int kFirstCode>
  struct Pass {
    using Keys = PlainKeys;
    static constexpr int kFirst = kFirstCode;
    static constexpr int kCount = kCodes;
    template <int i>
    HWY_INLINE VF Get(VU field) const {
      if constexpr (kType == DType::kF32) return hn::BitCast(DF(), field);
      if constexpr (i == 0) return LowNumber<kType>(field);
      return HighNumber<kType>(field);
    }
  };
};

// To L2: asking for L1 costs 25 to 55 % (prototype), the lines there are in use.
HWY_INLINE void PrefetchLine(const std::byte* at) { __builtin_prefetch(at, 0, 2); }

HWY_INLINE void PrefetchParams(const Tiles& tiles, int tile) {
  for (int line = 0; line < tiles.param_lines; line++) PrefetchLine(tiles.params[tile] + line * 64);
}

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
