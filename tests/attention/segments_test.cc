// Segments: long contexts, which are gathered in parts and folded together, by one thread or by several.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/fixture.h"
#include "attention/targets.h"
#include "attention/tasks.h"

namespace windrow::testing {
namespace {

using internal::kBlock;
using internal::kSegment;
using internal::segment_tokens;

struct Long {
  Shape shape;
  RowSpec row;
};

// Rows that have several segments, one kv head: threads can only share them by segments.
std::vector<Long> long_rows() {
  const auto shape = [](Codec codec, int window, int sinks) {
    return Shape{.keys = codec,
                 .values = codec,
                 .q_heads = 2,
                 .head_dim = 32,
                 .value_dim = 32,
                 .window = window,
                 .sinks = sinks};
  };
  const Codec q4 = Codec::affine(4, 32);
  return {{shape(q4, kFullWindow, 0), {.content = 1, .history = 700, .fresh = 1}},
          {shape(q4, kFullWindow, 0), {.content = 1, .history = 4200, .fresh = 1}},
          {shape(Codec::bf16(), kFullWindow, 0), {.content = 2, .history = 5300, .fresh = 3}},
          {shape(Codec::affine(3, 32), 600, 0), {.content = 3, .history = 1111, .fresh = 2}},
          {shape(q4, 600, 300), {.content = 4, .history = 1500, .fresh = 5}},
          {shape(Codec::affine(8, 32), 5000, 0), {.content = 5, .history = 5600, .fresh = 1}}};
}

TEST(AttentionSegments, BoundsDependOnThePositionAndTheWindowOnly) {
  EXPECT_EQ(segment_tokens(0, kFullWindow), kSegment);
  EXPECT_EQ(segment_tokens(16 * kSegment - 1, kFullWindow), kSegment);
  EXPECT_EQ(segment_tokens(16 * kSegment, kFullWindow), 4 * kSegment);
  EXPECT_EQ(segment_tokens(2'000'000'000, kFullWindow) % kBlock, 0);
  EXPECT_EQ(segment_tokens(1'000'000, 512), kSegment);
  EXPECT_EQ(segment_tokens(0, 16 * kSegment + 1), 2 * kSegment);
  // They nest: none begins inside a shorter one before it.
  for (int p = 0; p < 1 << 20;) {
    const int tokens = segment_tokens(p, kFullWindow);
    EXPECT_EQ(p % tokens, 0);
    p += tokens;
  }
}

TEST(AttentionSegments, EqualTheReference) {
  for (const Long& l : long_rows()) {
    const ReadFixture fixture(l.shape, {l.row});
    const std::vector<float> q = fixture.queries();
    std::vector<float> expected(fixture.out_size());
    const AttentionParams params{.q_heads = 2, .scale = 1 / std::sqrt(32.0f)};
    ASSERT_TRUE(attend_reference(fixture.read(), q, params, expected).ok());
    for_each_target([&](const internal::Kernels& kernels) {
      EXPECT_LE(relative_error(attend(kernels, l.shape, fixture), expected), 2e-5);
    });
  }
}

TEST(AttentionSegments, ThreadsThatShareATaskGiveTheSameBits) {
  for (const Long& l : long_rows()) {
    const ReadFixture fixture(l.shape, {l.row}), beside(l.shape, {{.content = 7, .history = 900}, l.row});
    for_each_target([&](const internal::Kernels& kernels) {
      const std::vector<float> expected = attend(kernels, l.shape, fixture);
      for (const int threads : {2, 3, 5, 16}) {
        Result<ThreadPool> pool = ThreadPool::create(threads);
        ASSERT_TRUE(pool.ok());
        EXPECT_TRUE(same_bits(expected, attend(kernels, l.shape, fixture, &*pool))) << threads << " threads";
        const std::vector<float> both = attend(kernels, l.shape, beside, &*pool);
        EXPECT_TRUE(same_bits(token_of(l.shape, expected, 0), token_of(l.shape, both, 1)))
            << threads << " threads, two rows";
      }
    });
  }
}

TEST(AttentionSegments, ATokenAloneEqualsItselfInAChunkAcrossABound) {
  for (const int bound : {kSegment, 16 * kSegment, 17 * kSegment}) {
    const Shape shape{
        .keys = Codec::affine(4, 32), .values = Codec::affine(4, 32), .head_dim = 32, .value_dim = 32};
    const int history = bound - 3, chunk = 7;
    const ReadFixture together(shape, {{.content = 3, .history = history, .fresh = chunk}});
    for_each_target([&](const internal::Kernels& kernels) {
      const std::vector<float> out = attend(kernels, shape, together);
      for (int t = 0; t < chunk; t++) {
        const ReadFixture alone(shape, {{.content = 3, .history = history + t}}, 5);
        EXPECT_TRUE(same_bits(attend(kernels, shape, alone), token_of(shape, out, t)))
            << bound << " + " << t - 3;
      }
    });
  }
}

// A NaN that is seen in whatever segment is seen in the result: folding must not skip it.
TEST(AttentionSegments, ANanInAnySegmentReachesTheResult) {
  const Shape shape{
      .keys = Codec::affine(4, 32), .values = Codec::affine(4, 32), .head_dim = 32, .value_dim = 32};
  const RowSpec row{.content = 5, .history = 3 * kSegment};
  for (const int position : {0, kSegment - 1, kSegment, 2 * kSegment + 17, 3 * kSegment}) {
    ReadFixture spoiled(shape, {row});
    spoiled.spoil(0, position);
    Result<ThreadPool> pool = ThreadPool::create(2);
    ASSERT_TRUE(pool.ok());
    for_each_target([&](const internal::Kernels& kernels) {
      EXPECT_TRUE(std::isnan(attend(kernels, shape, spoiled)[0])) << position;
      EXPECT_TRUE(std::isnan(attend(kernels, shape, spoiled, &*pool)[0])) << position;
    });
  }
}

}  // namespace
}  // namespace windrow::testing
