// The causal convolution and its tail: SIMD against the definition, the definition against f64, tails of
// every length, and independence of how tokens are cut.
#include "windrow/causal_conv.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "state/gated_delta_inputs.h"
#include "support/simd_targets.h"

namespace windrow {
namespace {

using testing::bits_of;
using testing::random_floats;

struct Case {
  Case(CausalConvShape conv_shape, std::size_t tokens, std::mt19937& random)
      : shape(conv_shape),
        count(tokens),
        tail(random_floats(shape.tail_floats(), random)),
        x(random_floats(count * shape.input_floats(), random)),
        weights(random_floats(static_cast<std::size_t>(shape.channels * shape.taps), random)) {}

  // Row `i` of tail ++ x.
  const float* window(std::size_t i) const {
    const std::size_t c = shape.input_floats(), rows = static_cast<std::size_t>(shape.taps - 1);
    return i < rows ? &tail[i * c] : &x[(i - rows) * c];
  }
  std::vector<float> outputs(Activation activation) const {
    std::vector<float> out(x.size(), NAN);
    causal_conv(shape, tail.data(), x.data(), count, weights.data(), activation, out.data());
    return out;
  }

  CausalConvShape shape;
  std::size_t count;
  std::vector<float> tail, x, weights;  // weights by tap
};

TEST(CausalConv, CheckNamesTheNumbersOfABadShape) {
  EXPECT_TRUE((CausalConvShape{1, 1}.check().ok()));
  EXPECT_EQ((CausalConvShape{0, 4}.check().message()),
            "causal convolution: 0 channels and 4 taps, expected 1 or more of each");
  EXPECT_EQ((CausalConvShape{8, 0}.check().code()), StatusCode::kInvalidArgument);
}

TEST(CausalConv, DefinitionIsTheConvolutionInF64) {
  std::mt19937 random(1);
  for (const int taps : {1, 2, 3, 4, 7}) {
    for (const std::size_t count : {0u, 1u, 2u, 5u, 9u}) {
      const Case in({5, taps}, count, random);
      std::vector<float> plain(in.x.size()), silu(in.x.size());
      causal_conv_scalar(in.shape, in.tail.data(), in.x.data(), count, in.weights.data(), Activation::kNone,
                         plain.data());
      causal_conv_scalar(in.shape, in.tail.data(), in.x.data(), count, in.weights.data(), Activation::kSilu,
                         silu.data());
      for (std::size_t t = 0; t < count; t++) {
        for (std::size_t c = 0; c < 5; c++) {
          double sum = 0;
          for (std::size_t j = 0; j < static_cast<std::size_t>(taps); j++) {
            sum += static_cast<double>(in.weights[j * 5 + c]) * static_cast<double>(in.window(t + j)[c]);
          }
          ASSERT_NEAR(plain[t * 5 + c], sum, 1e-6);
          ASSERT_NEAR(silu[t * 5 + c], sum / (1 + std::exp(-sum)), 1e-6);
        }
      }
    }
  }
}

TEST(CausalConv, WeightsOfACheckpointAreTransposed) {
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(conv_weights_by_tap({2, 3}, weights.data()), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST(CausalConv, EveryTargetGivesTheBitsOfTheDefinition) {
  std::size_t cases = 0;
  const int targets = testing::on_every_target([&cases] {
    std::mt19937 random(2);
    for (const int channels : {1, 2, 3, 7, 8, 9, 16, 33, 64}) {
      for (const int taps : {1, 2, 4, 5}) {
        for (const std::size_t count : {0u, 1u, 3u, 4u, 6u}) {
          for (const Activation activation : {Activation::kNone, Activation::kSilu}) {
            const Case in({channels, taps}, count, random);
            std::vector<float> want(in.x.size(), NAN);
            causal_conv_scalar(in.shape, in.tail.data(), in.x.data(), count, in.weights.data(), activation,
                               want.data());
            ASSERT_EQ(bits_of(in.outputs(activation)), bits_of(want))
                << channels << ' ' << taps << ' ' << count;
            cases++;
          }
        }
      }
    }
  });
  EXPECT_GE(targets, 2);
  EXPECT_EQ(cases, 9u * 4 * 5 * 2 * static_cast<unsigned>(targets));
}

// One tap of weight 1 makes the convolution silu itself.
std::vector<float> silu_of(const std::vector<float>& x) {
  const CausalConvShape shape = {static_cast<int>(x.size()), 1};
  const std::vector<float> ones(x.size(), 1.0f);
  std::vector<float> out(x.size());
  causal_conv(shape, nullptr, x.data(), 1, ones.data(), Activation::kSilu, out.data());
  return out;
}

TEST(CausalConv, SiluIsWithinFourUnitsInTheLastPlaceAndRightFarOut) {
  testing::on_every_target([] {
    std::vector<float> x;
    for (int i = -860; i <= 1200; i++) x.push_back(static_cast<float>(i) * 0.1f + 0.0137f);
    for (int e = -40; e < 0; e++) x.insert(x.end(), {std::ldexp(1.3f, e), -std::ldexp(1.3f, e)});
    const std::vector<float> got = silu_of(x);
    for (std::size_t i = 0; i < x.size(); i++) {
      const double s = static_cast<double>(x[i]), want = s / (1 + std::exp(-s));
      ASSERT_NEAR(static_cast<double>(got[i]), want, 4 * std::ldexp(std::abs(want), -23)) << x[i];
    }
    const float inf = std::numeric_limits<float>::infinity(), big = std::numeric_limits<float>::max();
    const std::vector<float> edges = silu_of({0.0f, -0.0f, 500.0f, big, inf, -100.0f, -big, -inf, NAN});
    EXPECT_EQ(bits_of({edges.begin(), edges.begin() + 7}),
              bits_of({0.0f, -0.0f, 500.0f, big, inf, -0.0f, -0.0f}));
    EXPECT_TRUE(std::isnan(edges[7]) && std::isnan(edges[8]));
  });
}

TEST(CausalConv, OutputsMayOverwriteTheirInputs) {
  std::mt19937 random(4);
  testing::on_every_target([&random] {
    const Case in({13, 4}, 6, random);
    const std::vector<float> want = in.outputs(Activation::kSilu);
    std::vector<float> x = in.x;
    causal_conv(in.shape, in.tail.data(), x.data(), in.count, in.weights.data(), Activation::kSilu, x.data());
    EXPECT_EQ(bits_of(x), bits_of(want));
  });
}

TEST(CausalConv, TailIsTheNewestRowsForEveryKeepAlsoInPlace) {
  std::mt19937 random(5);
  for (const int taps : {1, 2, 3, 4, 6}) {
    const std::size_t rows = static_cast<std::size_t>(taps - 1);
    for (std::size_t count = 0; count <= 8; count++) {
      const Case in({3, taps}, count, random);
      for (std::size_t keep = 0; keep <= count; keep++) {
        std::vector<float> want;
        for (std::size_t i = 0; i < rows; i++) {
          want.insert(want.end(), in.window(keep + i), in.window(keep + i) + 3);
        }
        std::vector<float> to(in.tail.size(), NAN), same = in.tail;
        advance_conv_tail(in.shape, in.tail.data(), in.x.data(), keep, to.data());
        advance_conv_tail(in.shape, same.data(), in.x.data(), keep, same.data());
        ASSERT_EQ(to, want) << taps << ' ' << count << ' ' << keep;
        ASSERT_EQ(same, want) << taps << ' ' << count << ' ' << keep;
      }
    }
  }
}

RC_GTEST_PROP(CausalConv, AnyCuttingOfTheTokensGivesTheSameBits, ()) {
  const CausalConvShape shape = {*rc::gen::inRange(1, 40), *rc::gen::inRange(1, 6)};
  const auto lengths = *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 7));
  std::size_t total = 0;
  for (const std::size_t n : lengths) total += n;
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const Case in(shape, total, random);
  testing::on_every_target([&] {
    const std::vector<float> whole = in.outputs(Activation::kSilu);
    std::vector<float> tail = in.tail, out(in.x.size(), NAN), end(in.tail.size());
    std::size_t at = 0;
    for (const std::size_t n : lengths) {
      const float* x = in.x.data() + at;
      causal_conv(shape, tail.data(), x, n, in.weights.data(), Activation::kSilu, out.data() + at);
      advance_conv_tail(shape, tail.data(), x, n, tail.data());
      at += n * shape.input_floats();
    }
    advance_conv_tail(shape, in.tail.data(), in.x.data(), total, end.data());
    RC_ASSERT(bits_of(out) == bits_of(whole));
    RC_ASSERT(bits_of(tail) == bits_of(end));
  });
}

}  // namespace
}  // namespace windrow
