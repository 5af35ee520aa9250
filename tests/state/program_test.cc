// Invariants 2, 3, 5 and 6 and contract rows C4, C14, C17, C19, C31 over random and exhaustive
// programs of {new, fork, drop, truncate, begin + append + read + resolve | abort}.
#include "state/program.h"
#include "support/sanitized.h"

#include <functional>
#include <random>

namespace windrow::testing {
namespace {

StatePlan small_plan(Limits limits, int window, Codec codec, int page_tokens) {
  Result<StatePlan> plan = StatePlan::Builder(limits)
                               .attention({.layers = {0, 2},
                                           .window = window,
                                           .kv_heads = 2,
                                           .head_dim = 32,
                                           .keys = codec,
                                           .values = Codec::bf16()})
                               .attention({.layers = {1},
                                           .kv_heads = 1,
                                           .head_dim = 32,
                                           .value_dim = 64,
                                           .keys = Codec::f32(),
                                           .values = codec})
                               .page_tokens(page_tokens)
                               .build();
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *plan;
}

// One random operation; `draw(n)` gives a number in [0, n).
void random_operation(Machine& m, const StatePlan& plan, const std::function<int(int)>& draw) {
  const int rows = m.rows();
  switch (rows == 0 ? 0 : draw(10)) {
    case 0: return m.new_row();
    case 1: return m.fork(draw(rows));
    case 2:
      if (rows > 1) m.drop(draw(rows));
      return;
    case 3: {
      const int r = draw(rows), length = m.row(r).length();
      return m.truncate(r, std::max(0, length - draw(plan.limits().rollback + 4)));
    }
    default: break;
  }
  std::vector<int> which, lengths, keep;
  const bool abort = draw(5) == 0;
  int left = plan.limits().step_tokens;
  for (int r = 0; r < rows; r++) {
    if (draw(3) == 0) continue;
    const int room = std::min(left, plan.limits().tokens - m.row(r).length());
    const int n = std::min(room, draw(4) == 0 ? draw(plan.limits().step_tokens + 1) : draw(4));
    left -= n;
    which.push_back(r);
    lengths.push_back(n);
    keep.push_back(abort ? -1 : draw(3) == 0 ? draw(n + 1) : n);
  }
  m.step(which, lengths, keep);
}

TEST(StateProgram, RandomProgramsMatchTheTokenLists) {
  std::mt19937 random(20261129);
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<std::uint32_t>(n)); };
  for (int program = 0; program < 120; program++) {
    Limits limits;
    limits.rows = 1 + draw(5);
    limits.tokens = 40 + draw(120);
    limits.step_tokens = 1 + draw(50);
    limits.rollback = draw(3) * draw(9);
    const int window = 1 + draw(40);
    const Codec codec = draw(2) ? Codec::affine(4, 32) : Codec::affine(3, 32, DType::kF32);
    const StatePlan plan = small_plan(limits, window, codec, draw(2) ? 16 : 32);
    Machine m(plan, {.poison = draw(2) == 0});
    for (int i = 0; i < 40; i++) {
      random_operation(m, plan, draw);
      if (::testing::Test::HasFatalFailure()) {
        FAIL() << "program " << program << " operation " << i << " window " << window;
      }
    }
    m.check();
    while (m.rows() > 0) m.drop(0);
    m.check();
    if (::testing::Test::HasFatalFailure()) FAIL() << "program " << program << " at its end";
  }
}

// Every program of four operations over two rows, with lengths around the page size, so that
// every order of fork, write, cut and drop at a page edge is met.
TEST(StateProgram, ExhaustiveShortProgramsAtPageEdges) {
  const Limits limits{.rows = 2, .tokens = 64, .step_tokens = 32, .rollback = 2};
  const StatePlan plan = small_plan(limits, 5, Codec::affine(2, 32), 16);
  const std::vector<std::function<void(Machine&)>> operations = {
      [](Machine& m) { m.new_row(); },
      [](Machine& m) { m.fork(0); },
      [](Machine& m) {
        m.drop(m.rows() - 1);
        if (m.rows() == 0) m.new_row();
      },
      [](Machine& m) { m.truncate(0, std::max(0, m.row(0).length() - 2)); },
      [](Machine& m) { m.step({0}, {15}, {15}); },
      [](Machine& m) { m.step({0}, {2}, {1}); },
      [](Machine& m) { m.step({0}, {17}, {16}); },
      [](Machine& m) { m.step({0}, {3}, {-1}); },
      [](Machine& m) {
        m.rows() > 1 ? m.step({1, 0}, {1, 3}, {1, 0}) : m.step({0}, {0}, {0});
      },
  };
  const int n = static_cast<int>(operations.size());
  int programs = 0;
  const int stride = kSanitized ? 10 : 1;  // prime to n: each operation at each place, instrumented or not
  for (int code = 0; code < n * n * n * n; code += stride, programs++) {
    Machine m(plan, {.poison = true});
    m.new_row();
    for (int rest = code, i = 0; i < 4; i++, rest /= n) operations[static_cast<std::size_t>(rest % n)](m);
    m.check();
    if (::testing::Test::HasFatalFailure()) FAIL() << "program " << code;
  }
  EXPECT_EQ(programs, kSanitized ? 657 : 6561);
}

