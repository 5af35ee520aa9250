// Steps and rows one call at a time: positions, refusals, lifetimes, copy on write.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "base/float16.h"
#include "state/program.h"

namespace windrow::testing {
namespace {

class StepTest : public ::testing::Test {
 protected:
  static constexpr Limits kLimits{.rows = 3, .tokens = 100, .step_tokens = 40, .rollback = 3};
  StepTest()
      : plan(*StatePlan::Builder(kLimits)
                  .attention({.layers = {0},
                              .window = 8,
                              .kv_heads = 2,
                              .head_dim = 32,
                              .keys = Codec::affine(4, 32),
                              .values = Codec::affine(4, 32)})
                  .attention({.layers = {1}, .kv_heads = 1, .head_dim = 32})
                  .page_tokens(16)
                  .build()),
        store(std::move(*StateStore::create(plan, {.poison = true}))) {}

  Step begin(std::vector<Row*> rows, std::vector<int> lengths) {
    Result<Step> step = store.begin(rows, lengths);
    EXPECT_TRUE(step.ok()) << step.status().message();
    return std::move(*step);
  }
  Status begin_error(std::vector<Row*> rows, std::vector<int> lengths) {
    return store.begin(rows, lengths).status();
  }
  void feed(Row& row, const std::vector<int>& ids) {
    Step step = begin({&row}, {static_cast<int>(ids.size())});
    ASSERT_TRUE(append_all(step, plan, ids).ok());
    ASSERT_TRUE(step.resolve().ok());
  }
  static std::vector<int> range(int from, int n) {
    std::vector<int> ids;
    for (int i = 0; i < n; i++) ids.push_back(from + i);
    return ids;
  }

  StatePlan plan;
  StateStore store;
};

TEST_F(StepTest, C7PositionsAreFixedAtBegin) {
  Row a = std::move(*store.new_row()), b = std::move(*store.new_row());
  feed(a, range(0, 5));
  Step step = begin({&b, &a}, {2, 3});
  const std::vector<std::int32_t> want = {0, 1, 5, 6, 7};
  EXPECT_TRUE(std::equal(want.begin(), want.end(), step.positions().begin(), step.positions().end()));
  ASSERT_TRUE(append_all(step, plan, range(50, 5)).ok());
  Result<KvRead> read = step.read(1);
  EXPECT_EQ(std::vector<std::int32_t>(read->positions.begin(), read->positions.end()), want);
  EXPECT_EQ(a.length(), 5);  // advanced only by resolve
  ASSERT_TRUE(step.resolve({2, 1}).ok());
  EXPECT_EQ(a.length(), 6);
  EXPECT_EQ(b.length(), 2);
}

TEST_F(StepTest, ZeroLengthRowsAndEmptyBatchesAreLegal) {
  Row a = std::move(*store.new_row());
  feed(a, range(0, 20));
  Step step = begin({&a}, {0});
  EXPECT_EQ(step.tokens(), 0);
  ASSERT_TRUE(step.resolve().ok());
  expect_row_holds(a, plan, range(0, 20));
  Step none = begin({}, {});
  EXPECT_TRUE(none.resolve().ok());
}

TEST_F(StepTest, BeginRefusesByNameAndChangesNothing) {
  Row a = std::move(*store.new_row()), b = std::move(*store.new_row());
  feed(a, range(0, 30));
  Row none;
  EXPECT_EQ(begin_error({&a}, {1, 2}).message(), "begin: 1 rows and 2 lengths");
  EXPECT_EQ(begin_error({&a, nullptr}, {1, 2}).message(), "begin: row 1 of the step is no row");
  EXPECT_EQ(begin_error({&none}, {1}).message(), "begin: row 0 of the step is no row");
  EXPECT_EQ(begin_error({&a}, {-1}).message(), "begin: row 0 of the step has length -1");
  EXPECT_EQ(begin_error({&a, &a}, {1, 1}).message(), "begin: a row stands twice in the step");
  EXPECT_EQ(begin_error({&b, &a}, {20, 21}).message(), "begin: 41 tokens in one step, the plan allows 40");
  EXPECT_EQ(begin_error({&a}, {71}).message(),
            "begin: row 0 of the step has 30 positions and asks for 71 more, the plan allows 100");
  EXPECT_EQ(begin_error({&a}, {std::numeric_limits<int>::max()}).code(), StatusCode::kResourceExhausted);
  StateStore other = std::move(*StateStore::create(plan));
  Row foreign = std::move(*other.new_row());
  EXPECT_EQ(begin_error({&foreign}, {1}).message(), "begin: row 0 of the step belongs to another store");
  {
    Step open = begin({&a}, {1});
    EXPECT_EQ(begin_error({&a}, {1}).message(), "begin: row 0 of the step stands in another open step");
    EXPECT_EQ(begin_error({&a}, {1}).code(), StatusCode::kFailedPrecondition);
    Step beside = begin({&b}, {1});  // another row is free to go
  }
  expect_row_holds(a, plan, range(0, 30));
  EXPECT_TRUE(begin({&a, &b}, {1, 1}).open());
}

TEST_F(StepTest, AppendAndReadRefuseWrongArrays) {
  Row a = std::move(*store.new_row());
  Step step = begin({&a}, {2});
  const std::vector<float> right(2 * 2 * 32), wrong(2 * 2 * 32 - 1);
  EXPECT_EQ(step.append(7, right, right).message(), "append: layer 7 is not in the plan");
  EXPECT_EQ(step.append(0, wrong, right).message(),
            "append: layer 0: 127 numbers of keys, expected 128 (2 tokens x 2 heads x 32)");
  EXPECT_EQ(step.append(0, right, wrong).message(),
            "append: layer 0: 127 numbers of values, expected 128 (2 tokens x 2 heads x 32)");
  FloatArray integers(right);
  integers.dtype = DType::kI32;
  EXPECT_EQ(step.append(0, integers, right).message(),
            "append: layer 0: keys of type I32, expected F32, F16 or BF16");
  EXPECT_EQ(step.read(-1).status().message(), "read: layer -1 is not in the plan");
  EXPECT_EQ(step.read(0).status().message(), "read: layer 0 was not appended in this step");
  ASSERT_TRUE(step.append(0, right, right).ok());
  EXPECT_TRUE(step.read(0).ok());
  EXPECT_EQ(step.resolve().message(), "resolve: layer 1 was not appended in this step");
  EXPECT_TRUE(step.open());
  EXPECT_EQ(step.resolve({1, 1}).message(), "resolve: 2 counts for 1 rows");
  EXPECT_EQ(step.resolve({3}).message(), "resolve: row 0 keeps 3 of 2 tokens");
  EXPECT_EQ(step.resolve({-1}).message(), "resolve: row 0 keeps -1 of 2 tokens");
  EXPECT_TRUE(step.resolve({0}).ok());  // nothing is kept, so nothing is missing
  EXPECT_EQ(step.append(0, right, right).message(), "append: the step is closed");
  EXPECT_EQ(step.read(0).status().message(), "read: the step is closed");
  EXPECT_EQ(step.resolve().message(), "resolve: the step is closed");
  step.abort();  // idempotent
  EXPECT_EQ(a.length(), 0);
}

TEST_F(StepTest, SixteenBitInputIsStoredLikeTheSameNumbersInF32) {
  Row a = std::move(*store.new_row()), b = std::move(*store.new_row());
  Step step = begin({&a, &b}, {1, 1});
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int layer : {0, 1}) {
      const AttentionGroup& g = plan.group(plan.group_of_layer(layer));
      const std::vector<float> x = token_vectors({3, 4}, layer, g.kv_heads, g.head_dim, true);
      std::vector<std::uint16_t> narrow;
      std::vector<float> wide;
      for (const float f : x) {
        narrow.push_back(dtype == DType::kBF16 ? bf16_from_f32(f) : f16_from_f32(f));
        wide.push_back(round_to(dtype, f));
      }
      const auto stored = [&](std::size_t r) {
        Result<KvRead> read = step.read(layer);
        return stored_record(read->storages[0].layout->keys, read->block(read->rows[r], 0, 0), 0);
      };
      ASSERT_TRUE(step.append(layer, FloatArray(narrow, dtype), FloatArray(narrow, dtype)).ok());
      const Record from_narrow = stored(1);
      ASSERT_TRUE(step.append(layer, wide, wide).ok());
      EXPECT_EQ(from_narrow, stored(1));
    }
  }
}

