// Decode speed of the bundled model, and where the time goes.
//
//   bench_decode [rounds]
//
// For 1 and 2 threads and several state codecs: tokens per second of greedy decode (256 tokens after
// a short prompt, sampling and step bookkeeping included), and the shares of matrix products,
// attention, storing keys and values, the elementwise layers, and all else. "rest" is everything but
// products and attention; the aim is at most 30 %. The median round is printed.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "windrow/engine.h"

namespace windrow {
namespace {

constexpr int kNewTokens = 256;
const std::vector<std::int32_t> kPrompt = {2, 300, 301, 302, 303, 304, 305, 306};  // any ids: greedy, no eos

template <class T>
T must(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "bench_decode: {}\n", result.status().message());
    std::exit(1);
  }
  return std::move(*result);
}

struct Round {
  double seconds = 0;
  int steps = 0;
  ForwardProfile profile;
};

Round measure(Generator& generator) {
  Round round;
  GenerateOptions options;
  options.max_tokens = kNewTokens;
  // The first token is chosen after prefill: from there on the profile counts decode only.
  options.on_token = [&](std::int32_t) {
    generator.set_profile(&round.profile);
    return true;
  };
  generator.set_profile(nullptr);
  const Generation g = must(generator.generate(kPrompt, options));
  generator.set_profile(nullptr);
  round.seconds = g.decode_s;
  round.steps = g.decode_steps;
  return round;
}

void report(const Model& model, const Codec& codec, ThreadPool& pool, int rounds) {
  const Limits limits{.rows = 1,
                      .tokens = static_cast<int>(kPrompt.size()) + kNewTokens,
                      .step_tokens = static_cast<int>(kPrompt.size()),
                      .rollback = 0,
                      .total_tokens = 0};
  Generator generator = must(Generator::create(model, KvChoice(codec), limits, pool));
  measure(generator);  // warms caches and pages
  std::vector<Round> all;
  for (int i = 0; i < rounds; i++) all.push_back(measure(generator));
  std::sort(all.begin(), all.end(), [](const Round& a, const Round& b) { return a.seconds < b.seconds; });
  const Round& r = all[all.size() / 2];
  const ForwardProfile& p = r.profile;
  const auto share = [&](double seconds) { return 100 * seconds / r.seconds; };
  const double other = r.seconds - p.products - p.attention - p.state - p.layers;
  fmt::print("{:<8} {:>7} {:>10.0f} {:>9.1f} {:>10.1f} {:>7.1f} {:>8.1f} {:>7.1f} {:>7.1f}{}\n",
             codec.to_string(), pool.threads(), r.steps / r.seconds, share(p.products), share(p.attention),
             share(p.state), share(p.layers), share(other), share(p.state + p.layers + other),
             share(p.state + p.layers + other) <= 30 ? "" : "  ABOVE 30");
}

}  // namespace
}  // namespace windrow

int main(int argc, char** argv) {
  using namespace windrow;  // NOLINT
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  fmt::print("{:<8} {:>7} {:>10} {:>9} {:>10} {:>7} {:>8} {:>7} {:>7}\n", "state", "threads", "tokens/s",
             "products%", "attention%", "state%", "layers%", "other%", "rest%");
  for (const int threads : {1, 2}) {
    ThreadPool pool = must(ThreadPool::create(threads));
    const Model model = must(Model::load(WINDROW_MODELS "/storyteller", pool));
    for (const Codec& codec : {Codec::f32(), Codec::bf16(), Codec::affine(8), Codec::affine(4)}) {
      report(model, codec, pool, rounds);
    }
  }
  return 0;
}