// Invariant 3 / C31: byte equality of a row that had rejections and one that never did.
TEST(StateProgram, ResolvedRowEqualsOneFedOnlyTheKeptTokens) {
  const StatePlan plan =
      small_plan({.rows = 2, .tokens = 200, .step_tokens = 60, .rollback = 4}, 9, Codec::affine(4, 32), 16);
  Result<StateStore> store = StateStore::create(plan, {.poison = true});
  Result<Row> speculative = store->new_row(), plain = store->new_row();
  std::mt19937 random(5);
  int next = 1000;
  for (int round = 0; round < 40; round++) {
    const int n = 1 + static_cast<int>(random() % 5),
              kept = static_cast<int>(random() % static_cast<unsigned>(n + 1));
    std::vector<int> ids;
    for (int i = 0; i < n; i++) ids.push_back(next++);
    Row* rows[] = {&*speculative};
    Result<Step> step = store->begin(rows, std::vector<int>{n});
    ASSERT_TRUE(append_all(*step, plan, ids).ok());
    ASSERT_TRUE(step->resolve({kept}).ok());
    ids.resize(static_cast<std::size_t>(kept));
    Row* others[] = {&*plain};
    Result<Step> reference = store->begin(others, std::vector<int>{kept});
    ASSERT_TRUE(append_all(*reference, plan, ids).ok());
    ASSERT_TRUE(reference->resolve().ok());
    for (const int layer : all_layers(plan)) {
      ASSERT_EQ(*speculative->extract(layer), *plain->extract(layer)) << "round " << round;
    }
    ASSERT_EQ(speculative->minimum_length(), plain->minimum_length());
    ASSERT_EQ(speculative->bytes(), plain->bytes());
  }
}

// Invariant 6 and the acceptance line: at 20 W tokens a row holds what the plan projects.
TEST(StateProgram, LongRowsHoldExactlyTheProjectedBytes) {
  for (const int window : {1, 5, 16, 33}) {
    const StatePlan plan =
        small_plan({.rows = 2, .tokens = 20 * 33 + 7, .step_tokens = 48}, window, Codec::affine(4, 32), 16);
    Result<StateStore> store = StateStore::create(plan);
    EXPECT_EQ(store->bytes(), plan.bytes());
    Result<Row> row = store->new_row();
    std::mt19937 random(9);
    while (row->length() < 20 * window) {
      const int n = std::min<int>(1 + static_cast<int>(random() % 48), 20 * window - row->length());
      Row* rows[] = {&*row};
      Result<Step> step = store->begin(rows, std::vector<int>{n});
      ASSERT_TRUE(step.ok());
      ASSERT_TRUE(append_all(*step, plan, std::vector<int>(static_cast<std::size_t>(n), 1)).ok());
      ASSERT_TRUE(step->resolve().ok());
      ASSERT_EQ(row->bytes(), plan.projected_bytes(row->length())) << row->length();
      std::size_t owned = 0;
      for (int g = 0; g < plan.group_count(); g++) {
        owned += static_cast<std::size_t>(store->pool_use(g).owned) * plan.group_bytes(g).page;
        ASSERT_LE(store->pool_use(g).peak, plan.group_bytes(g).pages);
      }
      ASSERT_EQ(owned, row->bytes());
    }
    EXPECT_LE(store->pool_use(0).owned, plan.group_bytes(0).pages_per_row);
  }
}

}  // namespace
}  // namespace windrow::testing
