// AttentionKernels over real reads: plan, store, steps.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/fixture.h"
#include "windrow/attention.h"
#include "windrow/store.h"

namespace windrow::testing {
namespace {

constexpr int kDim = 64, kValueDim = 32, kQHeads = 6, kKvHeads = 2;

StatePlan plan_of(Codec keys, int window = 20) {
  Result<StatePlan> plan =
      StatePlan::Builder({.rows = 3, .tokens = 400, .step_tokens = 64, .rollback = 4})
          .attention({.layers = {0, 2},
                      .window = window,
                      .kv_heads = kKvHeads,
                      .head_dim = kDim,
                      .value_dim = kValueDim,
                      .keys = keys,
                      .values = Codec::affine(4, 32)})
          .attention({.layers = {1}, .kv_heads = kKvHeads, .head_dim = kDim, .value_dim = kValueDim})
          .page_tokens(16)
          .build();
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *std::move(plan);
}

std::vector<float> numbers(int content, std::span<const std::int32_t> positions, int heads, int dim) {
  std::vector<float> out;
  for (const int p : positions) {
    for (int h = 0; h < heads; h++) {
      for (int d = 0; d < dim; d++) {
        out.push_back(number(static_cast<std::uint64_t>(content), static_cast<std::uint64_t>(p),
                             static_cast<std::uint64_t>(h), static_cast<std::uint64_t>(d)));
      }
    }
  }
  return out;
}

TEST(AttentionKernels, AttendOverAPoisonedStoreAsTheReference) {
  const StatePlan plan = plan_of(Codec::affine(4));
  Result<AttentionKernels> kernels = AttentionKernels::select(plan);
  ASSERT_TRUE(kernels.ok()) << kernels.status().message();
  EXPECT_FALSE(kernels->target().empty());
  Result<StateStore> store = StateStore::create(plan, {.poison = true});
  ASSERT_TRUE(store.ok()) << store.status().message();
  Result<Row> a = store->new_row(), b = store->new_row();
  ASSERT_TRUE(a.ok() && b.ok());
  Result<ThreadPool> pool = ThreadPool::create(2);
  ASSERT_TRUE(pool.ok());
  const AttentionParams params{.q_heads = kQHeads, .scale = 0.125f};
  Row* const rows[] = {&*a, &*b};
  for (const auto& [first, second] :
       {std::pair{30, 1}, std::pair{1, 33}, std::pair{40, 0}, std::pair{1, 1}, std::pair{7, 3}}) {
    const int lengths[] = {first, second};
    Result<Step> step = store->begin(rows, lengths);
    ASSERT_TRUE(step.ok()) << step.status().message();
    for (const int layer : {0, 1, 2}) {
      ASSERT_TRUE(step->append(layer, numbers(layer, step->positions(), kKvHeads, kDim),
                               numbers(layer + 10, step->positions(), kKvHeads, kValueDim))
                      .ok());
      Result<KvRead> read = step->read(layer);
      ASSERT_TRUE(read.ok()) << read.status().message();
      const std::vector<float> q = numbers(layer + 20, step->positions(), kQHeads, kDim);
      std::vector<float> out(q.size() / kDim * kValueDim), expected(out.size());
      const Status reference = attend_reference(*read, q, params, expected);
      ASSERT_TRUE(reference.ok()) << reference.message();
      const Status status = kernels->attend(*read, q, params, out, &*pool);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_LE(relative_error(out, expected), 2e-5);
    }
    ASSERT_TRUE(step->resolve().ok());
  }
}

TEST(AttentionKernels, RefuseAReadOfAnotherPlan) {
  const StatePlan plan = plan_of(Codec::affine(4));
  Result<StateStore> store = StateStore::create(plan);
  ASSERT_TRUE(store.ok());
  Result<Row> row = store->new_row();
  Row* const rows[] = {&*row};
  const int lengths[] = {1};
  Result<Step> step = store->begin(rows, lengths);
  ASSERT_TRUE(step.ok());
  ASSERT_TRUE(
      step->append(0, std::vector<float>(kKvHeads * kDim), std::vector<float>(kKvHeads * kValueDim)).ok());
  Result<KvRead> read = step->read(0);
  ASSERT_TRUE(read.ok());
  std::vector<float> q(kQHeads * kDim), out(kQHeads * kValueDim);
  const AttentionParams params{.q_heads = kQHeads};
  for (const StatePlan& other : {plan_of(Codec::affine(8)), plan_of(Codec::affine(4), 21)}) {
    const Status status = AttentionKernels::select(other)->attend(*read, q, params, out, nullptr);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message().rfind("attention: layer 0 of another plan: ", 0), 0u) << status.message();
  }
  read->layer = 9;
  EXPECT_EQ(AttentionKernels::select(plan)->attend(*read, q, params, out, nullptr).message(),
            "attention: layer 9 is not in the plan");
}

}  // namespace
}  // namespace windrow::testing
