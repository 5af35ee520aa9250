// Reads as arrays: live windows as triples, and masks over their columns.
#include <gtest/gtest.h>

#include <numeric>

#include "adapters/rows.h"
#include "windrow/masks.h"

namespace windrow::testing {
namespace {

// The columns of mlx_window hold the tokens that they should, and the mask shows each query exactly what the
// read says it sees.
class Reads : public ::testing::Test {
 protected:
  StatePlan plan_ = must(StatePlan::Builder({.rows = 3, .tokens = 64, .step_tokens = 32, .tree_nodes = 16})
                             .attention({.layers = {0},
                                         .window = 5,
                                         .sinks = 2,
                                         .kv_heads = 2,
                                         .head_dim = 32,
                                         .value_dim = 64,
                                         .keys = Codec::affine(4, 32),
                                         .values = Codec::affine(8, 64)})
                             .attention({.layers = {1}, .kv_heads = 1, .head_dim = 16, .value_dim = 16})
                             .page_tokens(4)
                             .build());
  Result<StateStore> store_ = StateStore::create(plan_, {.poison = true});

  // Token i of row r has id 100 * r + i, tentative ones too (by slot).
  Row row_of(int r, int length) {
    Row row = *store_->new_row();
    std::vector<int> ids(length);
    std::iota(ids.begin(), ids.end(), 100 * r);
    if (length > 0) feed(*store_, row, ids);
    return row;
  }
  // which[q][...]: slots that query q of a row sees.
  using Seen = std::vector<std::vector<std::vector<int>>>;
  void expect_reads(std::span<const StepRow> rows, const Seen& sliding, const Seen& full) {
    Result<Step> step = store_->begin(rows);
    ASSERT_TRUE(step.ok()) << step.status().message();
    std::vector<int> ids, order;
    for (std::size_t r = 0; r < rows.size(); r++) {
      for (int t = 0; t < rows[r].length; t++)
        ids.push_back(100 * static_cast<int>(r) + rows[r].row->length() + t);
      order.push_back(static_cast<int>(rows.size() - 1 - r));
    }
    ASSERT_TRUE(append_all(*step, plan_, ids).ok());
    for (const int layer : {0, 1}) {
      const Seen& want = layer == 0 ? sliding : full;
      const AttentionGroup& g = plan_.group(layer);
      Result<KvRead> read = step->read(layer);
      ASSERT_TRUE(read.ok());
      Result<MlxWindow> window = mlx_window(*read, order);
      ASSERT_TRUE(window.ok()) << window.status().message();
      Result<MaskArray> mask = read_masks(*read, order);
      ASSERT_TRUE(mask.ok());
      ASSERT_EQ(mask->keys, window->slots);
      oracle::Kv expected{
          oracle::Tensor(static_cast<int>(order.size()), g.kv_heads, window->slots, g.head_dim),
          oracle::Tensor(static_cast<int>(order.size()), g.kv_heads, window->slots, g.value_dim)};
      for (std::size_t b = 0; b < order.size(); b++) {
        const int r = order[b];
        std::vector<int> slots;
        for (int s = 0; s < window->sinks[b]; s++) slots.push_back(s);
        for (int s = window->begin[b]; s < window->end[b]; s++) slots.push_back(s);
        ASSERT_EQ(static_cast<int>(slots.size()) + window->left_padding[b], window->slots);
        for (std::size_t c = 0; c < slots.size(); c++) {
          const oracle::Kv one = token_kv({100 * r + slots[c]}, layer, g);
          for (int h = 0; h < g.kv_heads; h++) {
            const int column = window->left_padding[b] + static_cast<int>(c), batch = static_cast<int>(b);
            std::ranges::copy(one.k.at(0, h, 0), expected.k.at(batch, h, column).begin());
            std::ranges::copy(one.v.at(0, h, 0), expected.v.at(batch, h, column).begin());
          }
        }
        for (int q = 0; q < mask->queries; q++) {
          std::vector<int> seen;
          for (int c = 0; c < mask->keys; c++) {
            if (!mask->at(static_cast<int>(b), q, c)) continue;
            ASSERT_GE(c, window->left_padding[b]);
            seen.push_back(slots[c - window->left_padding[b]]);
          }
          const auto& of_row = want[r];
          EXPECT_EQ(seen, q < static_cast<int>(of_row.size()) ? of_row[q] : std::vector<int>{})
              << "layer " << layer << " row " << r << " query " << q;
        }
      }
      // Triples, bit for bit; and plain numbers on request.
      EXPECT_TRUE(same_array(window->keys, array_of(expected.k, g.keys).view()));
      EXPECT_TRUE(same_array(window->values, array_of(expected.v, g.values).view()));
      Result<MlxWindow> plain = mlx_window(*read, order, Codec::f32(), Codec::f32());
      ASSERT_TRUE(plain.ok());
      EXPECT_EQ(plain->keys.codec, Codec::f32());
      EXPECT_EQ(plain->keys.data.size(), 4 * expected.k.values.size());
    }
  }
};

std::vector<int> range(int begin, int end) {
  std::vector<int> out(end - begin);
  std::iota(out.begin(), out.end(), begin);
  return out;
}
// What a causal query at position p sees in the sliding group.
std::vector<int> window_at(int p) {
  std::vector<int> out;
  for (int j = 0; j <= p; j++) {
    if (j > p - 5 || j < 2) out.push_back(j);
  }
  return out;
}

TEST_F(Reads, C10_C11_C28_CausalRowsOfManyLengths) {
  for (const int history : {0, 1, 3, 6, 7, 8, 13}) {
    for (const int length : {0, 1, 4, 9}) {
      Row a = row_of(0, history), b = row_of(1, 2);
      const StepRow rows[] = {{.row = &a, .length = length}, {.row = &b, .length = 1}};
      Seen sliding(2), full(2);
      for (int t = 0; t < length; t++) {
        sliding[0].push_back(window_at(history + t));
        full[0].push_back(range(0, history + t + 1));
      }
      sliding[1] = full[1] = {range(0, 3)};
      SCOPED_TRACE("history " + std::to_string(history) + " length " + std::to_string(length));
      expect_reads(rows, sliding, full);
      if (HasFailure()) return;
    }
  }
}

TEST_F(Reads, C12_C23_BlocksAndSpans) {
  Row a = row_of(0, 9), b = row_of(1, 4);
  const StepRow block[] = {{.row = &a, .length = 3, .block = true}};
  std::vector<int> sliding = {0, 1};
  for (int p = 5; p < 12; p++) sliding.push_back(p);
  expect_reads(block, {{sliding, sliding, sliding}}, {{range(0, 12), range(0, 12), range(0, 12)}});
  const TokenSpan spans[] = {{1, 4}};
  const StepRow media[] = {{.row = &a, .length = 1}, {.row = &b, .length = 5, .spans = spans}};
  expect_reads(
      media, {{window_at(9)}, {window_at(4), range(0, 8), range(0, 8), {0, 1, 3, 4, 5, 6, 7}, window_at(8)}},
      {{range(0, 10)}, {range(0, 5), range(0, 8), range(0, 8), range(0, 8), range(0, 9)}});
}

TEST_F(Reads, C12_TokenTreesSeeTheirAncestors) {
  Row a = row_of(0, 6);
  const std::vector<int> parents = {-1, 0, 0, 1, 2, -1};  // slots 6 .. 11
  const StepRow tree[] = {{.row = &a, .length = 6, .parents = parents}};
  // Depths 0 1 1 2 2 0: positions 6 7 7 8 8 6.
  expect_reads(tree,
               {{{0, 1, 2, 3, 4, 5, 6},
                 {0, 1, 3, 4, 5, 6, 7},
                 {0, 1, 3, 4, 5, 6, 8},
                 {0, 1, 4, 5, 6, 7, 9},
                 {0, 1, 4, 5, 6, 8, 10},
                 {0, 1, 2, 3, 4, 5, 11}}},
               {{{0, 1, 2, 3, 4, 5, 6},
                 {0, 1, 2, 3, 4, 5, 6, 7},
                 {0, 1, 2, 3, 4, 5, 6, 8},
                 {0, 1, 2, 3, 4, 5, 6, 7, 9},
                 {0, 1, 2, 3, 4, 5, 6, 8, 10},
                 {0, 1, 2, 3, 4, 5, 11}}});
}

// Rows of one read in two codecs, one of them crossing its start inside the step: that one stands in the
// read as two rows, and each has columns of its own.
TEST(ReadsDelayed, C27_C28_RowsOnBothSidesOfTheirStart) {
  const StatePlan plan =
      must(StatePlan::Builder({.rows = 2, .tokens = 32, .step_tokens = 16})
               .attention({.layers = {0},
                           .window = 6,
                           .head_dim = 32,
                           .value_dim = 32,
                           .keys = Codec::affine(4, 32),
                           .values = Codec::affine(4, 32),
                           .delayed = Delayed{.start = 8, .keys = Codec::f16(), .values = Codec::f16()}})
               .page_tokens(4)
               .build());
  const AttentionGroup& g = plan.group(0);
  Result<StateStore> store = StateStore::create(plan, {.poison = true});
  ASSERT_TRUE(store.ok());
  Row a = *store->new_row(), b = *store->new_row();
  feed(*store, a, {0, 1, 2, 3, 4, 5});
  feed(*store, b, {100, 101});
  Row* const rows[] = {&a, &b};
  const int lengths[] = {4, 1};  // a: tokens 6, 7 come before the start, 8 and 9 behind it
  Result<Step> step = store->begin(rows, lengths);
  ASSERT_TRUE(step.ok()) << step.status().message();
  ASSERT_TRUE(append_all(*step, plan, {6, 7, 8, 9, 102}).ok());
  Result<KvRead> read = step->read(0);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->rows.size(), 3u);
  const std::vector<int> want[] = {{1, 2, 3, 4, 5, 6, 7}, {3, 4, 5, 6, 7, 8, 9}, {100, 101, 102}};
  for (int r = 0; r < 3; r++) {
    Result<MlxWindow> one = mlx_window(*read, std::vector{r});
    ASSERT_TRUE(one.ok()) << one.status().message();
    const Codec codec = r == 1 ? g.keys : Codec::f16();
    oracle::Tensor expected = token_tensor(want[r], 0, 1, 32, true);
    if (r == 1) {  // 3 .. 7 were stored as f16 first
      for (float& x : expected.values) x = round_to(DType::kF16, x);
      const oracle::Tensor late = token_tensor({8, 9}, 0, 1, 32, true);
      std::ranges::copy(late.values, expected.values.begin() + 5 * 32);
    }
    EXPECT_TRUE(same_array(one->keys, array_of(expected, codec).view())) << r;
    Result<MaskArray> mask = read_masks(*read, std::vector{r});
    EXPECT_EQ(mask->seen, r == 2 ? std::vector<std::uint8_t>(3, 1)
                                 : (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1}));
  }
  const std::vector<int> all = {0, 1, 2};
  Result<MlxWindow> mixed = mlx_window(*read, all);
  ASSERT_FALSE(mixed.ok());
  EXPECT_NE(mixed.status().message().find("rows stand in f16 and in q4:32; ask for plain arrays"),
            std::string::npos)
      << mixed.status().message();
  Result<MlxWindow> plain = mlx_window(*read, all, Codec::f32(), Codec::bf16());
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->left_padding, (std::vector{0, 0, 4}));
}

TEST_F(Reads, C11_RowsThatTheReadHasNotAreRefused) {
  Row a = row_of(0, 2);
  Row* const rows[] = {&a};
  const int lengths[] = {1};
  Result<Step> step = store_->begin(rows, lengths);
  ASSERT_TRUE(append_all(*step, plan_, {2}).ok());
  Result<KvRead> read = step->read(0);
  for (const int r : {-1, 1}) {
    EXPECT_EQ(read_masks(*read, std::vector{r}).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(mlx_window(*read, std::vector{r}).status().code(), StatusCode::kInvalidArgument);
  }
  const Status s = mlx_window(*read, std::vector{0}, Codec::affine(8, 32)).status();
  EXPECT_NE(s.message().find("q4:32 can't become q8:32"), std::string::npos) << s.message();
  EXPECT_EQ(mlx_window(*read, {})->slots, 0);
}

}  // namespace
}  // namespace windrow::testing
