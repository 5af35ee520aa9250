// Activations for affine kernels: fixed point against each group's largest number, split into limbs.
// Compiled once per SIMD target (see product_affine_tiles.cc); every step is exact or one IEEE operation, so
// all targets make the same bits.
//
// A group's unit is max|x| / kLimit, and x becomes round(x / unit), ties to even: |x| <= kLimit. In kDefault
// that is upper * 128 + lower with lower in [-64, 63]; in kFast the upper part alone, rounded to it.
//   upper: 16 bits, its high byte and signed low byte fit bytes. codes * upper over a group:
//          255 * 32639 * 128 < 2^31.
//   lower: 7 bits, so that two products with codes of 8 bits, 255 * 64 * 2 = 32640, fit 16.
#if defined(WINDROW_PRODUCT_AFFINE_INPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_PRODUCT_AFFINE_INPUT_INL_H_
#undef WINDROW_PRODUCT_AFFINE_INPUT_INL_H_
#else
#define WINDROW_PRODUCT_AFFINE_INPUT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "model/product_affine.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The bits of the largest magnitude; of a NaN or infinity at least 0x7f800000. As integers they are
// ordered, and no comparison with NaN is met.
inline std::int32_t largest_bits(const float* x, std::size_t count) {
  const hn::ScalableTag<std::int32_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto mask = hn::Set(d, 0x7fffffff);
  const auto* bits = reinterpret_cast<const std::int32_t*>(x);
  auto most = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) most = hn::Max(most, hn::And(hn::LoadU(d, bits + i), mask));
  std::int32_t result = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < count; i++) result = std::max(result, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
  return result;
}

// Rows between 2^-64 and 2^64 are taken as they are: no product, sum or unit of theirs leaves the normal
// numbers but where it no longer matters. Others are brought there by a power of two.
inline RowScale row_scale(const float* x, std::size_t cols) {
  const std::int32_t bits = largest_bits(x, cols);
  if (bits >= 0x7f800000) return {0, std::numeric_limits<float>::quiet_NaN()};
  const float most = std::bit_cast<float>(bits);
  if (most >= 0x1p64f) return {0x1p-64f, 0x1p64f};
  if (most != 0 && most < 0x1p-64f) return {0x1p64f, 0x1p-64f};
  return {1, 1};
}

inline constexpr float kDefaultLimit = 4177850;  // rounding may add 1; upper <= 32639
inline constexpr float kFastLimit = 32638;
// Below it a group counts as this large: far below the rest of a row whose largest is at least 2^-85.
inline constexpr float kLeastMaximum = 0x1p-100f;

// One row's group of fixed point: numbers to out[group], the unit and the sum. `before` as in RowScale.
inline void fix(const float* x, std::size_t group, float limit, float before, std::int32_t* out, float& unit,
                float& sum) {
  const hn::CappedTag<float, 16> f;
  const hn::RebindToSigned<decltype(f)> d;
  if (before == 0) {  // a NaN or infinity among the row
    std::fill_n(out, group, 0);
    unit = sum = 0;
    return;
  }
  const float most = std::max(std::bit_cast<float>(largest_bits(x, group)) * before, kLeastMaximum);
  unit = most / limit;
  // Adding 1.5 * 2^23 rounds to a whole number, which the sum's low bits then are; |x / unit| < 2^22.
  const auto inverse = hn::Set(f, limit / most), scale = hn::Set(f, before), magic = hn::Set(f, 0x1.8p23f);
  auto total = hn::Zero(d);
  for (std::size_t i = 0; i < group; i += hn::Lanes(f)) {
    const auto t = hn::Mul(hn::Mul(hn::LoadU(f, x + i), scale), inverse);
    const auto n = hn::Sub(hn::BitCast(d, hn::Add(t, magic)), hn::BitCast(d, magic));
    hn::StoreU(n, d, out + i);
    total = hn::Add(total, n);
  }
  sum = static_cast<float>(hn::GetLane(hn::SumOfLanes(d, total))) * unit;
}

