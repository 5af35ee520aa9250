// Stored numbers as f32 vectors, per instruction set: what the key and value kernels share.
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
// Independent sums of a register block: 4 cycles latency x 2 units, in 16 registers; twice that
// with the 32 of AVX-512 (16 lanes), where the unpacking then hides better.
inline constexpr int kSums = kLanes == 16 ? 16 : kLanes == 1 ? 4 : 8;
// Queries that share unpacked codes in registers. Four with 4 lanes are more sums than SSE's
// registers hold, and one lane gains nothing.
inline constexpr int kSharing = kLanes >= 8 ? 4 : kLanes == 4 ? 2 : 1;

// f16 bits in the low half of each lane (the high half 0), exact, infinities and NaN too: shifted
// into place the number is 2^-112 of its value, denormals included.
HWY_INLINE VF FloatFromHalfBits(VU half) {
  const DU du;
  const DF df;
  const VU magnitude = hn::And(half, hn::Set(du, 0x7fffu));
  const VU sign = hn::ShiftLeft<16>(hn::Xor(half, magnitude));
  const VF value = hn::Mul(hn::BitCast(df, hn::ShiftLeft<13>(magnitude)), hn::Set(df, 0x1p112f));
  const DI di;
  const auto special = hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7bff)));
  const VU infinite = hn::IfThenElseZero(special, hn::Set(du, 0x7f800000u));
  return hn::BitCast(df, hn::Or(hn::Or(hn::BitCast(du, value), infinite), sign));
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

constexpr int Gcd(int a, int b) { return b == 0 ? a : Gcd(b, a % b); }

// Keys: kWords lines of a tile hold kElements dims of 16 positions. Get<E> gives
// code * 2^key_shift of element E, `line` pointing at this vector's lanes in the first line.
template <int kBits>
struct AffineKeys {
  static constexpr bool kAffine = true;
  static constexpr int kWords = kBits / Gcd(kBits, 32);
  static constexpr int kElements = 32 / Gcd(kBits, 32);

  template <int E>
  static HWY_INLINE VF Get(const std::byte* line) {
    constexpr int kWord = E * kBits / 32, kBit = E * kBits % 32;
    constexpr std::uint32_t kMask = (1u << kBits) - 1;
    const DU du;
    VU field = LoadWords(line + kWord * 64);
    if constexpr (kBit + kBits > 32) {
      const VU high = hn::ShiftLeft<32 - kBit>(LoadWords(line + kWord * 64 + 64));
      field = hn::And(hn::Or(hn::ShiftRight<kBit>(field), high), hn::Set(du, kMask));
    } else if constexpr (kBit + kBits == 32) {
      field = hn::ShiftRight<kBit>(field);
    } else {
      field = hn::And(field, hn::Set(du, kMask << kBit));
    }
    return hn::ConvertTo(DF(), hn::BitCast(DI(), field));
  }
};

template <DType kType>
struct PlainKeys {
  static constexpr bool kAffine = false;
  static constexpr int kWords = 1;
  static constexpr int kElements = kType == DType::kF32 ? 1 : 2;

  template <int E>
  static HWY_INLINE VF Get(const std::byte* line) {
    if constexpr (kType == DType::kF32) return hn::BitCast(DF(), LoadWords(line));
    if constexpr (E == 0) return LowNumber<kType>(LoadWords(line));
    return HighNumber<kType>(LoadWords(line));
  }
};

// Values: units of 16 dims of one position, kVectors vectors in dim order.
inline constexpr int kVectors = kTile / kLanes;

// Which bytes of the 16 loaded each lane takes, and which bits of those are its code. A vector
// starts at a byte when it holds 8 or 16 codes; of 4 codes of odd width every second one starts in
// the middle of a byte, hence the phases.
template <int kBits>
struct PickTable {
  static constexpr int kPhases = kLanes * kBits % 8 == 0 ? 1 : 2;
  alignas(64) std::uint8_t bytes[kPhases][64] = {};
  alignas(64) std::uint32_t masks[kPhases][16] = {};

  constexpr PickTable() {
    for (int phase = 0; phase < kPhases; phase++) {
      for (int lane = 0; lane < kLanes; lane++) {
        const int bit = phase * (kLanes * kBits % 8) + lane * kBits;
        const bool crosses = bit % 8 + kBits > 8;
        bytes[phase][lane * 4] = static_cast<std::uint8_t>(bit / 8);
        bytes[phase][lane * 4 + 1] = static_cast<std::uint8_t>(crosses ? bit / 8 + 1 : 0x80);
        bytes[phase][lane * 4 + 2] = bytes[phase][lane * 4 + 3] = 0x80;  // 0x80: a zero byte
        masks[phase][lane] = ((1u << kBits) - 1) << (bit % 8);
      }
    }
  }
};

template <int kBits>
inline constexpr PickTable<kBits> kPick{};

// Reads up to 15 bytes past the unit: the params of a block stand behind its codes.
template <int kBits>
struct AffineValues {
  static constexpr std::size_t kUnitBytes = 2 * kBits;

  template <int kVector>
  static HWY_INLINE VF Get(const std::byte* unit) {
    constexpr int kStart = kVector * kLanes * kBits;
#if HWY_TARGET == HWY_SCALAR
    constexpr std::uint32_t kMask = ((1u << kBits) - 1) << (kStart % 8);
    std::uint16_t pair;
    std::memcpy(&pair, unit + kStart / 8, 2);
    return hn::Set(DF(), static_cast<float>(pair & kMask));
#else
    constexpr int kPhase = kStart % 8 == 0 ? 0 : 1;
    const hn::Repartition<std::uint8_t, DF> d8;
    const DU du;
    const auto loaded = hn::LoadDup128(d8, reinterpret_cast<const std::uint8_t*>(unit) + kStart / 8);
    const auto picked = hn::TableLookupBytesOr0(loaded, hn::Load(d8, kPick<kBits>.bytes[kPhase]));
    const VU field = hn::And(hn::BitCast(du, picked), hn::Load(du, kPick<kBits>.masks[kPhase]));
    return hn::ConvertTo(DF(), hn::BitCast(DI(), field));
#endif
  }
};

template <DType kType>
struct PlainValues {
  static constexpr std::size_t kUnitBytes = kType == DType::kF32 ? 64 : 32;

  template <int kVector>
  static HWY_INLINE VF Get(const std::byte* unit) {
    constexpr int kFirst = kVector * kLanes;
    if constexpr (kType == DType::kF32) {
      return hn::LoadU(DF(), reinterpret_cast<const float*>(unit) + kFirst);
    } else {
      const hn::Rebind<std::uint16_t, DF> d16;
      const auto half = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(unit) + kFirst);
      return LowNumber<kType>(hn::PromoteTo(DU(), half));
    }
  }
};

// One line of those that a Prefetch names for a tile.
HWY_INLINE void PrefetchLine(const Prefetch& prefetch, int tile, int line) {
  const std::byte* at = line < prefetch.code_lines
                            ? prefetch.codes[tile] + line * 64
                            : prefetch.params[tile] + (line - prefetch.code_lines) * 64;
  // To L2: asking for L1 costs 25 to 55 % (prototype), the lines there are in use.
  __builtin_prefetch(at, 0, 2);
}

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
