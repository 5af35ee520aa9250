// The f64 reference against sums done by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/fixture.h"

namespace windrow::testing {
namespace {

using V = std::vector<float>;

Shape tiny() {
  return Shape{.keys = Codec::f32(),
               .values = Codec::f32(),
               .kv_heads = 1,
               .q_heads = 1,
               .head_dim = 16,
               .value_dim = 16,
               .page_tokens = 16};
}

// Keys e0 * key[p], values e0 * value[p] + e1, query e0: score p is scale * key[p].
struct Line {
  explicit Line(const Shape& shape, const V& key, const V& value)
      : fixture(shape, {{.history = static_cast<int>(key.size()) - 1, .fresh = 1}}) {
    for (std::size_t p = 0; p < key.size(); p++) {
      V k(16, 0.0f), v(16, 0.0f);
      k[0] = key[p];
      v[0] = value[p];
      v[1] = 1;
      fixture.put_vector(0, static_cast<int>(p), 0, true, k);
      fixture.put_vector(0, static_cast<int>(p), 0, false, v);
    }
  }
  V attend(AttentionParams params) {
    V q(16, 0.0f), out(16);
    q[0] = 1;
    EXPECT_TRUE(attend_reference(fixture.read(), q, params, out).ok());
    return out;
  }
  ReadFixture fixture;
};

TEST(AttentionReference, WeighsValuesByTheSoftmaxOfScaledScores) {
  Line line(tiny(), {0, 2, 4}, {1, 10, 100});
  const double a = 1, b = std::exp(1.0), c = std::exp(2.0);
  const V out = line.attend({.scale = 0.5f});
  EXPECT_NEAR(out[0], (a + 10 * b + 100 * c) / (a + b + c), 1e-5);
  EXPECT_FLOAT_EQ(out[1], 1);
}

TEST(AttentionReference, SoftcapBendsScores) {
  Line line(tiny(), {0, 4}, {0, 1});
  const double e = std::exp(3 * std::tanh(4.0 / 3));
  EXPECT_NEAR(line.attend({.scale = 1, .softcap = 3})[0], e / (1 + e), 1e-7);
}

TEST(AttentionReference, SinkJoinsTheDenominatorOnly) {
  Line line(tiny(), {0, 1}, {1, 1});
  const V sinks = {2};
  const double sum = 1 + std::exp(1.0);
  EXPECT_NEAR(line.attend({.sinks = sinks})[0], sum / (sum + std::exp(2.0)), 1e-7);
  const V none = {-INFINITY};
  EXPECT_NEAR(line.attend({.sinks = none})[0], 1, 1e-7);
}

TEST(AttentionReference, SeesSelfAndWindowMinusOneBefore) {
  Shape shape = tiny();
  shape.window = 2;
  Line line(shape, {0, 0, 0}, {1e6f, 2, 4});
  EXPECT_FLOAT_EQ(line.attend({})[0], 3);
}

TEST(AttentionReference, AffineValuesAreNotRounded) {
  // bf16 params 1.0078125 and 100: 7 * scale + bias is no bf16 number.
  Shape shape = tiny();
  shape.values = Codec::affine(4, 32);
  shape.value_dim = 32;
  ReadFixture fixture(shape, {{.history = 0}});
  const std::vector<std::uint32_t> codes(4, 0x77777777u), params = {0x3f81u | 0x42c8u << 16};
  fixture.put_record(0, 0, 0, false, codes, params);
  V q(16, 1.0f), out(32);
  ASSERT_TRUE(attend_reference(fixture.read(), q, {}, out).ok());
  EXPECT_EQ(out[31], 7 * 1.0078125f + 100);
}

// A query e0 over keys e0 * 0 gives the mean of the values it sees: value p is 2^p.
double mean_of(const Shape& shape, const RowSpec& row, std::size_t token) {
  ReadFixture fixture(shape, {row});
  for (const int slot : fixture.visible_slots(0)) {
    V k(16, 0.0f), v(16, 0.0f);
    v[0] = std::ldexp(1.0f, slot);
    fixture.put_vector(0, slot, 0, true, k);
    fixture.put_vector(0, slot, 0, false, v);
  }
  const V q(static_cast<std::size_t>(row.fresh) * 16, 0.0f);
  V out(q.size());
  const Status status = attend_reference(fixture.read(), q, {}, out);
  EXPECT_TRUE(status.ok()) << status.message();
  return static_cast<double>(out[token * 16]);
}

TEST(AttentionReference, SeesSinksForEver) {
  Shape shape = tiny();
  shape.window = 2;
  shape.sinks = 1;
  EXPECT_DOUBLE_EQ(mean_of(shape, {.history = 6}, 0), static_cast<float>((1 + 32 + 64) / 3.0));
  EXPECT_DOUBLE_EQ(mean_of(shape, {.history = 1}, 0), 1.5);  // both see position 0, it counts once
}

TEST(AttentionReference, SeesTheRangeItIsGiven) {
  const RowSpec row{.history = 3, .fresh = 3, .begins = {2, 0, 4}, .ends = {6, 5, 6}};
  EXPECT_DOUBLE_EQ(mean_of(tiny(), row, 0), (4 + 8 + 16 + 32) / 4.0);
  EXPECT_DOUBLE_EQ(mean_of(tiny(), row, 1), static_cast<float>(31 / 5.0));
  EXPECT_DOUBLE_EQ(mean_of(tiny(), row, 2), (16 + 32) / 2.0);
}

TEST(AttentionReference, SeesItsAncestorsInATree) {
  const RowSpec row{.history = 2, .fresh = 5, .parents = {-1, 0, 0, -1, 2}};
  for (const int page_tokens : {1, 2, 16}) {
    Shape shape = tiny();
    shape.page_tokens = page_tokens;
    EXPECT_DOUBLE_EQ(mean_of(shape, row, 1), (1 + 2 + 4 + 8) / 4.0);
    EXPECT_DOUBLE_EQ(mean_of(shape, row, 3), static_cast<float>((1 + 2 + 32) / 3.0));
    EXPECT_DOUBLE_EQ(mean_of(shape, row, 4), static_cast<float>((1 + 2 + 4 + 16 + 64) / 5.0));
    shape.window = 2;
    EXPECT_DOUBLE_EQ(mean_of(shape, row, 4), (16 + 64) / 2.0);
  }
}

}  // namespace
}  // namespace windrow::testing
