// The dense recompute against MLX's f64 attention references (tests/data/mlx/G4_attention).
#include "oracle/dense.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "oracle/trace.h"
#include "windrow/plan.h"

namespace windrow::oracle {
namespace {

TEST(DenseVisible, IsTheNewestWindowAndTheSinks) {
  EXPECT_EQ(visible_positions(0, 1), (Ints{0}));
  EXPECT_EQ(visible_positions(5, 1), (Ints{5}));
  EXPECT_EQ(visible_positions(5, 3), (Ints{3, 4, 5}));
  EXPECT_EQ(visible_positions(5, 6), (Ints{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(visible_positions(5, 100), (Ints{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(visible_positions(2, kFullWindow), (Ints{0, 1, 2}));
  EXPECT_EQ(visible_positions(9, 2, 3), (Ints{0, 1, 2, 8, 9}));
  EXPECT_EQ(visible_positions(1, 2, 3), (Ints{0, 1}));  // never beyond the query
}

// Queries stand at the end of the row; mask: none, causal, or the window of the case.
TEST(DenseAttend, EqualsTheF64ReferenceWithAndWithoutSinkLogits) {
  int compared = 0, files = 0;
  for (const std::string& name : Trace::names("G4_attention")) {
    if (!name.starts_with("sdpa_")) continue;
    files++;
    const Trace trace = Trace::load("G4_attention", name);
    const Kv all{trace.tensor("k"), trace.tensor("v")};
    const std::vector<float> sink_logits = trace.numbers("sinks");
    const int q_heads = trace.json().at("n_q");
    for (const auto& step : trace.steps()) {
      const std::string mask = step.at("mask");
      if (mask != "none" && mask != "causal" && mask != "window") continue;
      const int n = step.at("N"),
                window = mask == "window" ? trace.json().at("window").get<int>() : kFullWindow;
      if (mask == "none" && n > 1) continue;  // not a causal read
      SCOPED_TRACE(name + " " + step.at("out").get<std::string>());
      const Tensor q = trace.tensor(fmt::format("q{}", n));
      // f32 files hold MLX's own f32 result, within 2e-6 of f64; bf16 files an f64 reference.
      const Tensor want = trace.tensor(step.contains("ref") ? step.at("ref") : step.at("out"));
      AttendParams params{.scale = trace.json().at("scale"), .sink_logits = {}};
      if (step.at("sinks").get<bool>()) params.sink_logits = sink_logits;
      for (int b = 0; b < q.batch; b++) {
        for (int i = 0; i < n; i++) {
          std::vector<float> query;
          for (int h = 0; h < q_heads; h++)
            query.insert(query.end(), q.at(b, h, i).begin(), q.at(b, h, i).end());
          const int position = all.columns() - n + i;
          const auto got =
              attend(all.take_rows({b}), visible_positions(position, window), query, q_heads, params);
          for (int h = 0; h < q_heads; h++) {
            for (int d = 0; d < want.dim; d++, compared++) {
              ASSERT_NEAR(got[h * want.dim + d], want.at(b, h, i)[d], 4e-6);
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(files, 8);
  EXPECT_GT(compared, 100000);
}

TEST(DenseAttend, SoftcapBoundsTheLogits) {
  Kv row{Tensor(1, 1, 2, 1), Tensor(1, 1, 2, 1)};
  row.k.values = {1000, -1000};
  row.v.values = {1, 0};
  const float q = 1;
  const double capped = attend(row, {0, 1}, {&q, 1}, 1, {.scale = 1, .softcap = 0.5, .sink_logits = {}})[0];
  EXPECT_NEAR(capped, 1 / (1 + std::exp(-1.0)), 1e-12);  // logits 0.5 and -0.5
}

}  // namespace
}  // namespace windrow::oracle
