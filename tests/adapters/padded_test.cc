// Padded rectangular batches against rows that were fed alone. Padding is NaN throughout: were one of its
// numbers read, a poisoned store would refuse it or an output would show it.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "adapters/rows.h"
#include "windrow/attention.h"
#include "windrow/padded.h"

namespace windrow::testing {
namespace {

constexpr int kKvHeads = 2, kQHeads = 4, kDim = 32;
const float kNan = std::numeric_limits<float>::quiet_NaN();

StatePlan plan_of() {
  return must(StatePlan::Builder({.rows = 8, .tokens = 128, .step_tokens = 128})
                  .attention({.layers = {0, 1},
                              .window = 6,
                              .sinks = 1,
                              .kv_heads = kKvHeads,
                              .head_dim = kDim,
                              .keys = Codec::affine(4, 32),
                              .values = Codec::affine(4, 32)})
                  .attention({.layers = {2}, .kv_heads = kKvHeads, .head_dim = kDim})
                  .page_tokens(16)
                  .build());
}

int token_id(int row, int position) { return 1000 * row + position; }

// [rows, columns, heads * dim] of one chunk: tokens where they are, NaN elsewhere. `fed[r]` tokens of row r
// stood in chunks before. kind tells keys, values and queries apart.
std::vector<float> padded_tensor(const PaddedBatch& batch, const std::vector<int>& fed, int layer, int heads,
                                 int kind) {
  std::vector<float> out(static_cast<std::size_t>(batch.rows()) * batch.columns() * heads * kDim, kNan);
  for (int r = 0; r < batch.rows(); r++) {
    for (int t = 0; t < batch.lengths()[r]; t++) {
      const std::vector<float> x =
          token_vectors({token_id(r, fed[r] + t)}, layer + 10 * kind, heads, kDim, true);
      std::ranges::copy(
          x, out.begin() +
                 (static_cast<std::size_t>(r) * batch.columns() + batch.first_column(r) + t) * x.size());
    }
  }
  return out;
}

using Outputs = std::map<std::pair<int, int>, std::vector<float>>;  // by (layer, token id): [q_heads, dim]

struct Run {
  Result<StateStore> store;
  std::vector<Row> rows;
  Outputs outputs;
};

// One step of a batch; `fed` moves on.
void step_of(Run& run, const AttentionKernels& kernels, std::vector<Row*> rows, const PaddedBatch& batch,
             std::vector<int>& fed, const std::vector<int>& names) {
  Result<Step> step = run.store->begin(rows, batch.lengths());
  ASSERT_TRUE(step.ok()) << step.status().message();
  ASSERT_EQ(step->tokens(), batch.tokens());
  for (const int layer : {0, 1, 2}) {
    std::vector<float> packed[3];
    for (int kind = 0; kind < 3; kind++) {
      const int heads = kind == 2 ? kQHeads : kKvHeads;
      std::vector<float> padded;
      // Rows of a run alone have another number than in the batch.
      if (names.empty()) {
        padded = padded_tensor(batch, fed, layer, heads, kind);
      } else {
        for (int t = 0; t < batch.tokens(); t++) {
          const std::vector<float> x =
              token_vectors({token_id(names[0], fed[0] + t)}, layer + 10 * kind, heads, kDim, true);
          padded.insert(padded.end(), x.begin(), x.end());
        }
      }
      packed[kind].resize(static_cast<std::size_t>(batch.tokens()) * heads * kDim);
      const Status s = batch.pack<float>(padded, heads * kDim, packed[kind]);
      ASSERT_TRUE(s.ok()) << s.message();
    }
    const Status appended = step->append(layer, packed[0], packed[1]);
    ASSERT_TRUE(appended.ok()) << appended.message();
    Result<KvRead> read = step->read(layer);
    ASSERT_TRUE(read.ok());
    std::vector<float> out(packed[2].size());
    const Status attended =
        kernels.attend(*read, packed[2], {.q_heads = kQHeads, .scale = 0.2f}, out, nullptr);
    ASSERT_TRUE(attended.ok()) << attended.message();
    std::vector<float> back(static_cast<std::size_t>(batch.rows()) * batch.columns() * kQHeads * kDim, kNan);
    ASSERT_TRUE(batch.unpack<float>(out, kQHeads * kDim, back).ok());
    for (int r = 0; r < batch.rows(); r++) {
      for (int c = 0; c < batch.columns(); c++) {
        const auto at = back.begin() + (static_cast<std::size_t>(r) * batch.columns() + c) * kQHeads * kDim;
        std::vector<float> token(at, at + kQHeads * kDim);
        const int t = c - batch.first_column(r);
        if (t < 0 || t >= batch.lengths()[r]) {
          ASSERT_EQ(token, std::vector<float>(kQHeads * kDim)) << "padding";
        } else {
          run.outputs[{layer, token_id(names.empty() ? r : names[0], fed[r] + t)}] = std::move(token);
        }
      }
    }
  }
  ASSERT_TRUE(step->resolve().ok());
  for (int r = 0; r < batch.rows(); r++) fed[r] += batch.lengths()[r];
}

void expect_as_alone(PadSide side) {
  const StatePlan plan = plan_of();
  Result<AttentionKernels> kernels = AttentionKernels::select(plan);
  ASSERT_TRUE(kernels.ok()) << kernels.status().message();
  for (const std::vector<int>& lengths :
       {std::vector{5, 0, 17, 1}, std::vector{9, 9}, std::vector{3, 21, 8, 20, 1}, std::vector{1}}) {
    const int longest = std::ranges::max(lengths);
    Run alone{StateStore::create(plan, {.poison = true}), {}, {}};
    for (int r = 0; r < static_cast<int>(lengths.size()); r++) {
      alone.rows.push_back(*alone.store->new_row());
      Result<PaddedBatch> whole = PaddedBatch::create(lengths[r], std::span(&lengths[r], 1), side);
      std::vector<int> fed = {0};
      step_of(alone, *kernels, {&alone.rows.back()}, *whole, fed, {r});
      if (::testing::Test::HasFailure()) return;
    }
    for (const int chunk : {1, 2, 5, 8, longest}) {
      SCOPED_TRACE("chunks of " + std::to_string(chunk));
      Run batched{StateStore::create(plan, {.poison = true}), {}, {}};
      std::vector<Row*> rows;
      for (std::size_t r = 0; r < lengths.size(); r++) batched.rows.push_back(*batched.store->new_row());
      for (Row& row : batched.rows) rows.push_back(&row);
      Result<PaddedChunks> chunks = PaddedChunks::create(lengths, chunk, side);
      ASSERT_TRUE(chunks.ok());
      std::vector<int> fed(lengths.size());
      for (int i = 0; i < chunks->count(); i++) {
        step_of(batched, *kernels, rows, *chunks->chunk(i), fed, {});
        if (::testing::Test::HasFailure()) return;
      }
      EXPECT_EQ(fed, lengths);
      for (std::size_t r = 0; r < lengths.size(); r++) {
        EXPECT_EQ(*batched.rows[r].extract(), *alone.rows[r].extract()) << "row " << r;
      }
      ASSERT_EQ(batched.outputs.size(), alone.outputs.size());
      for (const auto& [token, out] : alone.outputs) {
        const std::vector<float>& got = batched.outputs[token];
        ASSERT_EQ(std::memcmp(got.data(), out.data(), 4 * out.size()), 0)
            << "layer " << token.first << " token " << token.second;
      }
    }
  }
}

TEST(Padded, C11_C22_ChunkedLeftPaddingEqualsRowByRow) { expect_as_alone(PadSide::kLeft); }
TEST(Padded, C11_C22_ChunkedRightPaddingEqualsRowByRow) { expect_as_alone(PadSide::kRight); }

TEST(Padded, C22_ChunksHoldEveryTokenOnceInOrder) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; round++) {
    std::vector<int> lengths(random() % 5);
    for (int& length : lengths) length = static_cast<int>(random() % 12);
    const PadSide side = random() % 2 == 0 ? PadSide::kLeft : PadSide::kRight;
    const int size = 1 + static_cast<int>(random() % 7);
    Result<PaddedChunks> chunks = PaddedChunks::create(lengths, size, side);
    ASSERT_TRUE(chunks.ok());
    const int columns = lengths.empty() ? 0 : std::ranges::max(lengths);
    ASSERT_EQ(chunks->columns(), columns);
    ASSERT_EQ(chunks->count(), (columns + size - 1) / size);
    // The column that every token of the rectangle stands in, by the definition.
    std::vector<std::vector<int>> want(lengths.size()), got(lengths.size());
    for (std::size_t r = 0; r < lengths.size(); r++) {
      for (int t = 0; t < lengths[r]; t++)
        want[r].push_back(side == PadSide::kLeft ? columns - lengths[r] + t : t);
    }
    for (int i = 0; i < chunks->count(); i++) {
      Result<PaddedBatch> batch = chunks->chunk(i);
      ASSERT_TRUE(batch.ok());
      ASSERT_EQ(batch->columns(), std::min(size, columns - i * size));
      for (int r = 0; r < batch->rows(); r++) {
        for (int t = 0; t < batch->lengths()[r]; t++)
          got[r].push_back(chunks->first_column(i) + batch->first_column(r) + t);
      }
    }
    ASSERT_EQ(got, want);
  }
}

