// The gated delta rule: nanoseconds per token and head at key_dim = value_dim = 128, against what memory
// and arithmetic allow in the same run.
//
//   bench_gated_delta [threads]
//
// decode    one token a layer, the layers (32 heads, 2 MiB, as Qwen3-Next's) far beyond the caches. A state
// is
//           read and written once, so the floor is the time in which the same threads flip a bit of every
//           number of such a layer in place.
// replay    the same without outputs.
// chunk T   T tokens through one head of each layer, which stays in the caches. The floor is arithmetic: 7
// operations a number of
//           the state (4 multiplications, 3 additions; 5 without outputs) at one a lane and issue slot, that
//           is half of the measured rate of fma flops. Cores with separate adders may stay below it.
//
// A sample is short (about half a millisecond) and the median of many counts, so that a busy machine
// takes its time from few of them.
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "base/probe.h"
#include "windrow/gated_delta.h"

namespace windrow {
namespace {

constexpr int kDim = 128, kHeads = 32, kLayers = 64;
constexpr std::size_t kMatrix = std::size_t{kDim} * kDim;

struct Bench {
  ThreadPool& pool;
  float* states;  // [kLayers, kHeads, kDim, kDim]
  double flops;   // unfused operations a second of one thread
};

struct Inputs {
  Inputs(const GatedDeltaShape& shape, std::size_t count)
      : q(count * shape.key_floats(), 0.05f),
        k(count * shape.key_floats(), 0.08f),
        v(count * shape.value_floats(), 0.3f),
        g(count * shape.decay_floats(), 0.97f),
        beta(count * shape.beta_floats(), 0.5f),
        y(v.size()),
        tokens{count, q.data(), k.data(), v.data(), g.data(), beta.data()} {}

  std::vector<float> q, k, v, g, beta, y;
  GatedDeltaTokens tokens;
};

// Median seconds of body(layer, head) over `heads` heads of one layer, layer after layer.
template <typename Body>
double layer_seconds(const Bench& bench, int heads, const Body& body) {
  std::vector<double> seconds;
  for (int sample = 0; sample < 4 * kLayers; sample++) {
    float* layer = bench.states + static_cast<std::size_t>(sample % kLayers) * kHeads * kMatrix;
    const double start = bench::now();
    bench.pool.parallel_for(static_cast<std::size_t>(heads),
                            [&](std::size_t h, int) { body(layer, static_cast<int>(h)); });
    seconds.push_back(bench::now() - start);
  }
  return bench::median(seconds);
}

void report(const char* name, const Bench& bench, DecayGate gate, std::size_t count, int heads, bool output) {
  const GatedDeltaShape shape = {kHeads / 2, kHeads, kDim, kDim, gate};
  Inputs in(shape, count);
  const auto advance = [&](float* layer, int head) {
    gated_delta_advance(shape, in.tokens, {head, head + 1}, layer, layer, output ? in.y.data() : nullptr);
  };
  const auto touch = [](float* layer, int head) {
    auto* words = reinterpret_cast<std::uint32_t*>(layer + static_cast<std::size_t>(head) * kMatrix);
    for (std::size_t i = 0; i < kMatrix; i++) words[i] ^= 1;
    bench::keep(*words);
  };
  const double scale = 1e9 * bench.pool.threads() / (heads * static_cast<double>(count));  // ns of one thread
  const double took = layer_seconds(bench, heads, advance) * scale;
  const double memory = layer_seconds(bench, heads, touch) * scale;
  const double arithmetic = (output ? 7.0 : 5.0) * static_cast<double>(kMatrix) / bench.flops * 1e9;
  const bool by_memory = memory > arithmetic;
  const double floor = by_memory ? memory : arithmetic;
  fmt::print("{:<7} {}  T {:>3}: {:>6.0f} ns/token/head, {:.2f} x the floor of {:>5.0f} ({})\n", name,
             gate == DecayGate::kScalar ? "scalar" : "vector", count, took, took / floor, floor,
             by_memory ? "memory" : "arithmetic");
}

int run(int threads) {
  Result<ThreadPool> pool = ThreadPool::create(threads);
  Result<Arena> arena = Arena::create(kLayers * kHeads * kMatrix * sizeof(float), "states");
  for (const Status& status : {pool.status(), arena.status()}) {
    if (!status.ok()) return fmt::print(stderr, "bench_gated_delta: {}\n", status.message()), 1;
  }
  const Bench bench = {*pool, reinterpret_cast<float*>(arena->data()),
                       bench::fma_flops_per_second(*pool) / threads / 2};
  fmt::print("{} threads\n", threads);
  for (const DecayGate gate : {DecayGate::kScalar, DecayGate::kVector}) {
    report("decode", bench, gate, 1, kHeads, true);
    report("replay", bench, gate, 1, kHeads, false);
    for (const std::size_t count : {4, 16, 256}) report("chunk", bench, gate, count, threads, true);
  }
  return 0;
}

}  // namespace
}  // namespace windrow

int main(int argc, char** argv) { return windrow::run(argc > 1 ? std::atoi(argv[1]) : 1); }
