// How fast a session is saved and restored, with the file in the page cache.
//
//   bench_session [rounds] [tokens]
//
// One row of the shape of gemma3-1b (22 sliding layers of window 512 and 4 full ones, 1 kv head of 256), bf16
// and q4, and one of full attention alone, where nearly all bytes are in large tensors. Medians; GB/s of the
// file's bytes, from opening it to a row that can be read, every check included. The store's memory was used
// before, as that of a running server was. "a core" is one thread against its processor time, which other
// load on the machine does not stretch. `./dev bench session`.
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/probe.h"
#include "take.h"
#include "windrow/session.h"
#include "windrow/store.h"

namespace windrow {
namespace {

const SessionIdentity kIdentity{
    .model = "bench", .tokenizer = "", .rope = "", .adapter = "", .numerics = "1", .tenant = ""};

StatePlan gemma_plan(const Codec& codec, int tokens) {
  std::vector<int> sliding, full;
  for (int layer = 0; layer < 26; layer++) (layer % 6 == 5 ? full : sliding).push_back(layer);
  return take(
      StatePlan::Builder({.rows = 1, .tokens = tokens, .step_tokens = 512})
          .attention({.layers = sliding, .window = 512, .head_dim = 256, .keys = codec, .values = codec})
          .attention({.layers = full, .head_dim = 256, .keys = codec, .values = codec})
          .build());
}

StatePlan full_plan(const Codec& codec, int tokens) {
  std::vector<int> layers;
  for (int layer = 0; layer < 16; layer++) layers.push_back(layer);
  return take(
      StatePlan::Builder({.rows = 1, .tokens = tokens, .step_tokens = 512})
          .attention({.layers = layers, .kv_heads = 8, .head_dim = 128, .keys = codec, .values = codec})
          .build());
}

Row grown_row(StateStore& store, int tokens) {
  Row row = take(store.new_row());
  const StatePlan& plan = store.plan();
  std::vector<float> x;
  unsigned seed = 1;
  for (int done = 0; done < tokens; done += 512) {
    const int n = std::min(512, tokens - done);
    Row* const rows[] = {&row};
    Step step = take(store.begin(rows, std::vector<int>{n}));
    for (int g = 0; g < plan.group_count(); g++) {
      const AttentionGroup& group = plan.group(g);
      x.resize(static_cast<std::size_t>(n) * static_cast<std::size_t>(group.kv_heads * group.head_dim));
      for (float& v : x)
        v = static_cast<float>(static_cast<int>((seed = seed * 1664525 + 1013904223) >> 8 & 0xffff)) / 65536;
      for (const int layer : group.layers) check(step.append(layer, x, x));
    }
    check(step.resolve());
  }
  return row;
}

// Of all threads: what a busy machine does not stretch.
double cpu_seconds() {
  timespec t = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Of what `body` says it took.
template <typename Body>
double median_seconds(int rounds, const Body& body) {
  std::vector<double> times;
  for (int i = 0; i < rounds; i++) times.push_back(body());
  return bench::median(std::move(times));
}

void measure(const char* name, const StatePlan& plan, int tokens, int rounds) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("bench-{}.session", getpid())).string();
  StateStore store = take(StateStore::create(plan));
  std::size_t bytes = 0;
  double save_s = 0;
  {
    const Row row = grown_row(store, tokens);
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens), 7);
    save_s = median_seconds(rounds, [&] {
      const double start = bench::now();
      SessionWriter writer = take(SessionWriter::create(plan, kIdentity));
      check(writer.add(row, ids));
      check(writer.save(path));
      return bench::now() - start;
    });
    bytes = std::filesystem::file_size(path);
  }
  ThreadPool pool = take(ThreadPool::create(ThreadPool::available()));
  const auto restore = [&](SessionCheck how, ThreadPool* threads, double (*clock)()) {
    return median_seconds(rounds, [&] {
      const double start = clock();
      const SessionFile file = take(SessionFile::open(path));
      const std::vector<Row> rows = take(file.restore(store, kIdentity, how, threads));
      return clock() - start;
    });
  };
  const auto rate = [&](double s) { return static_cast<double>(bytes) / s / 1e9; };
  fmt::print("{:<20} {:>6.1f} MB  save {:>5.2f} ", name, static_cast<double>(bytes) / 1e6, rate(save_s));
  for (const auto& [how, what] : {std::pair{SessionCheck::kXxh3, "XXH3"}, {SessionCheck::kAll, "SHA-256"}}) {
    const double wall = restore(how, &pool, &bench::now), cpu = restore(how, nullptr, &cpu_seconds);
    fmt::print("  {}: {:>5.2f} ({:.2f} ms), a core {:>5.2f}", what, rate(wall), wall * 1e3, rate(cpu));
  }
  fmt::print("\n");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace windrow

int main(int argc, char** argv) {
  using namespace windrow;  // NOLINT
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  const int tokens = argc > 2 ? std::clamp(std::atoi(argv[2]), 512, 1 << 17) : 4096;
  fmt::print("{} tokens, {} threads; GB/s of the file's bytes, medians of {}\n", tokens,
             ThreadPool::available(), rounds);
  for (const auto& [name, codec] : {std::pair{"bf16", Codec::bf16()}, {"q4", Codec::affine(4)}}) {
    measure(fmt::format("gemma3-1b {}", name).c_str(), gemma_plan(codec, tokens), tokens, rounds);
    measure(fmt::format("16 full layers {}", name).c_str(), full_plan(codec, tokens), tokens, rounds);
  }
  return 0;
}
