// The elementwise layers against plain f64 formulas, on every instruction set, at odd sizes.
#include "model/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "model/rope.h"
#include "support/simd_targets.h"

namespace windrow {
namespace {

using windrow::testing::on_every_target;

constexpr std::size_t kSizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 67, 96, 128, 255, 256, 1152};

std::vector<float> random_floats(std::size_t n, unsigned seed, float spread = 2.0f) {
  std::mt19937 rng(seed);
  std::vector<float> v(n);
  for (float& f : v) f = (static_cast<float>(rng()) / 4294967296.0f - 0.5f) * 2.0f * spread;
  return v;
}

std::vector<double> reference_norm(const std::vector<float>& x, const std::vector<float>& w, double eps) {
  double sum = 0;
  for (float f : x) sum += static_cast<double>(f) * f;
  const double r = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  std::vector<double> y;
  for (std::size_t i = 0; i < x.size(); i++) y.push_back(x[i] * r * w[i]);
  return y;
}

double reference_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

void expect_close(const std::vector<float>& got, const std::vector<double>& want, double relative) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); i++) {
    EXPECT_NEAR(got[i], want[i], relative * std::max(1.0, std::abs(want[i]))) << "element " << i;
  }
}

TEST(Layers, RmsNormIsTheFormulaAndWorksInPlace) {
  on_every_target([] {
    for (std::size_t n : kSizes) {
      const std::vector<float> x = random_floats(n, 1), w = random_floats(n, 2);
      std::vector<float> y(n), same = x;
      rms_norm(x.data(), w.data(), n, 1e-6f, y.data());
      expect_close(y, reference_norm(x, w, 1e-6), 1e-6);
      rms_norm(same.data(), w.data(), n, 1e-6f, same.data());
      EXPECT_EQ(same, y);
    }
  });
}

TEST(Layers, RmsNormOfZerosIsZeroThroughItsEpsilon) {
  on_every_target([] {
    std::vector<float> x(33, 0.0f), y(33, 1.0f);
    const std::vector<float> w(33, 5.0f);
    rms_norm(x.data(), w.data(), x.size(), 1e-6f, y.data());
    EXPECT_EQ(y, x);
  });
}

TEST(Layers, AddRmsNormAddsExactlyTheNorm) {
  on_every_target([] {
    for (std::size_t n : kSizes) {
      const std::vector<float> y = random_floats(n, 3), w = random_floats(n, 4), x = random_floats(n, 5);
      std::vector<float> normed(n), sum = x;
      rms_norm(y.data(), w.data(), n, 1e-5f, normed.data());
      add_rms_norm(y.data(), w.data(), n, 1e-5f, sum.data());
      for (std::size_t i = 0; i < n; i++) EXPECT_EQ(sum[i], x[i] + normed[i]);
    }
  });
}

TEST(Layers, NormRopeNormalizesEachHeadAndTurnsItsLeadingPairs) {
  constexpr struct {
    std::size_t dim, rotary;
  } kShapes[] = {{2, 2},   {6, 6},   {16, 16}, {32, 32}, {64, 64},  {80, 80},   {256, 256},
                 {64, 16}, {96, 72}, {80, 34}, {6, 2},   {256, 64}, {128, 126}, {33, 30}};
  on_every_target([&] {
    for (const auto& [dim, rotary] : kShapes) {
      for (std::size_t heads : {1u, 3u}) {
        const std::vector<float> x = random_floats(heads * dim, 6), w = random_floats(dim, 7);
        const RopeFrequencies rope(static_cast<int>(rotary), RopeConfig{}, 512);
        const std::size_t half = rotary / 2;
        std::vector<float> c(half), s(half), got = x;
        rope.fill(123, c.data(), s.data());
        norm_rope(got.data(), heads, dim, rotary, w.data(), 1e-6f, c.data(), s.data());
        for (std::size_t h = 0; h < heads; h++) {
          const auto head = x.begin() + static_cast<std::ptrdiff_t>(h * dim);
          const std::vector<double> n =
              reference_norm(std::vector<float>(head, head + static_cast<std::ptrdiff_t>(dim)), w, 1e-6);
          for (std::size_t i = 0; i < half; i++) {
            EXPECT_NEAR(got[h * dim + i], n[i] * c[i] - n[i + half] * s[i], 3e-6);
            EXPECT_NEAR(got[h * dim + i + half], n[i + half] * c[i] + n[i] * s[i], 3e-6);
          }
          for (std::size_t i = rotary; i < dim; i++) EXPECT_NEAR(got[h * dim + i], n[i], 3e-6);
        }
      }
    }
  });
}

TEST(Layers, RopeWithoutWeightOnlyTurns) {
  on_every_target([] {
    std::vector<float> x = {1, 2, 3, 4}, c = {0, 1}, s = {1, 0};
    norm_rope(x.data(), 1, 4, 4, nullptr, 0.0f, c.data(), s.data());
    EXPECT_EQ(x, (std::vector<float>{-3, 2, 1, 4}));
  });
}

