// The kernels against the f64 reference, on every instruction set.
//
// Tolerance: 2e-5 of the largest |out|. An f32 chain of D products errs by about sqrt(D) / 2 units of
// 2^-24 of its terms' size: with D = 512 and terms up to the score itself (|score| <= ~30 here) some 2e-5 in
// the worst score and 1e-6 in most; a weight errs by as much, relatively, and errors of single
// weights average out in the mix. Measured: 4e-7 .. 8e-6.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "attention/fixture.h"
#include "attention/targets.h"

namespace windrow::testing {
namespace {

constexpr double kTolerance = 2e-5;

std::vector<Codec> all_codecs() {
  std::vector<Codec> codecs = {Codec::f32(), Codec::f16(), Codec::bf16()};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const DType input : {DType::kF32, DType::kF16, DType::kBF16})
        codecs.push_back(Codec::affine(bits, group, input));
    }
  }
  return codecs;
}

void expect_equal_to_reference(const Shape& shape, std::vector<RowSpec> rows, AttentionParams params,
                               unsigned seed = 1) {
  const ReadFixture fixture(shape, std::move(rows), seed);
  const std::vector<float> q = fixture.queries();
  std::vector<float> expected(fixture.out_size());
  params.q_heads = shape.q_heads;
  const Status status = attend_reference(fixture.read(), q, params, expected);
  ASSERT_TRUE(status.ok()) << status.message();
  for_each_target([&](const internal::Kernels& kernels) {
    std::vector<float> out(expected.size(), NAN);
    ASSERT_TRUE(internal::attend_with(kernels, fixture.read(), q, params, out, nullptr).ok());
    EXPECT_LE(relative_error(out, expected), kTolerance)
        << shape.keys.to_string() << " " << shape.values.to_string() << " dims " << shape.head_dim << " "
        << shape.value_dim << " heads " << shape.q_heads << "/" << shape.kv_heads << " window "
        << shape.window;
  });
}

AttentionParams scaled(int head_dim) { return {.scale = 1 / std::sqrt(static_cast<float>(head_dim))}; }

TEST(AttentionKernel, EqualsReferenceForEveryPairOfCodecs) {
  const std::vector<Codec> codecs = all_codecs();
  for (std::size_t i = 0; i < codecs.size(); i++) {
    // Every codec on both sides, the partner moving through the list.
    const Shape shape{.keys = codecs[i],
                      .values = codecs[(i * 7 + 3) % codecs.size()],
                      .kv_heads = 2,
                      .q_heads = 6,
                      .head_dim = 128,
                      .value_dim = 128,
                      .page_tokens = 16};
    expect_equal_to_reference(shape, {{.history = 150, .fresh = 2}}, scaled(128));
  }
}

TEST(AttentionKernel, EqualsReferenceForEveryHeadDim) {
  for (const int dim : {16, 32, 48, 64, 80, 96, 128, 192, 256, 512, 1024}) {
    for (const Codec codec :
         {Codec::affine(4, 32), Codec::affine(3, 32, DType::kF32), Codec::bf16(), Codec::f32()}) {
      if (!codec.check(dim).ok()) continue;
      const Shape shape{.keys = codec, .values = codec, .q_heads = 3, .head_dim = dim, .value_dim = dim};
      expect_equal_to_reference(shape, {{.history = 140, .fresh = 2}}, scaled(dim));
    }
  }
}

TEST(AttentionKernel, EqualsReferenceWhenKeyAndValueDimsDiffer) {
  expect_equal_to_reference(
      {.keys = Codec::affine(8, 64), .values = Codec::bf16(), .q_heads = 2, .head_dim = 192, .value_dim = 80},
      {{.history = 70, .fresh = 3}}, scaled(192));
  expect_equal_to_reference(
      {.keys = Codec::f16(), .values = Codec::affine(5, 32), .q_heads = 2, .head_dim = 48, .value_dim = 96},
      {{.history = 70, .fresh = 3}}, scaled(48));
}

TEST(AttentionKernel, EqualsReferenceForEveryHeadRatio) {
  for (const int ratio : {1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 40}) {
    for (const int kv_heads : {1, 3}) {
      Shape shape{.kv_heads = kv_heads, .q_heads = ratio * kv_heads};
      expect_equal_to_reference(shape, {{.history = 37, .fresh = 5}}, scaled(64));
    }
  }
}