// C3: what a read shows does not change, whatever comes later.
TEST_F(StepTest, C3ReadsStayValidAfterLaterSteps) {
  std::optional<Row> a = std::move(*store.new_row());
  feed(*a, range(0, 10));
  std::vector<int> seen = range(0, 10);
  Result<KvRead> read = Status(StatusCode::kInvalidArgument, "none yet");
  {
    Step step = begin({&*a}, {4});
    ASSERT_TRUE(append_all(step, plan, range(100, 4)).ok());
    read = step.read(0);
    ASSERT_TRUE(step.resolve({1}).ok());  // three of the four are rejected
  }
  for (const int id : range(100, 4)) seen.push_back(id);
  expect_read_shows(*read, plan, 0, seen);
  feed(*a, range(200, 20));  // overwrites the rejected slots, in a copy
  expect_read_shows(*read, plan, 0, seen);
  feed(*a, range(300, 30));
  a.reset();
  expect_read_shows(*read, plan, 0, seen);
  EXPECT_EQ(store.pool_use(1).owned, 0);
  EXPECT_GT(store.pool_use(0).owned, 0);
  read = Status(StatusCode::kInvalidArgument, "gone");
  EXPECT_EQ(store.pool_use(0).owned, 0);
}

TEST_F(StepTest, ReadsAndRowsOutliveTheStoreObject) {
  std::optional<StateStore> mine(std::move(*StateStore::create(plan)));
  Row row = std::move(*mine->new_row());
  Row* rows[] = {&row};
  Result<Step> step = mine->begin(rows, std::vector<int>{3});
  mine.reset();
  ASSERT_TRUE(append_all(*step, plan, range(0, 3)).ok());
  Result<KvRead> read = step->read(0);
  ASSERT_TRUE(step->resolve().ok());
  row = Row();
  expect_read_shows(*read, plan, 0, range(0, 3));
}

