// Slicing in SIMD: up to four elements at a time, which lie in one word of a record and in as many words
// of a slice.
#include "codec/slices.h"

#include <cassert>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/slices.cc"  // NOLINT
#include <hwy/foreach_target.h>               // IWYU pragma: keep
// After foreach_target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Elements e * kSlice + lane .. and on are elements `word * 32 / kBits + slot` and on of the record.
template <int kBits, int kSlice>
struct Unit {
  static constexpr int kCodes = 32 / kBits;
  static constexpr int kStep = HWY_MIN(kSlice, HWY_MIN(4, static_cast<int>(HWY_LANES(std::uint32_t))));
  using D = hn::CappedTag<std::uint32_t, kStep>;
  using V = hn::Vec<D>;
  static constexpr std::uint32_t kMask = (1u << kBits) - 1;

  static HWY_INLINE V Shifts() { return hn::Mul(hn::Iota(D(), 0), hn::Set(D(), kBits)); }

  static void Slice(const std::uint32_t* record, std::uint32_t* sliced) {
    const D d;
    for (int lane = 0; lane < kSlice; lane += kStep) {
      V words = hn::Zero(d);
      for (int e = 0; e < kCodes; e++) {
        const int element = e * kSlice + lane;
        const V word = hn::ShiftRightSame(hn::Set(d, record[element / kCodes]), element % kCodes * kBits);
        const V codes = hn::And(hn::Shr(word, Shifts()), hn::Set(d, kMask));
        words = hn::Or(words, hn::ShiftLeftSame(codes, e * kBits));
      }
      hn::StoreU(words, d, sliced + lane);
    }
  }

  static void Unslice(const std::uint32_t* sliced, std::uint32_t* record) {
    const D d;
    for (int w = 0; w < kSlice; w++) {
      V sum = hn::Zero(d);
      for (int slot = 0; slot < kCodes; slot += kStep) {
        const int element = w * kCodes + slot;
        const V words = hn::LoadU(d, sliced + element % kSlice);
        const V codes = hn::And(hn::ShiftRightSame(words, element / kSlice * kBits), hn::Set(d, kMask));
        sum = hn::Or(sum, hn::ShiftLeftSame(hn::Shl(codes, Shifts()), slot * kBits));
      }
      std::uint32_t lanes[kStep];
      hn::StoreU(sum, d, lanes);
      std::uint32_t word = 0;
      for (const std::uint32_t lane : lanes) word |= lane;
      record[w] = word;
    }
  }
};

template <int kBits, int kSlice>
void Units(const std::uint32_t* from, std::uint32_t* to, std::size_t words, bool back) {
  for (std::size_t w = 0; w < words; w += kSlice) {
    (back ? Unit<kBits, kSlice>::Unslice : Unit<kBits, kSlice>::Slice)(from + w, to + w);
  }
}

template <int kBits>
void UnitsOfBits(int lanes, const std::uint32_t* from, std::uint32_t* to, std::size_t words, bool back) {
  (lanes == 8 ? Units<kBits, 8> : lanes == 4 ? Units<kBits, 4> : Units<kBits, 2>)(from, to, words, back);
}

}  // namespace

void Permute(int bits, int lanes, const std::uint32_t* from, std::uint32_t* to, std::size_t words,
             bool back) {
  (bits == 2 ? UnitsOfBits<2> : bits == 4 ? UnitsOfBits<4> : UnitsOfBits<8>)(lanes, from, to, words, back);
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

HWY_EXPORT(Permute);

void slice_words(int bits, int lanes, std::span<const std::uint32_t> record,
                 std::span<std::uint32_t> sliced) {
  assert(record.size() == sliced.size() && record.size() % static_cast<std::size_t>(lanes) == 0);
  HWY_DYNAMIC_DISPATCH(Permute)(bits, lanes, record.data(), sliced.data(), record.size(), false);
}

void unslice_words(int bits, int lanes, std::span<const std::uint32_t> sliced,
                   std::span<std::uint32_t> record) {
  assert(record.size() == sliced.size() && record.size() % static_cast<std::size_t>(lanes) == 0);
  HWY_DYNAMIC_DISPATCH(Permute)(bits, lanes, sliced.data(), record.data(), sliced.size(), true);
}

}  // namespace windrow
#endif  // HWY_ONCE
