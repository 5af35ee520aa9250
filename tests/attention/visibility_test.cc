// Sinks, explicit ranges and two storages: against the reference, and bit for bit whatever stands beside.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "attention/fixture.h"
#include "attention/targets.h"

namespace windrow::testing {
namespace {

void expect_equal_to_reference(const Shape& shape, std::vector<RowSpec> rows) {
  const ReadFixture fixture(shape, std::move(rows), 3);
  const AttentionParams params{.q_heads = shape.q_heads,
                               .scale = 1 / std::sqrt(static_cast<float>(shape.head_dim))};
  std::vector<float> expected(fixture.out_size());
  const Status status = attend_reference(fixture.read(), fixture.queries(), params, expected);
  ASSERT_TRUE(status.ok()) << status.message();
  for_each_target([&](const internal::Kernels& kernels) {
    EXPECT_LE(relative_error(attend(kernels, shape, fixture), expected), 2e-5)
        << "window " << shape.window << ", sinks " << shape.sinks << ", pages of " << shape.page_tokens;
  });
}

TEST(AttentionSinks, EqualTheReferenceAtEveryEdge) {
  for (const int sinks : {1, 4, 16, 20, 127, 128, 129, 140}) {
    for (const int window : {1, 7, 60, 130}) {
      for (const int page_tokens : {4, 16, 32}) {
        const Shape shape{.q_heads = 2, .page_tokens = page_tokens, .window = window, .sinks = sinks};
        expect_equal_to_reference(shape,
                                  {{.content = 1, .history = 0, .fresh = 9},
                                   {.content = 2, .history = std::max(0, sinks + window - 3), .fresh = 7},
                                   {.content = 3, .history = 290, .fresh = 3}});
      }
    }
  }
}

// A chunk in which windows leave the sinks: its tokens take different numbers of ranges.
TEST(AttentionSinks, ATokenHasTheSameBitsHoweverItsRowWasCut) {
  for (const int sinks : {3, 128, 131}) {
    for (const int window : {5, 70, 150}) {
      const Shape shape{.kv_heads = 2, .q_heads = 4, .page_tokens = 16, .window = window, .sinks = sinks};
      const int history = std::max(0, sinks + window - 6), fresh = 14;
      for_each_target([&](const internal::Kernels& kernels) {
        const ReadFixture whole(shape, {{.content = 3, .history = history, .fresh = fresh}});
        const std::vector<float> out = attend(kernels, shape, whole);
        for (int t = 0; t < fresh; t++) {
          const ReadFixture alone(
              shape, {{.content = 9, .history = 40}, {.content = 3, .history = history + t}}, 7, 0x00);
          EXPECT_TRUE(same_bits(token_of(shape, attend(kernels, shape, alone), 1), token_of(shape, out, t)))
              << "token " << t << ", window " << window << ", sinks " << sinks;
        }
      });
    }
  }
}

// A diffusion block: all tokens see all of it.
RowSpec block_of(int history, int fresh) {
  const auto n = static_cast<std::size_t>(fresh);
  return {.content = 5,
          .history = history,
          .fresh = fresh,
          .begins = std::vector<int>(n, 0),
          .ends = std::vector<int>(n, history + fresh)};
}

TEST(AttentionRanges, ABlockWhoseTokensAllSeeEachOtherEqualsTheReference) {
  for (const int history : {0, 5, 120, 200}) {
    for (const int fresh : {1, 8, 32, 140})
      expect_equal_to_reference({.q_heads = 2}, {block_of(history, fresh)});
  }
}

// Text, an image of `media` tokens that see each other, text again, under a window.
RowSpec spans(int history, int text, int media, int window) {
  RowSpec row{.content = 6, .history = history, .fresh = text + media + text};
  for (int i = 0; i < row.fresh; i++) {
    const bool in_media = i >= text && i < text + media;
    row.begins.push_back(window_begin(history + i, window));
    row.ends.push_back(history + (in_media ? text + media : i + 1));
  }
  return row;
}

TEST(AttentionRanges, MediaSpansEqualTheReference) {
  for (const int window : {3, 40, kFullWindow}) {
    for (const int page_tokens : {2, 16}) {
      const Shape shape{.kv_heads = 2, .q_heads = 4, .page_tokens = page_tokens};
      expect_equal_to_reference(shape, {spans(0, 3, 20, window), spans(110, 5, 30, window)});
    }
  }
}

TEST(AttentionRanges, RangesInAnyOrderEqualTheReference) {
  const RowSpec row{.content = 7,
                    .history = 400,
                    .fresh = 6,
                    .begins = {400, 0, 399, 130, 300, 405},
                    .ends = {401, 402, 403, 406, 405, 406}};
  for (const int sinks : {0, 5})
    expect_equal_to_reference({.q_heads = 2, .page_tokens = 16, .sinks = sinks}, {row});
}

// The bits of a token depend on its own range: the other tokens' change, or are those of other rows.
RC_GTEST_PROP(AttentionRanges, ATokensBitsDependOnItsOwnRange, ()) {
  Shape shape;
  shape.keys = Codec::affine(*rc::gen::element(4, 5, 8), 32);
  shape.values = Codec::affine(*rc::gen::element(3, 4, 8), 32);
  shape.head_dim = shape.value_dim = 32;
  shape.kv_heads = *rc::gen::inRange(1, 3);
  shape.q_heads = shape.kv_heads * *rc::gen::inRange(1, 6);
  shape.page_tokens = *rc::gen::element(1, 2, 4, 8, 16, 32, 64);
  shape.sinks = *rc::gen::oneOf(rc::gen::just(0), rc::gen::inRange(1, 150));
  const int history = *rc::gen::inRange(0, 300), fresh = *rc::gen::inRange(1, 24);
  const auto ranges = [&](bool ascending) {
    RowSpec row{.content = 5, .history = history, .fresh = fresh};
    for (int i = 0; i < fresh; i++) {
      row.begins.push_back(*rc::gen::inRange(0, history + i + 1));
      row.ends.push_back(*rc::gen::inRange(history + i + 1, history + fresh + 1));
    }
    if (ascending) {
      std::sort(row.begins.begin(), row.begins.end());
      std::sort(row.ends.begin(), row.ends.end());
      for (int i = 0; i < fresh; i++) {
        const auto at = static_cast<std::size_t>(i);
        row.begins[at] = std::min(row.begins[at], history + i);
      }
    }
    return row;
  };
  const internal::Kernels& kernels = all_kernels()[*rc::gen::inRange<std::size_t>(0, all_kernels().size())];
  const RowSpec row = ranges(*rc::gen::arbitrary<bool>());
  const std::vector<float> expected = attend(kernels, shape, ReadFixture(shape, {row}));
  for (const int t : {0, fresh / 2, fresh - 1}) {
    RowSpec other = ranges(*rc::gen::arbitrary<bool>());
    other.begins[static_cast<std::size_t>(t)] = row.begins[static_cast<std::size_t>(t)];
    other.ends[static_cast<std::size_t>(t)] = row.ends[static_cast<std::size_t>(t)];
    const std::vector<float> out =
        attend(kernels, shape, ReadFixture(shape, {{.content = 2, .history = 30}, other}, 9, 0x00));
    RC_ASSERT(same_bits(token_of(shape, out, 1 + t), token_of(shape, expected, t)));
  }
}

TEST(AttentionStorages, RowsOfTwoInOneCallEqualSeparateCalls) {
  const std::vector<RowSpec> rows = {
      {.content = 1, .history = 150, .fresh = 3, .storage = 1},
      {.content = 2, .history = 40, .fresh = 1},
      {.content = 1, .history = 150, .fresh = 3},
      {.content = 3, .history = 12, .fresh = 6, .storage = 1, .parents = {-1, 0, 0, 1, 2, 2}},
      {.content = 4, .history = 0, .fresh = 20}};
  const std::pair<Codec, Codec> pairs[] = {{Codec::affine(4, 32), Codec::bf16()},
                                           {Codec::f32(), Codec::affine(8, 64)},
                                           {Codec::affine(2, 128), Codec::affine(6, 32, DType::kF32)}};
  Result<ThreadPool> pool = ThreadPool::create(3);
  ASSERT_TRUE(pool.ok());
  for (const auto& [first, second] : pairs) {
    for (const int page_tokens : {2, 16}) {
      const Shape shape{.keys = first,
                        .values = second,
                        .kv_heads = 2,
                        .q_heads = 6,
                        .head_dim = 128,
                        .value_dim = 128,
                        .page_tokens = page_tokens,
                        .window = 90,
                        .sinks = 4,
                        .other_keys = second,
                        .other_values = first};
      const ReadFixture mixed(shape, rows);
      for_each_target([&](const internal::Kernels& kernels) {
        const std::vector<float> out = attend(kernels, shape, mixed, &*pool);
        int t = 0;
        for (const RowSpec& row : rows) {
          const std::vector<float> expected = attend(kernels, shape, ReadFixture(shape, {row}, 5, 0x00));
          for (int i = 0; i < row.fresh; i++, t++) {
            EXPECT_TRUE(same_bits(token_of(shape, out, t), token_of(shape, expected, i))) << "token " << t;
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace windrow::testing