inline std::uint32_t pack_words(std::int32_t a, std::int32_t b) {
  return (static_cast<std::uint32_t>(a) & 0xffff) | static_cast<std::uint32_t>(b) << 16;
}
inline std::uint32_t pack_bytes(const std::int32_t* v) {
  const auto byte = [&](int i) { return (static_cast<std::uint32_t>(v[i]) & 0xff) << (8 * i); };
  return byte(0) | byte(1) | byte(2) | byte(3);
}

// One group of H rows at x, as product_affine.h lays a block out.
template <std::size_t H>
void prepare_fixed(InputFormat format, const float* x, std::size_t ldx, const RowScale* scales,
                   std::uint32_t* out) {
  const bool fast = format.compute == Compute::kFast;
  const std::size_t group = format.group;
  HWY_ALIGN std::int32_t upper[H][kMaxAffineGroup], lower[H][kMaxAffineGroup];
  auto* sums = reinterpret_cast<float*>(out + format.words(H) * H);
  for (std::size_t r = 0; r < H; r++) {
    fix(x + r * ldx, group, fast ? kFastLimit : kDefaultLimit, scales[r].before, upper[r], sums[H + r],
        sums[r]);
    if (fast) continue;
    for (std::size_t i = 0; i < group; i++) {
      const std::int32_t n = upper[r][i];
      upper[r][i] = (n + 64) >> 7;
      lower[r][i] = n - upper[r][i] * 128;
    }
  }
  std::uint32_t* bytes = out + group / 2 * H;
  for (std::size_t j = 0; j < group / 4; j++) {
    for (std::size_t r = 0; r < H; r++) {
      const std::int32_t* v = upper[r] + 4 * j;
      out[2 * j * H + r] = pack_words(v[0], v[2]);
      out[(2 * j + 1) * H + r] = pack_words(v[1], v[3]);
    }
    if (fast) continue;
    for (std::size_t r = 0; r < H; r++) bytes[j * H + r] = pack_bytes(lower[r] + 4 * j);
  }
  if (H > 1) return;
  std::uint32_t* high = bytes + (fast ? 0 : group / 4);
  for (std::size_t j = 0; j < group / 4; j++) {
    std::int32_t of_high[4];
    for (std::size_t i = 0; i < 4; i++) of_high[i] = (upper[0][4 * j + i] + 128) >> 8;
    high[j] = pack_bytes(of_high);
    high[group / 4 + j] = pack_bytes(upper[0] + 4 * j);
  }
}

template <std::size_t H>
void prepare_floats(InputFormat format, const float* x, std::size_t ldx, const RowScale* scales, float* out) {
  float sums[H] = {};
  for (std::size_t i = 0; i < format.group; i++) {
    for (std::size_t r = 0; r < H; r++) {
      // Not 0 * x: that would be NaN where x is.
      const float v = scales[r].before == 0 ? 0 : x[r * ldx + i] * scales[r].before;
      out[i * H + r] = v;
      sums[r] += v;
    }
  }
  std::copy_n(sums, H, out + format.group * H);
}

template <std::size_t H>
void prepare_rows(InputFormat format, const float* x, std::size_t ldx, const RowScale* scales,
                  std::byte* out) {
  if (format.compute == Compute::kF32) {
    return prepare_floats<H>(format, x, ldx, scales, reinterpret_cast<float*>(out));
  }
  prepare_fixed<H>(format, x, ldx, scales, reinterpret_cast<std::uint32_t*>(out));
}

inline void prepare_rows(InputFormat format, std::size_t height, const float* x, std::size_t ldx,
                         const RowScale* scales, std::byte* out) {
  switch (height) {
    case 1: return prepare_rows<1>(format, x, ldx, scales, out);
    case 2: return prepare_rows<2>(format, x, ldx, scales, out);
    case 3: return prepare_rows<3>(format, x, ldx, scales, out);
    default: return prepare_rows<4>(format, x, ldx, scales, out);
  }
}

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
