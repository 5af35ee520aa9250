// The store's thread-safety sentence: threads that work on disjoint rows of one store at the same time get
// what each would get alone. Run under TSan in CI.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "state/program.h"

namespace windrow::testing {
namespace {

constexpr int kThreads = 4, kRounds = 60;

StatePlan make_plan() {
  return *StatePlan::Builder({.rows = 3 * kThreads, .tokens = 1024, .step_tokens = 64, .tree_nodes = 4})
              .attention({.layers = {0, 1},
                          .window = 20,
                          .sinks = 3,
                          .head_dim = 32,
                          .keys = Codec::affine(4, 32),
                          .values = Codec::bf16(),
                          .delayed = Delayed{.start = 50}})
              .attention({.layers = {2}, .kv_heads = 2, .head_dim = 32})
              .page_tokens(16)
              .build();
}

// What one thread does with a row of its own: steps, forks, rollbacks, trees. All choices follow `seed`.
void work(StateStore& store, const StatePlan& plan, Row& row, unsigned seed,
          std::vector<std::thread>* reapers) {
  std::mt19937 random(seed);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < kRounds; round++) {
    if (pick(6) == 0) {
      Result<Row> fork = row.fork();
      ASSERT_TRUE(fork.ok()) << fork.status().message();
      if (pick(2) == 0) row = std::move(*fork);  // go on with either
    }
    if (pick(5) == 0) {
      ASSERT_TRUE(row.truncate(std::max(row.minimum_length(), row.length() - 2)).ok());
    }
    const std::vector<int> parents = {-1, 0, 0};
    StepRow asked = {.row = &row, .length = 1 + pick(5)};
    if (pick(4) == 0 && (row.converted(0) || row.length() < 40)) {
      asked.length = 3;
      asked.parents = parents;
    }
    Result<Step> step = store.begin({&asked, 1});
    ASSERT_TRUE(step.ok()) << step.status().message();
    ASSERT_TRUE(
        append_all(*step, plan, std::vector<int>(static_cast<std::size_t>(asked.length), round + 1)).ok());
    Result<KvRead> read = step->read(0);
    ASSERT_TRUE(read.ok());
    const std::vector<int> path = {0, 2};
    const Keep keep = asked.parents.empty() ? Keep(pick(asked.length + 1)) : Keep(path);
    ASSERT_TRUE(step->resolve({&keep, 1}).ok());
    // A read may be given back by another thread, at any time.
    if (pick(8) == 0 && reapers != nullptr) {
      reapers->emplace_back(
          [lease = std::make_shared<KvRead>(std::move(*read))]() mutable { lease.reset(); });
    }
  }
}

TEST(Concurrent, StepsOnDisjointRowsOfOneStoreEqualSerialOnes) {
  const StatePlan plan = make_plan();
  std::vector<RowRecords> serial;
  for (int mode = 0; mode < 2; mode++) {
    StateStore store = std::move(*StateStore::create(plan));
    std::vector<Row> rows;
    // All start as forks of one row, so that they share pages.
    rows.push_back(std::move(*store.new_row()));
    Row* first[] = {&rows[0]};
    Result<Step> step = store.begin(first, std::vector<int>{37});
    ASSERT_TRUE(append_all(*step, plan, std::vector<int>(37, 99)).ok() && step->resolve().ok());
    while (rows.size() < kThreads) rows.push_back(std::move(*rows[0].fork()));
    if (mode == 0) {
      for (int t = 0; t < kThreads; t++)
        work(store, plan, rows[static_cast<std::size_t>(t)], 100u + t, nullptr);
      for (const Row& row : rows) serial.push_back(*row.extract());
      continue;
    }
    std::vector<std::vector<std::thread>> reapers(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; t++) {
      threads.emplace_back([&, t] {
        const auto i = static_cast<std::size_t>(t);
        work(store, plan, rows[i], 100u + static_cast<unsigned>(t), &reapers[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& some : reapers) {
      for (std::thread& thread : some) thread.join();
    }
    ASSERT_TRUE(store.check().ok());
    for (std::size_t t = 0; t < kThreads; t++) {
      const RowRecords got = *rows[t].extract();
      ASSERT_EQ(got.length, serial[t].length);
      for (std::size_t layer = 0; layer < got.layers.size(); layer++) {
        const LayerRecords &a = got.layers[layer], &b = serial[t].layers[layer];
        EXPECT_TRUE(a == b) << "row " << t << " layer " << layer << ": " << a.begin << " .. " << a.end << ", "
                            << b.begin << " .. " << b.end;
      }
    }
    rows.clear();
    EXPECT_EQ(store.live_rows(), 0);
    for (int g = 0; g < plan.group_count(); g++) EXPECT_EQ(store.pool_use(g).owned, 0);
  }
}

}  // namespace
}  // namespace windrow::testing
