// What the state's bookkeeping costs, and that it does not depend on how long the rows are.
//
//   bench_state [rounds]
//
// Rows of 1k .. 256k positions; medians of several rounds. The bytes behind a position are tiny here (one
// layer, one head of 32 dims per group), so that 64 rows of 256k positions fit: what is measured touches
// tables, counts and descriptors, never old positions.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/probe.h"
#include "take.h"
#include "windrow/store.h"

namespace windrow {
namespace {

constexpr int kRows = 64, kWindow = 1024;

constexpr Codec kCodec = Codec::affine(2, 32);  // 14 bytes a vector: 256k positions of 64 rows fit

AttentionGroup group(std::vector<int> layers, int window) {
  return {.layers = std::move(layers), .window = window, .head_dim = 32, .keys = kCodec, .values = kCodec};
}

// Appends `tokens` positions to every row in steps of `chunk`.
void grow(StateStore& store, std::vector<Row>& rows, int tokens, int chunk, int layers) {
  std::vector<float> x;
  for (int done = 0; done < tokens; done += chunk) {
    for (Row& row : rows) {
      Row* one[] = {&row};
      const int n = std::min(chunk, tokens - done);
      Step step = take(store.begin(one, std::vector<int>{n}));
      x.assign(static_cast<std::size_t>(n) * 32, 0.5f);
      for (int layer = 0; layer < layers; layer++) check(step.append(layer, x, x));
      check(step.resolve());
    }
  }
}

// Median seconds of one call of `body` over rounds of `repeats` calls.
template <typename Body>
double seconds(int rounds, int repeats, Body body) {
  std::vector<double> times;
  for (int round = 0; round < rounds; round++) {
    const double start = bench::now();
    for (int i = 0; i < repeats; i++) body();
    times.push_back((bench::now() - start) / repeats);
  }
  return bench::median(times);
}

// 64 rows, 3 sliding groups and a full one.
void bench_steps(int tokens, int rounds) {
  StatePlan plan = take(StatePlan::Builder({.rows = kRows + 1, .tokens = tokens + 4096, .step_tokens = 4096})
                            .attention(group({0}, kWindow))
                            .attention(group({1}, kWindow))
                            .attention(group({2}, 512))
                            .attention(group({3}, kFullWindow))
                            .page_tokens(32)
                            .build());
  StateStore store = take(StateStore::create(plan));
  std::vector<Row> rows;
  for (int r = 0; r < kRows; r++) rows.push_back(take(store.new_row()));
  grow(store, rows, tokens, 4096, 4);
  std::vector<Row*> all;
  for (Row& row : rows) all.push_back(&row);
  const std::vector<int> one(kRows, 1), none(kRows, 0);
  std::vector<float> x(kRows * 32, 0.25f);

  std::vector<double> begin_resolve, append;
  for (int round = 0; round < rounds * 20; round++) {
    double start = bench::now();
    Step step = take(store.begin(all, one));
    double spent = bench::now() - start;
    start = bench::now();
    for (int layer = 0; layer < 4; layer++) check(step.append(layer, x, x));
    append.push_back((bench::now() - start) / (4 * kRows));
    start = bench::now();
    check(step.resolve());
    begin_resolve.push_back(spent + bench::now() - start);
  }
  const double abort = seconds(rounds, 50, [&] { take(store.begin(all, one)).abort(); });
  std::vector<double> joins, evicts;
  for (int round = 0; round < rounds * 20; round++) {  // a fork joins the batch and is evicted again
    double start = bench::now();
    Row row = take(rows[0].fork());
    joins.push_back(bench::now() - start);
    start = bench::now();
    row = Row();
    evicts.push_back(bench::now() - start);
  }
  fmt::print(
      "{:>7} positions, 64 rows x 4 groups: begin + resolve {:>7.0f} ns, begin + abort {:>7.0f} ns; "
      "append {:>5.0f} ns a token and layer; join {:>5.0f} ns, evict {:>5.0f} ns\n",
      tokens, bench::median(begin_resolve) * 1e9, abort * 1e9, bench::median(append) * 1e9,
      bench::median(joins) * 1e9, bench::median(evicts) * 1e9);
}

// One wrapped row of a 26-layer sliding model: fork it, let the fork write, drop it.
void bench_fork(int tokens, int rounds) {
  std::vector<int> layers(26);
  for (int i = 0; i < 26; i++) layers[static_cast<std::size_t>(i)] = i;
  StatePlan plan = take(StatePlan::Builder({.rows = 2, .tokens = tokens + 4096, .step_tokens = 4096})
                            .attention(group(layers, kWindow))
                            .page_tokens(32)
                            .build());
  StateStore store = take(StateStore::create(plan));
  std::vector<Row> rows;
  rows.push_back(take(store.new_row()));
  grow(store, rows, tokens, 4096, 26);
  std::vector<float> x(32, 0.25f);
  std::vector<double> fork, write, drop;
  for (int round = 0; round < rounds * 20; round++) {
    double start = bench::now();
    Row copy = take(rows[0].fork());
    fork.push_back(bench::now() - start);
    Row* one[] = {&copy};
    start = bench::now();
    Step step = take(store.begin(one, std::vector<int>{1}));
    double spent = bench::now() - start;
    for (const int layer : layers) check(step.append(layer, x, x));
    start = bench::now();
    check(step.resolve());
    write.push_back(spent + bench::now() - start);
    start = bench::now();
    copy = Row();
    drop.push_back(bench::now() - start);
  }
  fmt::print(
      "{:>7} positions, 26 layers, W {}: fork {:>5.0f} ns, its first begin + resolve {:>6.0f} ns, drop "
      "{:>5.0f} ns\n",
      tokens, kWindow, bench::median(fork) * 1e9, bench::median(write) * 1e9, bench::median(drop) * 1e9);
}

// Dropping the only owner of a full window.
void bench_drop(int tokens, int rounds) {
  StatePlan plan = take(StatePlan::Builder({.rows = 1, .tokens = tokens, .step_tokens = 4096})
                            .attention(group({0}, kFullWindow))
                            .page_tokens(32)
                            .build());
  StateStore store = take(StateStore::create(plan));
  std::vector<double> drop;
  for (int round = 0; round < rounds; round++) {
    std::vector<Row> rows;
    rows.push_back(take(store.new_row()));
    grow(store, rows, tokens, 4096, 1);
    const double start = bench::now();
    rows.clear();
    drop.push_back(bench::now() - start);
  }
  fmt::print("{:>7} positions, full window: drop {:>5.0f} ns\n", tokens, bench::median(drop) * 1e9);
}

int run(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  for (const int tokens : {1 << 10, 1 << 14, 1 << 18}) bench_steps(tokens, rounds);
  for (const int tokens : {1 << 11, 1 << 14, 1 << 18}) bench_fork(tokens, rounds);
  for (const int tokens : {1 << 10, 1 << 14, 1 << 18}) bench_drop(tokens, rounds);
  return 0;
}

}  // namespace
}  // namespace windrow

int main(int argc, char** argv) { return windrow::run(argc, argv); }
