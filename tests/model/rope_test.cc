// RoPE of every type against formulas in f64, written in another form where there is one.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "model/layers.h"

namespace windrow {
namespace {

using Doubles = std::vector<double>;

RopeConfig rope_of(RopeType type, double theta, double factor = 1, int original = 0) {
  RopeConfig c;
  c.type = type;
  c.theta = theta;
  c.factor = factor;
  c.original_max_positions = original;
  return c;
}

Doubles plain(double theta, int dim) {
  Doubles out;
  for (int i = 0; i < dim / 2; i++) out.push_back(std::exp(-2.0 * i / dim * std::log(theta)));
  return out;
}

// Frequencies are f32 after a handful of roundings.
void expect_frequencies(const RopeFrequencies& rope, const Doubles& want) {
  ASSERT_EQ(rope.size(), want.size());
  for (std::size_t i = 0; i < want.size(); i++) {
    EXPECT_NEAR(rope.frequencies()[i], want[i], 1e-6 * want[i]) << "pair " << i;
  }
}

double rotations(const RopeConfig& c, double frequency) {
  return c.original_max_positions * frequency / (2 * M_PI);
}

TEST(Rope, FrequenciesFallFromOneAndLinearScalingDividesThem) {
  const RopeFrequencies base(64, rope_of(RopeType::kDefault, 1e6), 4096);
  const RopeFrequencies scaled(64, rope_of(RopeType::kLinear, 1e6, 8), 4096);
  expect_frequencies(base, plain(1e6, 64));
  std::vector<float> c(32), s(32), c8(32), s8(32);
  base.fill(5, c.data(), s.data());
  scaled.fill(40, c8.data(), s8.data());
  for (std::size_t i = 0; i < 32; i++) {
    const double angle = 5 * std::pow(1e6, -static_cast<double>(i) / 32);
    EXPECT_NEAR(c[i], std::cos(angle), 1e-6);
    EXPECT_NEAR(s[i], std::sin(angle), 1e-6);
    EXPECT_EQ(c[i], c8[i]);  // 8 is a power of two: position 40 over 8 is position 5, exactly
    EXPECT_EQ(s[i], s8[i]);
  }
}

TEST(Rope, PositionZeroTurnsNothing) {
  const RopeFrequencies rope(8, RopeConfig{}, 512);
  std::vector<float> c(4), s(4);
  rope.fill(0, c.data(), s.data());
  EXPECT_EQ(c, std::vector<float>(4, 1.0f));
  EXPECT_EQ(s, std::vector<float>(4, 0.0f));
}

// An exact angle would differ by up to 2.4e-4 here: the models were trained with the f32 one.
TEST(Rope, AnglesAreRoundedToF32AsInTraining) {
  const RopeFrequencies rope(64, rope_of(RopeType::kDefault, 1e4), 1 << 20);
  std::vector<float> c(32), s(32);
  constexpr std::int32_t kPosition = 131071;
  rope.fill(kPosition, c.data(), s.data());
  for (std::size_t i = 0; i < 32; i++) {
    const float exponent = static_cast<float>(2 * i) / 64.0f;
    const float frequency = 1.0f / static_cast<float>(std::pow(10000.0, static_cast<double>(exponent)));
    const float angle = static_cast<float>(kPosition) * frequency;
    EXPECT_EQ(c[i], static_cast<float>(std::cos(static_cast<double>(angle))));
    EXPECT_EQ(s[i], static_cast<float>(std::sin(static_cast<double>(angle))));
  }
}

TEST(Rope, APartOfTheHeadTurnsAsAHeadOfThatSize) {
  RopeConfig c = rope_of(RopeType::kDefault, 1e4);
  c.partial_rotary_factor = 0.25;
  EXPECT_EQ(rotary_dim(64, c), 16);
  const RopeFrequencies rope(64, c, 512);
  EXPECT_EQ(rope.rotary_dim(), 16u);
  expect_frequencies(rope, plain(1e4, 16));
  c.partial_rotary_factor = 0.75;
  EXPECT_EQ(rotary_dim(96, c), 72);
}

TEST(Rope, ProportionalTurnsTheFirstPairsOfTheWholeHead) {
  RopeConfig c = rope_of(RopeType::kProportional, 1e6);
  c.partial_rotary_factor = 0.25;
  EXPECT_EQ(rotary_dim(64, c), 64);
  Doubles want = plain(1e6, 64);
  std::fill(want.begin() + 8, want.end(), 0.0);
  const RopeFrequencies rope(64, c, 512);
  expect_frequencies(rope, want);
  std::vector<float> cosine(32), sine(32), x(64);
  std::iota(x.begin(), x.end(), 0.1f);
  const std::vector<float> before = x;
  rope.fill(77, cosine.data(), sine.data());
  norm_rope(x.data(), 1, 64, 64, nullptr, 0, cosine.data(), sine.data());
  for (std::size_t i = 0; i < 64; i++) EXPECT_EQ(x[i] == before[i], i % 32 >= 8) << i;

  c.factor = 4;
  for (double& f : want) f /= 4;
  expect_frequencies(RopeFrequencies(64, c, 512), want);
  c.partial_rotary_factor = 0.49;  // 15.68 pairs
  EXPECT_GT(RopeFrequencies(64, c, 512).frequencies()[14], 0.0f);
  EXPECT_EQ(RopeFrequencies(64, c, 512).frequencies()[15], 0.0f);
  c.partial_rotary_factor = 0;
  EXPECT_EQ(RopeFrequencies(64, c, 512).frequencies(), std::vector<float>(32, 0.0f));
}

TEST(Rope, DynamicIsPlainWithinTheTrainedLength) {
  const RopeConfig c = rope_of(RopeType::kDynamic, 1e4, 4, 2048);
  const std::vector<float> base = RopeFrequencies(64, rope_of(RopeType::kDefault, 1e4), 2048).frequencies();
  EXPECT_EQ(RopeFrequencies(64, c, 2048).frequencies(), base);
  EXPECT_EQ(RopeFrequencies(64, c, 100).frequencies(), base);
}

// The base is chosen such that the slowest pair turns as in linear scaling and the fastest as before; between
// them the stretch grows geometrically.
TEST(Rope, DynamicStretchesTheSlowPairsForALongerMaximum) {
  const RopeConfig c = rope_of(RopeType::kDynamic, 1e4, 4, 2048);
  constexpr double kStretch = 4.0 * 6144 / 2048 - 3;
  Doubles want = plain(1e4, 64);
  for (std::size_t i = 0; i < 32; i++) want[i] *= std::pow(kStretch, -static_cast<double>(i) / 31);
  expect_frequencies(RopeFrequencies(64, c, 6144), want);
}

TEST(Rope, Llama3DividesLongWavesKeepsShortOnesAndBlendsBetween) {
  RopeConfig c = rope_of(RopeType::kLlama3, 5e5, 8, 8192);
  c.low_freq_factor = 1;
  c.high_freq_factor = 4;
  Doubles want = plain(5e5, 128);
  int kept = 0, divided = 0;
  for (double& f : want) {
    const double turns = rotations(c, f);  // within the trained length
    if (turns > 4) {
      kept++;
    } else if (turns < 1) {
      divided++;
      f /= 8;
    } else {
      f *= std::lerp(1.0 / 8, 1.0, (turns - 1) / 3);
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(divided, 20);
  EXPECT_GT(64 - kept - divided, 3);
  expect_frequencies(RopeFrequencies(128, c, 131072), want);
}

// Without truncation the ramp is linear in the logarithm of the rotations, from beta_fast to beta_slow.
TEST(Rope, YarnOfGptOssBlendsByTheLogarithmOfRotations) {
  RopeConfig c = rope_of(RopeType::kYarn, 150000, 32, 4096);
  c.truncate = false;
  Doubles want = plain(150000, 64);
  for (double& f : want) {
    const double ramp = std::log(32 / rotations(c, f)) / std::log(32.0);
    f *= std::lerp(1.0, 1.0 / 32, std::min(1.0, std::max(0.0, ramp)));
  }
  const RopeFrequencies rope(64, c, 131072);
  expect_frequencies(rope, want);
  EXPECT_FLOAT_EQ(rope.attention_factor(), 1.3465736f);  // 0.1 ln 32 + 1
}

TEST(Rope, YarnTruncatesItsRampToWholePairs) {
  // The ramp of 64 dimensions with base 10000 over 4096 positions runs from pair 10.47 to pair 22.51.
  const RopeConfig c = rope_of(RopeType::kYarn, 1e4, 40, 4096);
  Doubles want = plain(1e4, 64);
  for (std::size_t i = 0; i < 32; i++) {
    const double ramp = (static_cast<double>(i) - 10) / (23 - 10);
    want[i] *= std::lerp(1.0, 1.0 / 40, std::min(1.0, std::max(0.0, ramp)));
  }
  expect_frequencies(RopeFrequencies(64, c, 163840), want);
}

TEST(Rope, YarnWithARampOfOnePointStaysFinite) {
  RopeConfig c = rope_of(RopeType::kYarn, 1e4, 4, 4096);
  c.beta_fast = c.beta_slow = 2;
  c.truncate = false;
  const RopeFrequencies rope(64, c, 16384);
  for (const float f : rope.frequencies()) EXPECT_TRUE(std::isfinite(f) && f > 0);
}

TEST(Rope, TheAttentionFactorOfYarnIsStatedOrComputed) {
  RopeConfig c = rope_of(RopeType::kYarn, 1e4, 40, 4096);
  const auto factor = [&] { return RopeFrequencies(64, c, 163840).attention_factor(); };
  EXPECT_FLOAT_EQ(factor(), static_cast<float>(1 + std::log(40.0) / 10));
  c.mscale = 0.707;
  EXPECT_FLOAT_EQ(factor(), static_cast<float>(1 + std::log(40.0) / 10)) << "mscale alone counts for nothing";
  c.mscale_all_dim = 0.707;
  EXPECT_EQ(factor(), 1.0f);
  c.mscale = 1;
  EXPECT_FLOAT_EQ(factor(), static_cast<float>((1 + std::log(40.0) / 10) / (1 + 0.0707 * std::log(40.0))));
  c.attention_factor = 1.25;
  EXPECT_EQ(factor(), 1.25f);
  c.attention_factor = c.mscale = c.mscale_all_dim = 0;
  c.factor = 1;
  EXPECT_EQ(factor(), 1.0f);
}

TEST(Rope, TheAttentionFactorScalesCosineAndSine) {
  RopeConfig c = rope_of(RopeType::kYarn, 1e4, 40, 4096);
  c.attention_factor = 2;
  RopeConfig same = c;
  same.attention_factor = 1;
  std::vector<float> c1(32), s1(32), c2(32), s2(32);
  RopeFrequencies(64, same, 4096).fill(1234, c1.data(), s1.data());
  RopeFrequencies(64, c, 4096).fill(1234, c2.data(), s2.data());
  for (std::size_t i = 0; i < 32; i++) {
    EXPECT_EQ(c2[i], 2 * c1[i]);
    EXPECT_EQ(s2[i], 2 * s1[i]);
  }
}

TEST(Rope, LongRopeDividesByTheListThatTheMaximumLengthPicks) {
  RopeConfig c = rope_of(RopeType::kLongRope, 1e4, 32, 4096);
  Doubles with_short = plain(1e4, 96), with_long = with_short;
  for (std::size_t i = 0; i < 48; i++) {
    c.short_factor.push_back(1 + 0.01 * static_cast<double>(i));
    c.long_factor.push_back(1 + 1.3 * static_cast<double>(i));
    with_short[i] /= c.short_factor[i];
    with_long[i] /= c.long_factor[i];
  }
  const RopeFrequencies rope(96, c, 131072);
  expect_frequencies(rope, with_long);
  expect_frequencies(RopeFrequencies(96, c, 4096), with_short);
  EXPECT_FLOAT_EQ(rope.attention_factor(),
                  static_cast<float>(std::sqrt(17.0 / 12)));  // 32 = 2^5, 4096 = 2^12
  c.attention_factor = 1.5;
  EXPECT_EQ(RopeFrequencies(96, c, 131072).attention_factor(), 1.5f);
  c.attention_factor = 0;
  c.factor = 1;
  EXPECT_EQ(RopeFrequencies(96, c, 131072).attention_factor(), 1.0f);
}

}  // namespace
}  // namespace windrow
