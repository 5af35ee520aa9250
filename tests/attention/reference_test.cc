// The f64 reference against sums done by hand, and what it refuses.
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

struct Refused {
  const char* message;
  void (*spoil)(KvRead&, AttentionParams&, std::size_t& q, std::size_t& out);
};

class AttentionRefuses : public ::testing::TestWithParam<Refused> {};

const float kBadSinks[] = {0, NAN, 0, 0};

TEST_P(AttentionRefuses, WithOneLineThatNamesIt) {
  Shape shape = tiny();
  shape.kv_heads = 2;
  shape.q_heads = 4;
  ReadFixture fixture(shape, {{.history = 20, .fresh = 2}, {.content = 1, .history = 3, .fresh = 1}});
  KvRead read = fixture.read();
  AttentionParams params{.q_heads = 4};
  std::size_t q_size = fixture.queries().size(), out_size = fixture.out_size();
  V q(q_size + 1), out(out_size + 1);
  ASSERT_TRUE(
      attend_reference(read, std::span(q).first(q_size), params, std::span(out).first(out_size)).ok());
  GetParam().spoil(read, params, q_size, out_size);
  const Status status =
      attend_reference(read, std::span(q).first(q_size), params, std::span(out).first(out_size));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), GetParam().message);
}

const std::int32_t kGap[] = {20, 22, 3}, kNegative[] = {-1, 0, 3}, kShortOffsets[] = {0, 2},
                   kBackwards[] = {0, 3, 2}, kOffsets[] = {0, 2, 2}, kLatePage[] = {1, 0},
                   kBadPage[] = {0, -1, 2}, kManyPages[] = {0, 2, 9};

INSTANTIATE_TEST_SUITE_P(
    All, AttentionRefuses,
    ::testing::Values(
        Refused{"attention: q has 193 numbers, expected 3 tokens x 4 heads x 16",
                [](auto&, auto&, auto& q, auto&) { q++; }},
        Refused{"attention: out has 191 numbers, expected 3 tokens x 4 heads x 16",
                [](auto&, auto&, auto&, auto& out) { out--; }},
        Refused{"attention: 3 query heads over 2 kv heads, expected a multiple",
                [](auto&, auto& p, auto&, auto&) { p.q_heads = 3; }},
        Refused{"attention: 0 query heads over 2 kv heads, expected a multiple",
                [](auto&, auto& p, auto&, auto&) { p.q_heads = 0; }},
        Refused{"attention: scale nan", [](auto&, auto& p, auto&, auto&) { p.scale = NAN; }},
        Refused{"attention: scale inf", [](auto&, auto& p, auto&, auto&) { p.scale = INFINITY; }},
        Refused{"attention: softcap -1", [](auto&, auto& p, auto&, auto&) { p.softcap = -1; }},
        Refused{"attention: softcap inf", [](auto&, auto& p, auto&, auto&) { p.softcap = INFINITY; }},
        Refused{"attention: 3 sinks for 4 query heads",
                [](auto&, auto& p, auto&, auto&) { p.sinks = std::span(kBadSinks).first(3); }},
        Refused{"attention: sink 1 is nan", [](auto&, auto& p, auto&, auto&) { p.sinks = kBadSinks; }},
        Refused{"attention: a read without pages", [](auto& r, auto&, auto&, auto&) { r.layout = nullptr; }},
        Refused{"attention: 0 kv heads", [](auto& r, auto&, auto&, auto&) { r.kv_heads = 0; }},
        Refused{"attention: window of 0 positions", [](auto& r, auto&, auto&, auto&) { r.window = 0; }},
        Refused{"attention: 24 positions a page, expected a multiple of 16",
                [](auto& r, auto&, auto&, auto&) { r.page_tokens = 24; }},
        Refused{"attention: a read of 32 + 16 dims, 16 positions a page, 2048 bytes a block over a layout of "
                "16 + 16, "
                "16, 2048",
                [](auto& r, auto&, auto&, auto&) { r.head_dim = 32; }},
        Refused{"attention: row 0 goes from position 20 to 22, tokens of a row are consecutive",
                [](auto& r, auto&, auto&, auto&) { r.positions = kGap; }},
        Refused{"attention: row 0 at position -1",
                [](auto& r, auto&, auto&, auto&) { r.positions = kNegative; }},
        Refused{"attention: 2 rows with 2 row offsets and 3 page offsets",
                [](auto& r, auto&, auto&, auto&) { r.row_offsets = kShortOffsets; }},
        Refused{"attention: row offsets 0 .. 2 for 3 tokens",
                [](auto& r, auto&, auto&, auto&) { r.row_offsets = kOffsets; }},
        Refused{"attention: row offsets 0 .. 2 for 3 tokens",
                [](auto& r, auto&, auto&, auto&) { r.row_offsets = kBackwards; }},
        Refused{"attention: row 0 sees pages 0 .. 1, its table holds 2 from 1",
                [](auto& r, auto&, auto&, auto&) { r.first_page = kLatePage; }},
        Refused{"attention: row 0 has the page index -1",
                [](auto& r, auto&, auto&, auto&) { r.pages = kBadPage; }},
        Refused{"attention: row 1 has pages 2 .. 9 of 3",
                [](auto& r, auto&, auto&, auto&) { r.page_offsets = kManyPages; }}));

}  // namespace
}  // namespace windrow::testing
