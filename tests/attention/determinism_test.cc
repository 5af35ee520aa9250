// Invariants 1 and 4, bit for bit, on every instruction set: a token's output is a function of its row's
// visible content and its query, whatever surrounds it.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "attention/fixture.h"
#include "attention/targets.h"

namespace windrow::testing {
namespace {

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {.kv_heads = 2, .q_heads = 4, .head_dim = 128, .value_dim = 128},
      {.keys = Codec::affine(3, 32, DType::kF32),
       .values = Codec::affine(6, 32, DType::kF16),
       .q_heads = 3,
       .head_dim = 96,
       .value_dim = 96,
       .page_tokens = 16,
       .window = 7,
       .sinks = 5},
      {.keys = Codec::affine(8),
       .values = Codec::bf16(),
       .kv_heads = 2,
       .q_heads = 2,
       .page_tokens = 64,
       .window = 64},
      {.keys = Codec::f32(),
       .values = Codec::affine(2, 64),
       .q_heads = 8,
       .page_tokens = 256,
       .window = 130,
       .sinks = 129},
      {.keys = Codec::affine(5), .values = Codec::affine(4), .q_heads = 2, .page_tokens = 4, .window = 50},
      {.keys = Codec::f16(),
       .values = Codec::f16(),
       .q_heads = 20,
       .head_dim = 48,
       .value_dim = 32,
       .window = 1}};
  return all;
}

TEST(AttentionDeterminism, ATokenAloneEqualsItselfInAChunk) {
  for (const Shape& shape : shapes()) {
    for_each_target([&](const internal::Kernels& kernels) {
      for (const int chunk : {3, 17, 64}) {
        for (const int history : {0, 120, 250}) {
          const ReadFixture together(shape, {{.content = 3, .history = history, .fresh = chunk}});
          const std::vector<float> out = attend(kernels, shape, together);
          for (const int t : {0, 1, chunk / 2, chunk - 1}) {
            const ReadFixture alone(shape, {{.content = 3, .history = history + t}}, 7);
            EXPECT_TRUE(same_bits(attend(kernels, shape, alone), token_of(shape, out, t)))
                << "token " << t << " of " << chunk << " from " << history << ", " << shape.keys.to_string();
          }
        }
      }
    });
  }
}

TEST(AttentionDeterminism, ATokenAloneEqualsItselfInABatchOnOtherPages) {
  for (const Shape& shape : shapes()) {
    for_each_target([&](const internal::Kernels& kernels) {
      const ReadFixture alone(shape, {{.content = 3, .history = 173}}, 1, 0xff);
      const std::vector<float> expected = attend(kernels, shape, alone);
      const std::vector<RowSpec> rows = {{.content = 8, .history = 400, .fresh = 1},
                                         {.content = 9, .history = 2, .fresh = 30},
                                         {.content = 3, .history = 173, .fresh = 1},
                                         {.content = 8, .history = 63, .fresh = 5}};
      for (const unsigned seed : {1u, 2u, 3u}) {
        const ReadFixture batch(shape, rows, seed, 0x00);
        EXPECT_TRUE(same_bits(expected, token_of(shape, attend(kernels, shape, batch), 31)));
      }
    });
  }
}

TEST(AttentionDeterminism, PageSizeDoesNotMatter) {
  for (Shape shape : shapes()) {
    for_each_target([&](const internal::Kernels& kernels) {
      shape.page_tokens = 16;
      const std::vector<RowSpec> rows = {{.content = 4, .history = 290, .fresh = 20}};
      const std::vector<float> expected = attend(kernels, shape, ReadFixture(shape, rows));
      for (const int page_tokens : {1, 2, 4, 8, 32, 64, 128, 256}) {
        shape.page_tokens = page_tokens;
        EXPECT_TRUE(same_bits(expected, attend(kernels, shape, ReadFixture(shape, rows, 9))));
      }
    });
  }
}

TEST(AttentionDeterminism, ThreadsDoNotMatter) {
  for (const Shape& shape : shapes()) {
    const ReadFixture fixture(shape, {{.content = 1, .history = 300, .fresh = 1},
                                      {.content = 2, .history = 0, .fresh = 50},
                                      {.content = 3, .history = 31, .fresh = 2}});
    for_each_target([&](const internal::Kernels& kernels) {
      const std::vector<float> expected = attend(kernels, shape, fixture);
      for (const int threads : {1, 2, 3, 7}) {
        Result<ThreadPool> pool = ThreadPool::create(threads);
        ASSERT_TRUE(pool.ok());
        for (int i = 0; i < 3; i++) {
          EXPECT_TRUE(same_bits(expected, attend(kernels, shape, fixture, &*pool))) << threads << " threads";
        }
      }
    });
  }
}