TEST(Layers, RopeLeavesWhatLiesBehindTheRotaryPartBitForBit) {
  on_every_target([] {
    const std::vector<float> x = random_floats(3 * 70, 14);
    std::vector<float> y = x;
    const std::vector<float> c(9, 0.25f), s(9, 0.5f);
    norm_rope(y.data(), 3, 70, 18, nullptr, 0.0f, c.data(), s.data());
    for (std::size_t i = 0; i < x.size(); i++) EXPECT_EQ(y[i] == x[i], i % 70 >= 18) << i;
    y = x;
    norm_rope(y.data(), 3, 70, 0, nullptr, 0.0f, nullptr, nullptr);
    EXPECT_EQ(y, x);
  });
}

TEST(Layers, GeluTanhMulIsTheFormulaFarIntoBothTails) {
  on_every_target([] {
    for (std::size_t n : kSizes) {
      std::vector<float> gate = random_floats(n, 8, 12.0f), up = random_floats(n, 9);
      gate[0] = -1000.0f;
      if (n > 2) gate[1] = 1000.0f, gate[2] = 0.0f;
      std::vector<float> y(n);
      gelu_tanh_mul(gate.data(), up.data(), n, y.data());
      for (std::size_t i = 0; i < n; i++) {
        const double want = reference_gelu(gate[i]) * up[i];
        EXPECT_NEAR(y[i], want, 1e-6 * std::max(1.0, std::abs(want))) << gate[i];
      }
      gelu_tanh_mul(gate.data(), up.data(), n, gate.data());
      EXPECT_EQ(gate, y);
    }
  });
}

TEST(Layers, SoftcapBoundsAndKeepsNaN) {
  on_every_target([] {
    std::vector<float> x = random_floats(77, 10, 100.0f);
    x[3] = 1e30f, x[4] = -1e30f, x[5] = 0.0f, x[6] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> y = x;
    softcap(y.data(), y.size(), 30.0f);
    for (std::size_t i = 0; i < x.size(); i++) {
      if (i == 6) {
        EXPECT_TRUE(std::isnan(y[i]));
      } else {
        EXPECT_NEAR(y[i], 30.0 * std::tanh(x[i] / 30.0), 5e-6);
      }
    }
  });
}

TEST(Layers, NaNReachesTheOutputOfNormAndGelu) {
  on_every_target([] {
    std::vector<float> x(19, 1.0f), y(19);
    const std::vector<float> ones(19, 1.0f);
    x[18] = std::numeric_limits<float>::quiet_NaN();
    gelu_tanh_mul(x.data(), ones.data(), x.size(), y.data());
    EXPECT_TRUE(std::isnan(y[18]));
    EXPECT_FALSE(std::isnan(y[0]));
    rms_norm(x.data(), ones.data(), x.size(), 1e-6f, y.data());
    EXPECT_TRUE(std::isnan(y[0]));
  });
}

TEST(Layers, SpreadNanFillsTheVectorsThatHoldOneAndNoOther) {
  on_every_target([] {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      for (std::size_t n : {1, 16, 19, 64, 80}) {
        for (std::size_t at = 0; at < n; at++) {
          const std::vector<float> x = random_floats(3 * n, 12, 1e30f);
          std::vector<float> y = x;
          spread_nan(y.data(), 3, n);
          EXPECT_EQ(y, x);
          y[n + at] = bad;
          spread_nan(y.data(), 3, n);
          for (std::size_t i = 0; i < 3 * n; i++) {
            if (i / n == 1) {
              EXPECT_TRUE(std::isnan(y[i]));
            } else {
              EXPECT_EQ(y[i], x[i]);
            }
          }
        }
      }
    }
  });
}

TEST(Layers, ExpScaledIsTheExponentialDownToZero) {
  on_every_target([] {
    std::vector<float> x = random_floats(131, 11, 50.0f);
    x[0] = -std::numeric_limits<float>::infinity(), x[1] = -1e30f, x[2] = 50.0f;
    std::vector<float> y(x.size());
    exp_scaled(x.data(), x.size(), 50.0f, 0.75f, y.data());
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_EQ(y[2], 1.0f);
    for (std::size_t i = 3; i < x.size(); i++) {
      const double want = std::exp((x[i] - 50.0f) * 0.75f);
      EXPECT_NEAR(y[i], want, 1e-6 * want + 1e-37);
    }
  });
}

TEST(Layers, AnElementsResultDoesNotDependOnItsPlace) {
  on_every_target([] {
    const std::vector<float> gate(67, 1.37f), up(67, -0.77f);
    std::vector<float> y(67);
    gelu_tanh_mul(gate.data(), up.data(), y.size(), y.data());
    for (float f : y) EXPECT_EQ(f, y[0]);
  });
}

}  // namespace
}  // namespace windrow
