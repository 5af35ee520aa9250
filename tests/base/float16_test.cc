// The 16-bit floats against definitions that do not share their bit tricks.
#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace windrow {
namespace {

// Nearest 16-bit float by search over all finite values: the definition of rounding.
template <typename Decode>
std::uint16_t nearest(float f, Decode decode, std::uint16_t largest_finite) {
  const std::uint16_t sign = std::signbit(f) ? 0x8000 : 0;
  const double x = std::fabs(static_cast<double>(f));
  std::uint16_t low = 0, high = static_cast<std::uint16_t>(largest_finite + 1);
  while (high - low > 1) {  // decode(low) <= x, monotone
    const std::uint16_t mid = static_cast<std::uint16_t>((low + high) / 2);
    (static_cast<double>(decode(mid)) <= x ? low : high) = mid;
  }
  const double a = decode(low);
  const double b = low == largest_finite ? 2 * a - decode(low - 1) : static_cast<double>(decode(high));
  const bool up = x - a > b - x || (x - a == b - x && (low & 1));
  return sign | static_cast<std::uint16_t>(low + up);
}

TEST(Float16, F16RoundTripsEveryValueExactly) {
  for (int i = 0; i < 65536; i++) {
    const std::uint16_t h = static_cast<std::uint16_t>(i);
    const float f = f32_from_f16(h);
    if ((h & 0x7fff) > 0x7c00) {
      EXPECT_TRUE(std::isnan(f));
      EXPECT_GT(f16_from_f32(f) & 0x7fff, 0x7c00);
    } else {
      EXPECT_EQ(f16_from_f32(f), h);
    }
  }
}

TEST(Float16, RoundingIsNearestTiesToEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; i++) {
    std::uint32_t u = random();
    if (i % 3 == 0) u &= 0xfffff000u;  // many exact ties
    float f;
    std::memcpy(&f, &u, 4);
    if (!std::isfinite(f)) continue;
    EXPECT_EQ(f16_from_f32(f), nearest(f, f32_from_f16, 0x7bff)) << f;
    EXPECT_EQ(bf16_from_f32(f), nearest(f, f32_from_bf16, 0x7f7f)) << f;
  }
}

TEST(Float16, SpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f16_from_f32(inf), 0x7c00);
  EXPECT_EQ(f16_from_f32(-inf), 0xfc00);
  EXPECT_EQ(bf16_from_f32(-inf), 0xff80);
  EXPECT_EQ(f16_from_f32(65519.996f), 0x7bff);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);
  EXPECT_EQ(f16_from_f32(-0.0f), 0x8000);
  EXPECT_GT(bf16_from_f32(std::numeric_limits<float>::quiet_NaN()) & 0x7fff, 0x7f80);
}

}  // namespace
}  // namespace windrow