// Unwritten slots are NaN patterns in one read and zeros in the other.
TEST(AttentionIsolation, UnownedSlotsDoNotMatter) {
  for (const Shape& shape : shapes()) {
    for (const float softcap : {0.0f, 20.0f}) {
      const std::vector<RowSpec> rows = {{.content = 1, .history = 137, .fresh = 3},
                                         {.content = 2, .history = 17, .fresh = 1}};
      const ReadFixture zeros(shape, rows, 1, 0x00), poisoned(shape, rows, 2, 0xff);
      for_each_target([&](const internal::Kernels& kernels) {
        const std::vector<float> out = attend(kernels, shape, poisoned, nullptr, softcap);
        for (const float x : out) ASSERT_FALSE(std::isnan(x));
        EXPECT_TRUE(same_bits(attend(kernels, shape, zeros, nullptr, softcap), out));
      });
    }
  }
}

// Each written position in turn becomes NaN, codes and params: exactly the queries that see it notice.
TEST(AttentionIsolation, APositionInfluencesTheQueriesThatSeeItAndNoOthers) {
  for (const Shape& shape : shapes()) {
    if (shape.window == kFullWindow) continue;
    const RowSpec row{.content = 5, .history = 125, .fresh = 9};
    const ReadFixture clean(shape, {row});
    for_each_target([&](const internal::Kernels& kernels) {
      const std::vector<float> expected = attend(kernels, shape, clean);
      for (const int p : clean.visible_slots(0)) {
        ReadFixture spoiled(shape, {row});
        spoiled.spoil(0, p);
        const std::vector<float> out = attend(kernels, shape, spoiled);
        for (int t = 0; t < row.fresh; t++) {
          const int self = row.history + t;
          if (clean.sees(0, t, p)) {
            EXPECT_TRUE(std::isnan(token_of(shape, out, t)[0])) << "query at " << self << " sees " << p;
          } else {
            EXPECT_TRUE(same_bits(token_of(shape, expected, t), token_of(shape, out, t)))
                << "query at " << self << " is influenced by " << p << ", window " << shape.window;
          }
        }
      }
    });
  }
}

RC_GTEST_PROP(AttentionDeterminism, AnyCutOfARowIntoStepsGivesTheSameBits, ()) {
  Shape shape;
  shape.keys = Codec::affine(*rc::gen::element(2, 3, 4, 5, 6, 8), 32);
  shape.values = Codec::affine(*rc::gen::element(2, 3, 4, 5, 6, 8), 32);
  shape.head_dim = shape.value_dim = 32;
  shape.kv_heads = *rc::gen::inRange(1, 3);
  shape.q_heads = shape.kv_heads * *rc::gen::inRange(1, 10);
  shape.page_tokens = *rc::gen::element(1, 4, 8, 16, 32, 64, 128, 256);
  shape.window = *rc::gen::inRange(1, 300);
  shape.sinks = *rc::gen::weightedOneOf<int>({{1, rc::gen::just(0)}, {2, rc::gen::inRange(1, 200)}});
  const int history = *rc::gen::inRange(0, 300), fresh = *rc::gen::inRange(1, 40);
  const internal::Kernels& kernels = all_kernels()[*rc::gen::inRange<std::size_t>(0, all_kernels().size())];
  const ReadFixture whole(shape, {{.content = 1, .history = history, .fresh = fresh}});
  const std::vector<float> expected = attend(kernels, shape, whole);
  for (int at = 0; at < fresh;) {
    const int length = *rc::gen::inRange(1, fresh - at + 1);
    const ReadFixture part(
        shape, {{.content = 2, .history = 9}, {.content = 1, .history = history + at, .fresh = length}},
        static_cast<unsigned>(at));
    const std::vector<float> out = attend(kernels, shape, part);
    for (int t = 0; t < length; t++)
      RC_ASSERT(same_bits(token_of(shape, out, 1 + t), token_of(shape, expected, at + t)));
    at += length;
  }
}

}  // namespace
}  // namespace windrow::testing
