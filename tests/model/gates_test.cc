// The gated activations against their formulas in f64, on every instruction set and odd lengths.
#include "model/gates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "support/simd_targets.h"

namespace windrow {
namespace {

using windrow::testing::on_every_target;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_floats(std::size_t n, unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double formula(GateKind kind, double gate, double up, double limit) {
  if (kind == GateKind::kSilu) return gate * sigmoid(gate) * up;
  if (kind == GateKind::kGeluTanh) {
    const double inner = std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
    return gate / 2 * (1 + std::tanh(inner)) * up;
  }
  const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
  return g * sigmoid(1.702 * g) * (u + 1);
}

TEST(Gates, EachKindIsItsFormula) {
  on_every_target([] {
    for (std::size_t n : {1u, 3u, 8u, 17u, 96u, 131u}) {
      const std::vector<float> gate = random_floats(n, 1, 6), up = random_floats(n, 2, 6);
      for (GateKind kind : {GateKind::kSilu, GateKind::kGeluTanh, GateKind::kClamped}) {
        std::vector<float> y(n + 1, 42.0f);
        gate_mul(kind, gate.data(), up.data(), n, 7.0f, y.data());
        for (std::size_t i = 0; i < n; i++) {
          const double want = formula(kind, static_cast<double>(gate[i]), static_cast<double>(up[i]), 7);
          EXPECT_NEAR(y[i], want, 2e-6 * std::max(1.0, std::abs(want))) << i;
        }
        EXPECT_EQ(y[n], 42.0f);
      }
    }
  });
}

TEST(Gates, ResultsMayReplaceTheirInputs) {
  on_every_target([] {
    const std::vector<float> gate = random_floats(37, 3, 2), up = random_floats(37, 4, 2);
    std::vector<float> want(37), in_gate = gate, in_up = up;
    gate_mul(GateKind::kSilu, gate.data(), up.data(), 37, 0, want.data());
    gate_mul(GateKind::kSilu, in_gate.data(), up.data(), 37, 0, in_gate.data());
    gate_mul(GateKind::kSilu, gate.data(), in_up.data(), 37, 0, in_up.data());
    EXPECT_EQ(in_gate, want);
    EXPECT_EQ(in_up, want);
  });
}

TEST(Gates, HugeGatesOpenAndShutWithoutOverflow) {
  on_every_target([] {
    const std::vector<float> gate = {1e4f, -1e4f, 1e30f, -1e30f}, up(4, 2.0f);
    std::vector<float> y(4), x(4, 3.0f);
    gate_mul(GateKind::kSilu, gate.data(), up.data(), 4, 0, y.data());
    EXPECT_EQ(y[0], 2e4f);
    EXPECT_NEAR(y[1], 0.0f, 1e-30f);
    EXPECT_EQ(y[2], 2e30f);
    EXPECT_NEAR(y[3], 0.0f, 1e-6f);
    sigmoid_mul(gate.data(), 4, x.data());
    EXPECT_EQ(x[0], 3.0f);
    EXPECT_NEAR(x[1], 0.0f, 1e-30f);
    gate_mul(GateKind::kClamped, gate.data(), gate.data(), 4, 7.0f, y.data());
    EXPECT_NEAR(y[0], 7 * sigmoid(1.702 * 7) * 8, 1e-4);
    EXPECT_NEAR(y[1], 0.0f, 1e-30f);
  });
}

TEST(Gates, ANanInEitherInputComesThrough) {
  on_every_target([] {
    for (std::size_t place : {0u, 5u, 10u}) {
      for (GateKind kind : {GateKind::kSilu, GateKind::kGeluTanh, GateKind::kClamped}) {
        for (bool in_gate : {false, true}) {
          std::vector<float> gate(11, 1.0f), up(11, 1.0f), y(11);
          (in_gate ? gate : up)[place] = kNan;
          gate_mul(kind, gate.data(), up.data(), 11, 7.0f, y.data());
          for (std::size_t i = 0; i < 11; i++) EXPECT_EQ(std::isnan(y[i]), i == place);
        }
      }
      std::vector<float> gate(11, 1.0f), x(11, 1.0f);
      gate[place] = kNan;
      sigmoid_mul(gate.data(), 11, x.data());
      for (std::size_t i = 0; i < 11; i++) EXPECT_EQ(std::isnan(x[i]), i == place);
    }
  });
}

TEST(Gates, AddScaledRoundsTheProductAndTheSum) {
  on_every_target([] {
    const std::vector<float> x = random_floats(29, 5, 1), start = random_floats(29, 6, 1);
    std::vector<float> y = start;
    add_scaled(x.data(), 0.3f, 29, y.data());
    for (std::size_t i = 0; i < 29; i++) {
      volatile float product = x[i] * 0.3f;  // no fused multiply-add
      EXPECT_EQ(y[i], start[i] + product);
    }
    std::vector<float> infinite = {kInf};
    add_scaled(infinite.data(), 1.0f, 1, y.data());
    EXPECT_EQ(y[0], kInf);
  });
}

}  // namespace
}  // namespace windrow
