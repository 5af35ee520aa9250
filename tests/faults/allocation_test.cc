// Invariant 2 when memory runs out: a scripted program of 200 operations, in which every operation is
// repeated with its first, second, ... allocation failing until none fails. Each failure must leave the
// state as it was, byte for byte, and nothing may leak.
#include <gtest/gtest.h>

#include <random>

#include "faults/failing_new.h"
#include "state/program.h"

namespace windrow::testing {
namespace {

constexpr int kOperations = 200;
constexpr RecurrentShape kShape = {{.key_heads = 1, .value_heads = 2, .key_dim = 16, .value_dim = 4},
                                   {.channels = 5, .taps = 3}};

StatePlan make_plan() {
  Result<StatePlan> plan =
      StatePlan::Builder(
          {.rows = 4, .tokens = 64, .step_tokens = 24, .rollback = 2, .tree_nodes = 6, .verify_tokens = 6})
          .attention({.layers = {0, 1},
                      .window = 5,
                      .sinks = 1,
                      .head_dim = 32,
                      .keys = Codec::affine(8, 32),
                      .values = Codec::affine(4, 32),
                      .delayed = Delayed{.start = 9}})
          .attention({.layers = {2}, .head_dim = 32, .sharers = {{3, 2}}})
          .recurrent({.layers = {4}, .shape = kShape})
          .page_tokens(2)
          .build();
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *plan;
}

std::vector<float> numbers(std::size_t count, int id) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; i++) out[i] = token_number(id, 4, 0, static_cast<int>(i), true) / 8;
  return out;
}

// A call into the library, which never throws: std::terminate if it does.
template <typename Call>
auto library(Call call) noexcept {
  return call();
}

// All layers of an open step.
Status fill(Step& step, const StatePlan& plan, int id) {
  const auto n = static_cast<std::size_t>(step.tokens());
  const std::vector<int> ids(n, id);
  for (const int layer : all_layers(plan)) {
    const std::vector<float> k = token_vectors(ids, layer, 1, 32, true),
                             v = token_vectors(ids, layer, 1, 32, false);
    if (Status s = library([&] { return step.append(layer, k, v); }); !s.ok()) return s;
  }
  for (const int layer : {0, 1, 2, 3}) {
    if (Result<KvRead> read = library([&] { return step.read(layer); }); !read.ok()) return read.status();
  }
  std::vector<float> x = numbers(n * kShape.conv.input_floats(), id);
  const std::vector<float> weights = numbers(3 * 5, 7);
  if (Status s = library([&] { return step.convolve(4, x, weights, Activation::kSilu, x); }); !s.ok())
    return s;
  std::vector<float> g(n * 2, 0.9f), beta(n * 2, 0.5f), y(n * kShape.delta.value_floats());
  const std::vector<float> k = numbers(n * 16, id + 1), v = numbers(n * 8, id + 2);
  return library([&] { return step.advance(4, {.q = k, .k = k, .v = v, .g = g, .beta = beta}, y); });
}

class Script {
 public:
  Script() : plan_(make_plan()), store_(StateStore::create(plan_)), other_(StateStore::create(plan_)) {}

  StateStore& store() { return *store_; }
  void drop_all() { rows_.clear(); }

  // Everything that is committed, and what the pools hold.
  std::vector<RowRecords> content() const {
    std::vector<RowRecords> out;
    for (const Row& row : rows_) out.push_back(*row.extract());
    return out;
  }
  std::vector<int> owned() const {
    return {store_->pool_use(0).owned,       store_->delayed_pool_use(0).owned, store_->pool_use(1).owned,
            store_->state_pool_use(0).owned, store_->record_pool_use(0).owned,  store_->live_rows()};
  }

  // One operation, chosen by the numbers of a copy of `sequence`, so that a repetition is the same. (A copy
  // as the argument: clang 14 at -O0 loses the stack of such arguments where an exception passes.)
  Status run(const std::mt19937& sequence) {
    std::mt19937 random = sequence;
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const int kind = pick(12);
    if (rows_.empty() || (kind == 0 && rows_.size() < 4))
      return add(library([&] { return store_->new_row(); }));
    Row& row = rows_[static_cast<std::size_t>(pick(static_cast<int>(rows_.size())))];
    switch (row.length() > 40 ? 1 : kind) {
      case 1: rows_.erase(rows_.begin() + (&row - rows_.data())); return Status();
      case 2: return rows_.size() < 4 ? add(library([&] { return row.fork(); })) : Status();
      case 3: {
        const int length = std::max(row.minimum_length(), row.length() - pick(3));
        return library([&] { return row.truncate(length); });
      }
      case 4: return library([&] { return row.convert(0); });
      case 5: return move(row);
      case 6: return tree(row, pick);
      case 7: return block(row, pick(4));
      default: return linear(pick);
    }
  }

