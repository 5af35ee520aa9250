// Stored values as f32 vectors, per instruction set: sliced codes, codes in the record's order, plain
// numbers. Included inside foreach_target, as unpack-inl.h.
#if defined(WINDROW_ATTENTION_UNPACK_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_ATTENTION_UNPACK_VALUES_INL_H_
#undef WINDROW_ATTENTION_UNPACK_VALUES_INL_H_
#else
#define WINDROW_ATTENTION_UNPACK_VALUES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attention/unpack-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {

// Values: vectors of a position's dims in order. A Chunk<kVecs, kTop> unpacks kVecs of them, whose first is
// a multiple of kVecs or of kVectors: Get<v> is code * 2^value_shift of vector v, `at` pointing Offset(first)
// bytes into the position's codes. kTop: HasTop(first), whether some code lies at a word's top; where that is
// so for every chunk, or means nothing, AlwaysTop.

// n words as lanes, again and again where there are fewer than lanes.
template <int n>
HWY_INLINE VU LoadRepeated(const std::byte* at) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(at);
#if HWY_TARGET != HWY_SCALAR
  if constexpr (n >= kLanes) return hn::LoadU(DU(), words);
  if constexpr (n == 8) {
    const auto half = hn::LoadU(hn::Half<DU>(), words);
    return hn::Combine(DU(), half, half);
  } else if constexpr (n == 4) {
    return hn::LoadDup128(DU(), words);
  } else if constexpr (n == 2) {
    std::uint64_t pair;
    std::memcpy(&pair, words, sizeof(pair));
    return hn::BitCast(DU(), hn::Set(hn::Repartition<std::uint64_t, DU>(), pair));
  }
#endif
  return hn::LoadU(DU(), words);
}

// The masks of a unit of slices: one a vector, and for those that have top codes the shifts that bring them
// down.
template <int kBits, int kSlice>
struct SliceTable {
  static constexpr int kSlots = 32 / kBits;
  static constexpr int kUnitVecs = kSlice * kSlots / kLanes;
  static constexpr int kTopVecs = HWY_MAX(1, kSlice / kLanes);  // the last ones of a unit
  alignas(64) std::uint32_t masks[kUnitVecs][kLanes] = {};
  alignas(64) std::uint32_t shifts[kLanes] = {};

  constexpr SliceTable() {
    for (int v = 0; v < kUnitVecs; v++) {
      for (int lane = 0; lane < kLanes; lane++) {
        const int slot = (v * kLanes + lane) / kSlice;
        masks[v][lane] = ((1u << kBits) - 1) << slot_shift(kBits, slot);
        if (v == kUnitVecs - 1) shifts[lane] = slot == kSlots - 1 ? 32 - kBits : 0;
      }
    }
  }
};

template <int kBits, int kSlice>
inline constexpr SliceTable<kBits, kSlice> kSlices{};

template <int kBits, int kSlice>
struct SlicedValues {
  using Table = SliceTable<kBits, kSlice>;
  static constexpr int kUnitVecs = Table::kUnitVecs;

  template <int kVecs>
  static constexpr bool AlwaysTop() {
    return kVecs >= kUnitVecs;
  }
  template <int kVecs>
  static HWY_INLINE bool HasTop(int first) {
    return first % kUnitVecs + HWY_MIN(kVecs, kUnitVecs) > kUnitVecs - Table::kTopVecs;
  }

  template <int kVecs, bool kTop>
  struct Chunk {
    static constexpr int kCycle = HWY_MIN(kVecs, kUnitVecs);  // vectors of one unit
    VU masks[kCycle];

    HWY_INLINE explicit Chunk(int first) {
      WINDROW_UNROLL
      for (int v = 0; v < kCycle; v++) {
        masks[v] = hn::LoadU(DU(), kSlices<kBits, kSlice>.masks[first % kUnitVecs + v]);
        WINDROW_IN_REGISTER(masks[v]);
      }
    }
    static HWY_INLINE std::size_t Offset(int first) {
      return static_cast<std::size_t>(first / kUnitVecs * kSlice + first * kLanes % kSlice) * 4;
    }
    template <int v>
    HWY_INLINE VF Get(const std::byte* at) const {
      constexpr int kInUnit = v % kCycle;
      const VU words = LoadRepeated<kSlice>(at + (v / kCycle * kSlice + kInUnit * kLanes % kSlice) * 4);
      VU field;
      if constexpr (!kTop || kInUnit < kCycle - Table::kTopVecs) {
        field = hn::And(words, masks[kInUnit]);
      } else if constexpr (kSlice >= kLanes) {
        field = hn::ShiftRight<32 - kBits>(words);
      } else {
        field = hn::And(hn::Shr(words, hn::LoadU(DU(), kSlices<kBits, kSlice>.shifts)), masks[kInUnit]);
      }
      return hn::ConvertTo(DF(), hn::BitCast(DI(), field));
    }
  };
};

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

// What is not sliced has one kind of chunk.
struct Unsliced {
  template <int kVecs>
  static constexpr bool AlwaysTop() {
    return true;
  }
};

// Codes in the record's order. Reads up to 15 bytes past them: the params of a block stand behind its codes.
template <int kBits>
struct PickedValues : Unsliced {
  template <int kVecs, bool kTop>
  struct Chunk {
    HWY_INLINE explicit Chunk(int) {}
    static HWY_INLINE std::size_t Offset(int first) {
      return static_cast<std::size_t>(first * kLanes * kBits) / 8;
    }
    template <int v>
    HWY_INLINE VF Get(const std::byte* at) const {
      constexpr int kStart = v * kLanes * kBits;
#if HWY_TARGET == HWY_SCALAR
      constexpr std::uint32_t kMask = ((1u << kBits) - 1) << (kStart % 8);
      std::uint16_t pair;
      std::memcpy(&pair, at + kStart / 8, 2);
      return hn::Set(DF(), static_cast<float>(pair & kMask));
#else
      constexpr int kPhase = kStart % 8 == 0 ? 0 : 1;
      const hn::Repartition<std::uint8_t, DF> d8;
      const DU du;
      const auto loaded = hn::LoadDup128(d8, reinterpret_cast<const std::uint8_t*>(at) + kStart / 8);
      const auto picked = hn::TableLookupBytesOr0(loaded, hn::Load(d8, kPick<kBits>.bytes[kPhase]));
      const VU field = hn::And(hn::BitCast(du, picked), hn::Load(du, kPick<kBits>.masks[kPhase]));
      return hn::ConvertTo(DF(), hn::BitCast(DI(), field));
#endif
    }
  };
};

template <DType kType>
struct PlainValues : Unsliced {
  template <int kVecs, bool kTop>
  struct Chunk {
    HWY_INLINE explicit Chunk(int) {}
    static HWY_INLINE std::size_t Offset(int first) {
      return static_cast<std::size_t>(first * kLanes) * (kType == DType::kF32 ? 4 : 2);
    }
    template <int v>
    HWY_INLINE VF Get(const std::byte* at) const {
      constexpr int kFirst = v * kLanes;
      if constexpr (kType == DType::kF32) {
        return hn::LoadU(DF(), reinterpret_cast<const float*>(at) + kFirst);
      } else {
        const hn::Rebind<std::uint16_t, DF> d16;
        const auto half = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(at) + kFirst);
#if WINDROW_HAS_F16
        if constexpr (kType == DType::kF16) {
          return hn::PromoteTo(DF(), hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), half));
        }
#endif
        return LowNumber<kType>(hn::PromoteTo(DU(), half));
      }
    }
  };
};

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