TEST(Padded, C22_PacksIdsAndAnyElement) {
  const std::vector<int> lengths = {2, 0, 3};
  Result<PaddedBatch> right = PaddedBatch::create(3, lengths, PadSide::kRight);
  Result<PaddedBatch> left = PaddedBatch::create(3, lengths, PadSide::kLeft);
  std::vector<int> ids(5);
  ASSERT_TRUE(right->pack<int>(std::vector{1, 2, -1, -1, -1, -1, 3, 4, 5}, 1, ids).ok());
  EXPECT_EQ(ids, (std::vector{1, 2, 3, 4, 5}));
  ASSERT_TRUE(left->pack<int>(std::vector{-1, 1, 2, -1, -1, -1, 3, 4, 5}, 1, ids).ok());
  EXPECT_EQ(ids, (std::vector{1, 2, 3, 4, 5}));
  std::vector<std::uint16_t> back(18, 9);
  ASSERT_TRUE(
      left->unpack<std::uint16_t>(std::vector<std::uint16_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 2, back).ok());
  EXPECT_EQ(back, (std::vector<std::uint16_t>{0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 5, 6, 7, 8, 9, 10}));
}

TEST(Padded, C22_WrongSizesAreRefusedByName) {
  const auto code = [](const auto& result) {
    EXPECT_FALSE(result.ok());
    return result.status().code();
  };
  const auto refused = [&](int columns, const std::vector<int>& lengths) {
    return code(PaddedBatch::create(columns, lengths, PadSide::kLeft)) == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(-1, {}));
  EXPECT_TRUE(refused(3, {3, 4}));
  EXPECT_TRUE(refused(3, {-1}));
  const int most = std::numeric_limits<int>::max();
  EXPECT_TRUE(refused(most, {most, 1}));
  EXPECT_EQ(code(PaddedChunks::create(std::vector{1}, 0, PadSide::kLeft)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(PaddedChunks::create(std::vector{1, -2}, 1, PadSide::kLeft)), StatusCode::kInvalidArgument);
  Result<PaddedChunks> chunks = PaddedChunks::create(std::vector{5}, 2, PadSide::kLeft);
  EXPECT_EQ(code(chunks->chunk(3)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(chunks->chunk(-1)), StatusCode::kInvalidArgument);
  Result<PaddedBatch> batch = PaddedBatch::create(3, std::vector{2, 1}, PadSide::kRight);
  std::vector<float> six(6), three(3);
  Status s = batch->pack<float>(three, 1, six);
  EXPECT_EQ(s.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(s.message().find("expected 6 tokens"), std::string::npos) << s.message();
  s = batch->pack<float>(six, 1, six);
  EXPECT_NE(s.message().find("expected 3 tokens"), std::string::npos) << s.message();
  EXPECT_FALSE(batch->unpack<float>(six, 1, six).ok());
  EXPECT_FALSE(batch->unpack<float>(three, 1, three).ok());
  EXPECT_FALSE(batch->pack<float>(six, std::numeric_limits<std::size_t>::max(), three).ok());
  EXPECT_TRUE(batch->pack<float>(six, 1, three).ok());
}

TEST(Padded, C29_NoRowsAndNoColumnsAreLegal) {
  Result<PaddedChunks> none = PaddedChunks::create({}, 4, PadSide::kRight);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->count(), 0);
  Result<PaddedBatch> empty = PaddedBatch::create(0, std::vector{0, 0}, PadSide::kRight);
  ASSERT_TRUE(empty.ok());
  std::vector<float> nothing;
  EXPECT_TRUE(empty->pack<float>(nothing, 8, nothing).ok());
  EXPECT_TRUE(empty->unpack<float>(nothing, 8, nothing).ok());
}

}  // namespace
}  // namespace windrow::testing