 private:
  Status add(Result<Row> row) {
    if (!row.ok()) return row.status();
    // Room was reserved: the script's own vector never allocates inside an operation.
    rows_.push_back(std::move(*row));
    return Status();
  }
  // Out of the store as records, back in its place; and a copy into another store.
  Status move(Row& row) {
    Result<RowRecords> records = library([&] { return row.extract(); });
    if (!records.ok()) return records.status();
    if (Result<Row> copy = library([&] { return other_->copy(row); }); !copy.ok()) return copy.status();
    if (rows_.size() >= 4) return Status();
    return add(library([&] { return store_->adopt(*records); }));
  }
  template <typename Pick>
  Status tree(Row& row, const Pick& pick) {
    const std::vector<int> parents = {-1, 0, 0, 1, -1};
    const StepRow asked = {.row = &row, .length = 5, .parents = parents};
    Result<Step> step = library([&] { return store_->begin({&asked, 1}); });
    if (!step.ok()) return step.status();
    if (Status s = fill(*step, plan_, row.length()); !s.ok()) return s;
    const std::vector<int> paths[] = {{0, 2}, {0, 1, 3}, {4}, {}};
    const Keep keep(paths[pick(4)]);
    return library([&] { return step->resolve({&keep, 1}); });
  }
  Status block(Row& row, int length) {
    const StepRow asked = {.row = &row, .length = length, .block = true};
    Result<Step> step = library([&] { return store_->begin({&asked, 1}); });
    if (!step.ok()) return step.status();
    return fill(*step, plan_, row.length());
  }
  template <typename Pick>
  Status linear(const Pick& pick) {
    std::vector<Row*> rows;
    std::vector<int> lengths, keep;
    for (Row& row : rows_) {
      rows.push_back(&row);
      lengths.push_back(pick(5));
      keep.push_back(pick(lengths.back() + 1));
    }
    Result<Step> step = library([&] { return store_->begin(rows, lengths); });
    if (!step.ok()) return step.status();
    if (Status s = fill(*step, plan_, rows_[0].length()); !s.ok()) return s;
    return library([&] { return step->resolve(std::span<const int>(keep)); });
  }

  StatePlan plan_;
  Result<StateStore> store_, other_;
  std::vector<Row> rows_ = [] {
    std::vector<Row> rows;
    rows.reserve(8);
    return rows;
  }();
};

TEST(Faults, Invariant2EveryFailingAllocationLeavesTheStateAsItWas) {
  const long before = live_allocations();
  long failures = 0;
  int done = 0;
  {
    Script script;
    std::mt19937 random(7);
    for (int op = 0; op < kOperations; op++) {
      random.discard(20);
      for (long n = 0;; n++) {
        const std::vector<RowRecords> content = script.content();
        const std::vector<int> owned = script.owned();
        fail_allocation(n);
        Status status;
        bool escaped = false;
        try {
          status = script.run(random);
        } catch (const std::bad_alloc&) {
          escaped = true;  // from the script's own vectors
        }
        if (!stop_failing()) {  // done, or refused: a tree that would cross the start of delayed codecs
          done += status.ok() ? 1 : 0;
          break;
        }
        failures++;
        ASSERT_TRUE(escaped || !status.ok()) << "operation " << op << " survived failing allocation " << n;
        if (!escaped) {
          ASSERT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
        }
        ASSERT_EQ(script.content(), content) << "operation " << op << ", allocation " << n;
        ASSERT_EQ(script.owned(), owned) << "operation " << op << ", allocation " << n;
        ASSERT_TRUE(script.store().check().ok());
      }
    }
    script.drop_all();
    for (const int owned : script.owned()) ASSERT_EQ(owned, 0);
  }
  EXPECT_EQ(live_allocations(), before);
  EXPECT_GT(failures, 1000);
  EXPECT_GT(done, kOperations * 3 / 4);
  RecordProperty("failures", static_cast<int>(failures));
  std::printf("%d of %d operations done, %ld failing allocations\n", done, kOperations, failures);
}

}  // namespace
}  // namespace windrow::testing
