// Rows with content for tests of sessions: a plan of all kinds of groups, and steps that feed token ids.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "state/program.h"
#include "windrow/session.h"
#include "windrow/store.h"

namespace windrow::testing {

inline constexpr RecurrentShape kRowShape = {
    {.key_heads = 1, .value_heads = 2, .key_dim = 16, .value_dim = 4}, {.channels = 5, .taps = 3}};

struct PlanOptions {
  Limits limits = {.rows = 4, .tokens = 4096, .step_tokens = 512, .rollback = 2};
  int page_tokens = 16;
  int window = 40;
  int sinks = 3;
  int delayed_start = 30;  // of the second group
  bool recurrent = true;
};

// Four attention groups (quantized sliding with sinks, delayed, full q4 with a sharer, plain types) and one
// of recurrent layers.
inline StatePlan session_plan(const PlanOptions& o = {}) {
  StatePlan::Builder builder(o.limits);
  builder
      .attention({.layers = {0, 1},
                  .window = o.window,
                  .sinks = o.sinks,
                  .kv_heads = 2,
                  .head_dim = 32,
                  .keys = Codec::affine(8, 32),
                  .values = Codec::affine(3, 32, DType::kF16)})
      .attention({.layers = {2},
                  .window = o.window * 2,
                  .head_dim = 32,
                  .keys = Codec::affine(4, 32),
                  .values = Codec::f16(),
                  .delayed = Delayed{.start = o.delayed_start}})
      .attention({.layers = {3},
                  .kv_heads = 2,
                  .head_dim = 64,
                  .value_dim = 32,
                  .keys = Codec::affine(4, 64, DType::kF32),
                  .values = Codec::affine(2, 32),
                  .sharers = {{4, 3}}})
      .attention({.layers = {5}, .head_dim = 16, .keys = Codec::bf16(), .values = Codec::f32()});
  if (o.recurrent) builder.recurrent({.layers = {6, 7}, .shape = kRowShape});
  Result<StatePlan> plan = builder.page_tokens(o.page_tokens).build();
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *plan;
}

inline std::vector<float> state_numbers(std::span<const int> ids, std::size_t each, int salt) {
  std::vector<float> out;
  for (const int id : ids) {
    for (std::size_t i = 0; i < each; i++)
      out.push_back(token_number(id, salt, 0, static_cast<int>(i), true) / 8);
  }
  return out;
}

// Feeds ids to a row in one step, all layers. The numbers of a token depend on its id alone.
inline Status feed(StateStore& store, Row& row, std::span<const int> ids) {
  Row* const rows[] = {&row};
  const int lengths[] = {static_cast<int>(ids.size())};
  Result<Step> step = store.begin(rows, lengths);
  if (!step.ok()) return step.status();
  const StatePlan& plan = store.plan();
  if (Status s = append_all(*step, plan, std::vector<int>(ids.begin(), ids.end())); !s.ok()) return s;
  for (int g = 0; g < plan.recurrent_count(); g++) {
    for (const int layer : plan.recurrent(g).layers) {
      std::vector<float> x = state_numbers(ids, kRowShape.conv.input_floats(), layer);
      const std::vector<float> weights = state_numbers(std::vector<int>{1, 2, 3}, 5, layer);
      if (Status s = step->convolve(layer, x, weights, Activation::kSilu, x); !s.ok()) return s;
      const std::vector<float> g1(ids.size() * 2, 0.9f), beta(ids.size() * 2, 0.5f);
      const std::vector<float> k = state_numbers(ids, 16, layer + 1), v = state_numbers(ids, 8, layer + 2);
      std::vector<float> y(ids.size() * kRowShape.delta.value_floats());
      if (Status s = step->advance(layer, {.q = k, .k = k, .v = v, .g = g1, .beta = beta}, y); !s.ok())
        return s;
    }
  }
  return step->resolve();
}

inline std::vector<int> ids_from(int first, int count) {
  std::vector<int> ids;
  for (int i = 0; i < count; i++) ids.push_back(first + i);
  return ids;
}

// A row that was fed `ids` in steps of `chunk`.
inline Row fed_row(StateStore& store, const std::vector<int>& ids, std::size_t chunk = 64) {
  Result<Row> row = store.new_row();
  EXPECT_TRUE(row.ok()) << row.status().message();
  for (std::size_t done = 0; done < ids.size(); done += chunk) {
    const auto part = std::span(ids).subspan(done, std::min(chunk, ids.size() - done));
    const Status s = feed(store, *row, part);
    EXPECT_TRUE(s.ok()) << s.message();
  }
  return std::move(*row);
}

inline const SessionIdentity& test_identity() {
  static const SessionIdentity identity{.model = "0123abcd",
                                        .tokenizer = "",
                                        .rope = "{\"rope_theta\":10000.0}",
                                        .adapter = "",
                                        .numerics = kNumericVersion,
                                        .tenant = "tests"};
  return identity;
}

// Everything that a row's future depends on, and how far it can go back.
inline void expect_equal_rows(const Row& a, const Row& b) {
  ASSERT_EQ(a.length(), b.length());
  EXPECT_EQ(a.minimum_length(), b.minimum_length());
  const Result<RowRecords> x = a.extract_retained(), y = b.extract_retained();
  ASSERT_TRUE(x.ok() && y.ok());
  EXPECT_TRUE(*x == *y);
}

}  // namespace windrow::testing