TEST(AttentionKernel, EqualsReferenceAtEveryEdge) {
  // Lengths around a tile, a page and a softmax block, windows from self to all.
  for (const int window : {1, 2, 7, 16, 17, 64, 128, kFullWindow}) {
    for (const int position : {0, 1, 14, 15, 16, 17, 31, 32, 63, 64, 127, 128, 129, 255, 256, 300}) {
      const Shape shape{.keys = Codec::affine(4, 32),
                        .values = Codec::affine(4, 32),
                        .q_heads = 2,
                        .head_dim = 32,
                        .value_dim = 32,
                        .window = window};
      expect_equal_to_reference(shape, {{.history = position, .fresh = 1}}, scaled(32));
    }
  }
}

TEST(AttentionKernel, EqualsReferenceForRaggedSteps) {
  for (const int page_tokens : {16, 32, 64, 128, 256}) {
    for (const int window : {1, 7, 16, 64, kFullWindow}) {
      const Shape shape{.kv_heads = 2, .q_heads = 4, .page_tokens = page_tokens, .window = window};
      expect_equal_to_reference(shape,
                                {{.content = 1, .history = 0, .fresh = 40},
                                 {.content = 2, .history = 200, .fresh = 1},
                                 {.content = 3, .history = 5, .fresh = 0},
                                 {.content = 4, .history = 120, .fresh = 17}},
                                scaled(64), static_cast<unsigned>(page_tokens + window % 1000));
    }
  }
}

TEST(AttentionKernel, EqualsReferenceWithSoftcapAndSinks) {
  const std::vector<float> sinks = {0.5f, -3, 9, 200, -INFINITY, -200};
  const Shape shape{.q_heads = 6};
  for (const float cap : {0.0f, 0.7f, 30.0f}) {
    for (const bool with_sinks : {false, true}) {
      AttentionParams params{.scale = 0.3f, .softcap = cap};
      if (with_sinks) params.sinks = sinks;
      expect_equal_to_reference(shape, {{.history = 150, .fresh = 3}}, params);
    }
  }
}

TEST(AttentionKernel, EqualsReferenceForPeakedAndFlatScores) {
  for (const float scale : {0.0f, 1e-3f, 1.0f, -0.5f}) {
    expect_equal_to_reference({.q_heads = 2}, {{.history = 300, .fresh = 1}}, {.scale = scale});
  }
}

// What the default mode promises: no more error than a chain of f32 FMAs, on a softmax with peaks (queries of
// standard deviation 2, keys of 1.5). Measured with AVX2: 3e-7 .. 6e-7.
TEST(AttentionKernel, TheRmsErrorOnPeakedScoresIsThatOfF32) {
  for (const int bits : {2, 3, 4, 5, 6, 8, 16, 32}) {
    const Codec codec = bits == 32 ? Codec::f32() : bits == 16 ? Codec::bf16() : Codec::affine(bits);
    const Shape shape{.keys = codec, .values = codec, .q_heads = 4, .head_dim = 128, .value_dim = 128};
    const ReadFixture fixture(shape, {{.content = 1, .history = 1023, .fresh = 1}});
    const std::vector<float> q = fixture.queries();
    std::vector<float> expected(fixture.out_size());
    const AttentionParams params{.q_heads = 4, .scale = 1.5f / std::sqrt(128.0f)};
    ASSERT_TRUE(attend_reference(fixture.read(), q, params, expected).ok());
    for_each_target([&](const internal::Kernels& kernels) {
      std::vector<float> out(expected.size());
      ASSERT_TRUE(internal::attend_with(kernels, fixture.read(), q, params, out, nullptr).ok());
      double error = 0, size = 0;
      for (std::size_t i = 0; i < out.size(); i++) {
        error += std::pow(static_cast<double>(out[i]) - static_cast<double>(expected[i]), 2);
        size += std::pow(static_cast<double>(expected[i]), 2);
      }
      const double rms = std::sqrt(error / size);
      RecordProperty(codec.to_string() + "_" + kernels.target, fmt::format("{:.1e}", rms));
      EXPECT_LE(rms, 4e-6) << codec.to_string();
    });
  }
}

TEST(AttentionKernel, AStepWithoutTokensIsLegal) {
  const ReadFixture fixture({}, {{.history = 9, .fresh = 0}});
  EXPECT_TRUE(attend_reference(fixture.read(), {}, {}, {}).ok());
  for_each_target([&](const internal::Kernels& kernels) {
    EXPECT_TRUE(internal::attend_with(kernels, fixture.read(), {}, {}, {}, nullptr).ok());
  });
}

TEST(AttentionKernel, EveryTargetOfThisMachineIsTested) {
  std::vector<std::string> names;
  for (const internal::Kernels& kernels : all_kernels()) names.push_back(kernels.target);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  EXPECT_GE(names.size(), kSanitized ? 1u : 2u);
}

}  // namespace
}  // namespace windrow::testing
