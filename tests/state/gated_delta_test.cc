// The gated delta rule: its shape, its gates, hand-computed tokens, SIMD against the definition, and
// independence of how tokens and heads are cut.
#include "windrow/gated_delta.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "state/gated_delta_inputs.h"
#include "support/simd_targets.h"

namespace windrow {
namespace {

using testing::bits_of;
using testing::TokenInputs;

struct Outcome {
  std::vector<float> state, y;
};

Outcome run(const TokenInputs& in, const std::vector<float>& from) {
  Outcome out = {std::vector<float>(from.size(), NAN), std::vector<float>(in.v.size(), NAN)};
  gated_delta_advance(in.shape, in.all(), from.data(), out.state.data(), out.y.data());
  return out;
}

Outcome run_scalar(const TokenInputs& in, const std::vector<float>& from) {
  Outcome out = {std::vector<float>(from.size(), NAN), std::vector<float>(in.v.size(), NAN)};
  gated_delta_advance_scalar(in.shape, in.all(), {0, in.shape.value_heads}, from.data(), out.state.data(),
                             out.y.data());
  return out;
}

// The rule as the paper writes it, in f64.
void advance_f64(const TokenInputs& in, std::vector<double>& state, std::vector<double>& y) {
  const GatedDeltaShape& s = in.shape;
  const bool vector = s.gate == DecayGate::kVector;
  const auto hv = static_cast<std::size_t>(s.value_heads), hk = static_cast<std::size_t>(s.key_heads);
  const auto dk = static_cast<std::size_t>(s.key_dim), dv = static_cast<std::size_t>(s.value_dim);
  y.assign(in.v.size(), 0);
  for (std::size_t t = 0; t < in.count; t++) {
    for (std::size_t h = 0; h < hv; h++) {
      const float* k = &in.k[(t * hk + h / (hv / hk)) * dk];
      const float* q = &in.q[(t * hk + h / (hv / hk)) * dk];
      for (std::size_t i = 0; i < dv; i++) {
        double* row = &state[(h * dv + i) * dk];
        double kv = 0;
        for (std::size_t j = 0; j < dk; j++) {
          row[j] *= static_cast<double>(vector ? in.g[(t * hv + h) * dk + j] : in.g[t * hv + h]);
          kv += row[j] * static_cast<double>(k[j]);
        }
        const double delta = (static_cast<double>(in.v[(t * hv + h) * dv + i]) - kv) *
                             static_cast<double>(in.beta[t * hv + h]);
        for (std::size_t j = 0; j < dk; j++) {
          row[j] += delta * static_cast<double>(k[j]);
          y[(t * hv + h) * dv + i] += row[j] * static_cast<double>(q[j]);
        }
      }
    }
  }
}

std::vector<GatedDeltaShape> shapes() {
  std::vector<GatedDeltaShape> out;
  for (const DecayGate gate : {DecayGate::kScalar, DecayGate::kVector}) {
    for (const int dk : {16, 48, 128}) {
      for (const int dv : {1, 2, 3, 4, 5, 7, 8, 31}) {
        out.push_back({1, 1, dk, dv, gate});
        out.push_back({2, 6, dk, dv, gate});
      }
    }
  }
  return out;
}

TEST(GatedDelta, CheckNamesTheNumbersOfABadShape) {
  const auto message = [](const GatedDeltaShape& s) { return s.check().message(); };
  EXPECT_TRUE(GatedDeltaShape{}.check().ok());
  EXPECT_EQ(message({2, 3, 16, 16}), "gated delta: 3 value heads over 2 key heads, expected a multiple");
  EXPECT_EQ(message({0, 0, 16, 16}), "gated delta: 0 value heads over 0 key heads, expected a multiple");
  EXPECT_EQ(message({1, 1, 24, 16}), "gated delta: key dim 24, expected a multiple of 16");
  EXPECT_EQ(message({1, 1, 16, 0}), "gated delta: value dim 0, expected 1 or more");
  EXPECT_EQ(GatedDeltaShape({1, 1 << 30, 1 << 30, 1 << 30}).check().code(), StatusCode::kInvalidArgument);
}

TEST(GatedDelta, GatesAreTheirFormulasAlsoFarOut) {
  for (const double a : {-100.0, -30.0, -3.0, -0.1, 0.0, 0.7, 5.0, 60.0, 200.0}) {
    for (const double log_rate : {-4.0, 0.0, 2.7}) {
      const double softplus = a > 30 ? a + std::log1p(std::exp(-a)) : std::log1p(std::exp(a));
      const double want = std::exp(-std::exp(log_rate) * softplus);
      EXPECT_NEAR(gated_delta_decay(static_cast<float>(a) - 0.5f, static_cast<float>(log_rate), 0.5f), want,
                  2e-6)
          << a << ' ' << log_rate;
    }
    EXPECT_NEAR(gated_delta_beta(static_cast<float>(a)), 1 / (1 + std::exp(-a)), 2e-7) << a;
  }
}

TEST(GatedDelta, AFullWriteIsReadBackAndTheSecondWriteOfAKeyReplacesTheFirst) {
  // One head, k = q = unit vector 3: after a write of strength 1 the state answers v, whatever was there.
  const GatedDeltaShape shape = {1, 1, 16, 2, DecayGate::kScalar};
  std::vector<float> state(shape.state_floats(), 0.25f), k(32, 0.0f), y(4);
  k[3] = k[16 + 3] = 1;
  const std::vector<float> v = {5, -7, 11, 13}, g = {0.5f, 1}, beta = {1, 1};
  gated_delta_advance(shape, {2, k.data(), k.data(), v.data(), g.data(), beta.data()}, state.data(),
                      state.data(), y.data());
  EXPECT_EQ(y, v);
  for (std::size_t j = 0; j < 16; j++) {
    EXPECT_EQ(state[j], j == 3 ? 11 : 0.125f);  // halved once, column 3 rewritten
    EXPECT_EQ(state[16 + j], j == 3 ? 13 : 0.125f);
  }
}

TEST(GatedDelta, TheVectorGateDecaysEachColumnByItsOwn) {
  const GatedDeltaShape shape = {1, 1, 16, 1, DecayGate::kVector};
  std::vector<float> state(16, 1), g(16), k(16, 0.0f);
  for (std::size_t j = 0; j < 16; j++) g[j] = static_cast<float>(j) / 16;
  const float v = 3, beta = 1;
  gated_delta_advance(shape, {1, nullptr, k.data(), &v, g.data(), &beta}, state.data(), state.data(),
                      nullptr);
  EXPECT_EQ(state, g);
}

TEST(GatedDelta, DefinitionIsTheRuleInF64) {
  std::mt19937 random(1);
  for (const GatedDeltaShape& shape : shapes()) {
    const TokenInputs in(shape, 9, random);
    const std::vector<float> from = testing::random_floats(shape.state_floats(), random);
    std::vector<double> state(from.begin(), from.end()), y;
    advance_f64(in, state, y);
    const Outcome got = run_scalar(in, from);
    for (std::size_t i = 0; i < state.size(); i++) ASSERT_NEAR(got.state[i], state[i], 2e-6) << i;
    for (std::size_t i = 0; i < y.size(); i++) ASSERT_NEAR(got.y[i], y[i], 2e-6) << i;
  }
}

TEST(GatedDelta, EveryTargetGivesTheBitsOfTheDefinition) {
  std::size_t cases = 0;
  const int targets = testing::on_every_target([&cases] {
    std::mt19937 random(2);
    for (const GatedDeltaShape& shape : shapes()) {
      for (const std::size_t count : {1u, 2u, 16u, 19u}) {
        const TokenInputs in(shape, count, random);
        const std::vector<float> from = testing::random_floats(shape.state_floats(), random);
        const Outcome want = run_scalar(in, from), got = run(in, from);
        ASSERT_EQ(bits_of(got.state), bits_of(want.state))
            << shape.key_dim << ' ' << shape.value_dim << ' ' << count;
        ASSERT_EQ(bits_of(got.y), bits_of(want.y)) << shape.key_dim << ' ' << shape.value_dim << ' ' << count;
        cases++;
      }
    }
  });
  EXPECT_GE(targets, 2);
  EXPECT_EQ(cases, 2u * 3 * 8 * 2 * 4 * static_cast<unsigned>(targets));
}

TEST(GatedDelta, NoTokensCopyTheStateAndInPlaceTouchNothing) {
  std::mt19937 random(3);
  const GatedDeltaShape shape = {1, 3, 16, 5, DecayGate::kScalar};
  const std::vector<float> from = testing::random_floats(shape.state_floats(), random);
  testing::on_every_target([&] {
    std::vector<float> to(from.size(), NAN), same = from;
    gated_delta_advance(shape, {}, from.data(), to.data(), nullptr);
    EXPECT_EQ(to, from);
    gated_delta_advance(shape, {}, same.data(), same.data(), nullptr);
    EXPECT_EQ(same, from);
  });
}

TEST(GatedDelta, StateBitsDoNotDependOnOutputPlaceOrSplitOfHeads) {
  std::mt19937 random(4);
  for (const DecayGate gate : {DecayGate::kScalar, DecayGate::kVector}) {
    const GatedDeltaShape shape = {2, 4, 32, 6, gate};
    const TokenInputs in(shape, 18, random);
    const std::vector<float> from = testing::random_floats(shape.state_floats(), random);
    testing::on_every_target([&] {
      const Outcome want = run(in, from);
      std::vector<float> place = from;
      gated_delta_advance(shape, in.all(), place.data(), place.data(), nullptr);
      EXPECT_EQ(bits_of(place), bits_of(want.state));
      std::vector<float> split(from.size(), NAN), y(want.y.size(), NAN);
      gated_delta_advance(shape, in.all(), {1, 4}, from.data(), split.data(), y.data());
      EXPECT_TRUE(std::isnan(split[0]) && std::isnan(y[0]));  // head 0 is not touched
      gated_delta_advance(shape, in.all(), {0, 1}, from.data(), split.data(), y.data());
      EXPECT_EQ(bits_of(split), bits_of(want.state));
      EXPECT_EQ(bits_of(y), bits_of(want.y));
    });
  }
}

RC_GTEST_PROP(GatedDelta, AnyCuttingOfTheTokensGivesTheSameBits, ()) {
  const DecayGate gate = *rc::gen::element(DecayGate::kScalar, DecayGate::kVector);
  const int key_heads = *rc::gen::inRange(1, 3);
  const GatedDeltaShape shape = {key_heads, key_heads * *rc::gen::inRange(1, 3), 16 * *rc::gen::inRange(1, 4),
                                 *rc::gen::inRange(1, 10), gate};
  const auto lengths = *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 20));
  std::size_t total = 0;
  for (const std::size_t n : lengths) total += n;
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const TokenInputs in(shape, total, random);
  const std::vector<float> from = testing::random_floats(shape.state_floats(), random);
  testing::on_every_target([&] {
    const Outcome whole = run(in, from);
    std::vector<float> state = from, y(in.v.size(), NAN);
    std::size_t at = 0;
    for (const std::size_t n : lengths) {
      gated_delta_advance(shape, in.slice(at, n), state.data(), state.data(),
                          y.data() + at * shape.value_floats());
      at += n;
    }
    RC_ASSERT(bits_of(state) == bits_of(whole.state));
    RC_ASSERT(bits_of(y) == bits_of(whole.y));
  });
}

}  // namespace
}  // namespace windrow