TEST_F(StepTest, ForksShareUntilOneWrites) {
  Row a = std::move(*store.new_row());
  feed(a, range(0, 20));
  const int before = store.pool_use(0).owned + store.pool_use(1).owned;
  Row b = std::move(*a.fork());
  EXPECT_EQ(store.pool_use(0).owned + store.pool_use(1).owned, before);
  feed(b, range(500, 2));
  EXPECT_EQ(store.pool_use(1).owned, 3);  // one shared, two tails
  feed(a, range(700, 3));
  std::vector<int> ids_a = range(0, 20), ids_b = range(0, 20);
  for (const int id : range(700, 3)) ids_a.push_back(id);
  for (const int id : range(500, 2)) ids_b.push_back(id);
  expect_row_holds(a, plan, ids_a);
  expect_row_holds(b, plan, ids_b);
}

TEST_F(StepTest, C19TruncateIsExactOrRefusesWithTheLowestLength) {
  Row a = std::move(*store.new_row());
  feed(a, range(0, 30));
  EXPECT_EQ(a.minimum_length(), 27);  // the promised rollback of 3
  const Status s = a.truncate(26);
  EXPECT_EQ(s.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(s.message(), "truncate: to 26 positions of 30, the lowest length still retained is 27");
  EXPECT_EQ(a.truncate(31).message(), "truncate: to 31 positions, the row has 30");
  EXPECT_EQ(a.truncate(-1).code(), StatusCode::kInvalidArgument);
  expect_row_holds(a, plan, range(0, 30));
  ASSERT_TRUE(a.truncate(27).ok());
  EXPECT_EQ(a.minimum_length(), 27);  // used up: what is gone can't come back
  expect_row_holds(a, plan, range(0, 27));
  Row b = std::move(*store.new_row());
  feed(b, range(0, 8));
  EXPECT_EQ(b.minimum_length(), 0);  // not yet wrapped: down to nothing
  ASSERT_TRUE(b.truncate(0).ok());
  EXPECT_EQ(b.bytes(), 0u);
}

TEST_F(StepTest, RowsInAnOpenStepRefuseToChange) {
  std::optional<Row> a = std::move(*store.new_row());
  feed(*a, range(0, 5));
  Step step = begin({&*a}, {1});
  EXPECT_EQ(a->fork().status().message(), "fork: the row stands in an open step");
  EXPECT_EQ(a->truncate(1).message(), "truncate: the row stands in an open step");
  a.reset();  // dropping it is always possible; the step keeps what it needs
  ASSERT_TRUE(append_all(step, plan, {9}).ok());
  ASSERT_TRUE(step.resolve().ok());
  EXPECT_EQ(store.live_rows(), 0);
  EXPECT_EQ(store.pool_use(0).owned + store.pool_use(1).owned, 0);
}

TEST_F(StepTest, RowLimitIsKept) {
  std::vector<Row> rows;
  for (int i = 0; i < 3; i++) rows.push_back(std::move(*store.new_row()));
  EXPECT_EQ(store.new_row().status().message(), "state store: all 3 rows of the plan are live");
  EXPECT_EQ(rows[0].fork().status().message(), "fork: all 3 rows of the plan are live");
  rows.pop_back();
  EXPECT_TRUE(store.new_row().ok());
}

// A pool kept small on purpose runs out in the middle of begin: nothing may change.
TEST(StateShortage, BeginIsAllOrNothing) {
  const StatePlan plan =
      *StatePlan::Builder({.rows = 4, .tokens = 640, .step_tokens = 640, .total_tokens = 64})
           .attention({.layers = {0}, .window = 20, .kv_heads = 1, .head_dim = 32})
           .attention({.layers = {1}, .kv_heads = 1, .head_dim = 32})
           .page_tokens(16)
           .build();
  StateStore store = std::move(*StateStore::create(plan));
  Row a = std::move(*store.new_row()), b = std::move(*store.new_row());
  const auto feed = [&](int n) {
    Row* rows[] = {&a, &b};
    Result<Step> step = store.begin(rows, std::vector<int>{n, n});
    if (!step.ok()) return step.status();
    EXPECT_TRUE(append_all(*step, plan, std::vector<int>(static_cast<std::size_t>(2 * n), 1)).ok());
    return step->resolve();
  };
  int length = 0;
  Status s;
  while ((s = feed(10)).ok()) length += 10;
  EXPECT_EQ(s.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(s.message().find("pages of group 1, free are 0 of 10"), std::string::npos) << s.message();
  EXPECT_EQ(a.length(), length);
  EXPECT_GE(2 * length, 64);
  for (int g = 0; g < 2; g++)
    EXPECT_EQ(store.pool_use(g).owned + store.pool_use(g).free, store.pool_use(g).pages);
  expect_row_holds(a, plan, std::vector<int>(static_cast<std::size_t>(length), 1));
  a = Row();
  Row* one[] = {&b};
  EXPECT_TRUE(store.begin(one, std::vector<int>{20}).ok());
}

}  // namespace
}  // namespace windrow::testing
