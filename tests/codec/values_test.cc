// What codecs do to numbers, stated without their code: exactness, error bounds, input rounding,
// and numbers that are none.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "codec/codec_inputs.h"
#include "windrow/codec.h"

namespace windrow {
namespace {

using testing::Numbers;
using testing::Record;

std::vector<float> round_trip(const Codec& codec, const std::vector<float>& x) {
  Record record(codec, static_cast<int>(x.size()));
  encode_record(codec, x, record.words, record.params);
  std::vector<float> out(x.size());
  decode_record(codec, record.words, record.params, out);
  return out;
}

TEST(CodecValues, PlainF32KeepsEveryBitPattern) {
  std::mt19937 random(1);
  const auto x = testing::numbers(Numbers::kAnyBits, 512, random);
  EXPECT_EQ(testing::bits_of(round_trip(Codec::f32(), x)), testing::bits_of(x));
}

TEST(CodecValues, PlainSixteenBitsRoundToNearest) {
  std::mt19937 random(2);
  for (const Numbers kind : {Numbers::kNormal, Numbers::kHuge, Numbers::kDenormal, Numbers::kFiniteBits}) {
    const auto x = testing::numbers(kind, 512, random);
    for (const Codec codec : {Codec::f16(), Codec::bf16()}) {
      const auto y = round_trip(codec, x);
      for (std::size_t i = 0; i < x.size(); i++) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(y[i]),
                  std::bit_cast<std::uint32_t>(round_to(codec.input(), x[i])));
      }
    }
  }
}

TEST(CodecValues, AffineErrorIsAtMostOneStepAndTheRoundingOfScaleAndBias) {
  std::mt19937 random(3);
  for (const Codec& codec : testing::all_codecs()) {
    if (!codec.is_affine()) continue;
    for (int repeat = 0; repeat < 20; repeat++) {
      const auto x = testing::numbers(Numbers::kNormal, 256, random);
      const auto y = round_trip(codec, x);
      const auto group = static_cast<std::size_t>(codec.group());
      for (std::size_t g = 0; g < x.size(); g += group) {
        const auto [lo, hi] =
            std::minmax_element(x.begin() + static_cast<long>(g), x.begin() + static_cast<long>(g + group));
        const double levels = (1 << codec.bits()) - 1;
        const double range = static_cast<double>(*hi) - static_cast<double>(*lo);
        const double largest = std::max(std::fabs(*lo), std::fabs(*hi));
        // Half a step inside. The step is range / levels, changed by half a code in q0 (which is at
        // least levels / 2) so that the edge falls on a code: the far end may lie a whole one beyond.
        const double step = range / levels * (1 + 1 / levels);
        const double unit = codec.input() == DType::kF32   ? 0x1p-23
                            : codec.input() == DType::kF16 ? 0x1p-10
                                                           : 0x1p-7;
        for (std::size_t i = g; i < g + group; i++) {
          ASSERT_LE(std::fabs(static_cast<double>(y[i]) - static_cast<double>(x[i])),
                    step + 4 * unit * largest)
              << codec.to_string();
        }
      }
    }
  }
}

TEST(CodecValues, ZeroIsMetUpToRoundingInAnAffineGroupOfBothSigns) {
  std::mt19937 random(4);
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    auto x = testing::numbers(Numbers::kNormal, 64, random);
    x[17] = 0;
    // Code |q0| decodes to edge / q0 * q0 - edge: the roundings of f32, not a share of the step.
    EXPECT_NEAR(round_trip(Codec::affine(bits, 64, DType::kF32), x)[17], 0.0f, 1e-6f) << bits;
  }
}

TEST(CodecValues, AffineRoundsNumbersToItsInputTypeFirst) {
  std::mt19937 random(5);
  for (const DType input : {DType::kF16, DType::kBF16}) {
    for (const Numbers kind : {Numbers::kNormal, Numbers::kFiniteBits, Numbers::kHalfSteps}) {
      const Codec codec = Codec::affine(4, 64, input);
      const auto x = testing::numbers(kind, 256, random);
      std::vector<float> rounded;
      for (const float v : x) rounded.push_back(round_to(input, v));
      Record a(codec, 256), b(codec, 256);
      encode_record(codec, x, a.words, a.params);
      encode_record(codec, rounded, b.words, b.params);
      EXPECT_EQ(a, b);
    }
  }
}

TEST(CodecValues, ANaNAmongNumbersTakesCodeZeroAndLeavesTheGroupAlone) {
  std::mt19937 random(6);
  const Codec codec = Codec::affine(8, 32, DType::kF32);
  auto x = testing::numbers(Numbers::kNormal, 64, random);
  x[40] = x[41];  // so that its removal does not move an extreme
  const auto clean = round_trip(codec, x);
  x[40] = std::nanf("");
  const auto y = round_trip(codec, x);
  Record record(codec, 64);
  encode_record(codec, x, record.words, record.params);
  EXPECT_EQ(record.words[10] & 0xff, 0u);
  EXPECT_EQ(y[40], std::bit_cast<float>(record.params[3]));  // code 0: the bias
  for (std::size_t i = 0; i < x.size(); i++) {
    if (i == 40) continue;
    EXPECT_EQ(y[i], clean[i]) << i;
  }
}

TEST(CodecValues, AGroupWithAnInfinityOrOfNaNOnlyDecodesToNaN) {
  for (const Codec& codec : testing::all_codecs()) {
    if (!codec.is_affine()) continue;
    const auto group = static_cast<std::size_t>(codec.group());
    for (const float bad : {HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> x(2 * group, 0.5f);
      x[3] = bad;
      const auto y = round_trip(codec, x);
      for (std::size_t i = 0; i < group; i++) EXPECT_TRUE(std::isnan(y[i])) << codec.to_string();
      for (std::size_t i = group; i < 2 * group; i++) EXPECT_EQ(y[i], 0.5f) << codec.to_string();
    }
    for (const float v : round_trip(codec, std::vector<float>(group, std::nanf("")))) {
      EXPECT_TRUE(std::isnan(v)) << codec.to_string();
    }
  }
}

}  // namespace
}  // namespace windrow
