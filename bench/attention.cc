// Attention over paged state against what memory and f32 units allow, and against the straightforward way.
//
//   bench_attention [--threads N] [--rounds N] [--json FILE] [--svg FILE] [--codecs q4,q8,...] [FILTER]
//
// Every case runs with every storage, with our own kernel over f16 and as dense f32 attention by OpenBLAS
// (dense_attention.h), all of them in turn, round after round, a short probe of the machine between any two:
//   floor    = max(bytes / read rate, flops / fma rate), rates of the probes just before and after
//   multiple = time / floor; medians over the rounds.
// Cold: each call visits another layer of a state that no cache holds, its pages in random order.
// `./dev bench attention` draws docs/img/attention.svg; docs/performance.md explains the figures.
#include <fmt/format.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attention_state.h"
#include "chart.h"
#include "dense_attention.h"
#include "base/probe.h"

namespace windrow::bench {
namespace {

struct Flags {
  int threads = ThreadPool::available();
  int rounds = 9;
  std::string json, svg, filter, codecs = "q4,q8,bf16";
};

std::vector<Case> all_cases() {
  return {{"nq16 nkv8 D128 T512", 16, 8, 128, 512, false, 1, 1},
          {"nq16 nkv8 D128 T1024", 16, 8, 128, 1024, false, 1, 1},
          {"nq16 nkv8 D128 T4096", 16, 8, 128, 4096, false, 1, 1},
          {"nq16 nkv8 D256 T1024", 16, 8, 256, 1024, false, 1, 1},
          {"nq8 nkv4 D256 T1024 L1", 8, 4, 256, 1024, false, 1, 1},
          {"nq8 nkv4 D256 T1024 L8", 8, 4, 256, 1024, false, 1, 8},
          {"nq8 nkv4 D256 T1024 L16", 8, 4, 256, 1024, false, 1, 16},
          {"nq8 nkv4 D256 W1024 L512", 8, 4, 256, 1024, true, 1, 512},
          {"nq8 nkv4 D256 W512 B64", 8, 4, 256, 512, true, 64, 1},
          {"nq8 nkv4 D256 W1024 B64", 8, 4, 256, 1024, true, 64, 1},
          {"nq8 nkv4 D256 W512 B64 ragged", 8, 4, 256, 512, true, 64, 1, true},
          {"nq64 nkv8 D64 W128 B64", 64, 8, 64, 128, true, 64, 1},
          {"nq4 nkv1 D256 W512", 4, 1, 256, 512, true, 1, 1}};
}

// Something that runs a layer of a case.
struct Subject {
  std::string name;
  double bytes = 0;
  std::function<void(std::size_t layer)> run;
  std::size_t calls = 0;
  std::vector<double> seconds, multiples;
};

struct Measured {
  std::string name;
  double seconds, multiple, bytes;
};

struct Outcome {
  std::string name;
  double flops;
  Rates rates;
  std::vector<Measured> subjects;
  double seconds_of(const std::string& subject) const {
    for (const Measured& m : subjects) {
      if (m.name == subject) return m.seconds;
    }
    return 0;
  }
};

// Seconds a call, of as many calls as take a millisecond.
double time_calls(Subject& subject) {
  constexpr double kAtLeast = 1e-3;
  const double start = now();
  int calls = 0;
  do {
    subject.run(subject.calls++);
    calls++;
  } while (now() - start < kAtLeast);
  return (now() - start) / calls;
}

Outcome measure(const Case& c, const std::vector<Codec>& codecs, int rounds,
                const windrow::internal::Kernels& kernels, ThreadPool& pool, Probes& probes) {
  std::vector<PagedState> states;
  states.reserve(codecs.size());
  std::vector<Subject> subjects;
  for (const Codec& codec : codecs) {
    PagedState& state = states.emplace_back(c, codec);
    subjects.push_back({codec.to_string(),
                        state.bytes(),
                        [&](std::size_t layer) { state.attend(kernels, layer, pool); },
                        0,
                        {},
                        {}});
  }
  DenseState dense(c);
  subjects.push_back(
      {"OpenBLAS f32", dense.bytes(), [&](std::size_t layer) { dense.attend(layer, pool); }, 0, {}, {}});
  const double flops = states.front().flops();
  std::vector<double> reads, fmas;
  Rates before = probes.now();
  for (int round = 0; round < rounds; round++) {
    for (Subject& subject : subjects) {
      const double seconds = time_calls(subject);
      const Rates after = probes.now();
      const double floor = between(before, after).floor(subject.bytes, flops);
      subject.seconds.push_back(seconds);
      subject.multiples.push_back(seconds / floor);
      reads.push_back(after.read);
      fmas.push_back(after.fma);
      before = after;
    }
  }
  Outcome result{c.name, flops, {median(reads), median(fmas)}, {}};
  for (const Subject& s : subjects) {
    result.subjects.push_back({s.name, median(s.seconds), median(s.multiples), s.bytes});
  }
  return result;
}

void print(const Outcome& r) {
  fmt::print("{}   (read {:.1f} GB/s, fma {:.0f} Gflop/s)\n", r.name, r.rates.read / 1e9, r.rates.fma / 1e9);
  const double f16 = r.seconds_of("f16"), dense = r.seconds_of("OpenBLAS f32");
  for (const Measured& m : r.subjects) {
    fmt::print(
        "  {:<13} {:>9.1f} us {:>7.1f} MB {:>7.1f} Mflop {:>6.1f} GB/s {:>6.0f} Gflop/s  {:>5.2f} x floor "
        "({})",
        m.name, m.seconds * 1e6, m.bytes / 1e6, r.flops / 1e6, m.bytes / m.seconds / 1e9,
        r.flops / m.seconds / 1e9, m.multiple,
        m.bytes / r.rates.read > r.flops / r.rates.fma ? "read" : "fma");
    fmt::print("  {:>5.2f} of f16  {:>6.3f} of OpenBLAS\n", m.seconds / f16, m.seconds / dense);
  }
  std::fflush(stdout);
}

nlohmann::json to_json(const Outcome& r) {
  nlohmann::json subjects = nlohmann::json::array();
  for (const Measured& m : r.subjects) {
    subjects.push_back({{"storage", m.name},
                        {"us", m.seconds * 1e6},
                        {"bytes", m.bytes},
                        {"flops", r.flops},
                        {"floor_multiple", m.multiple},
                        {"of_f16", m.seconds / r.seconds_of("f16")},
                        {"of_openblas", m.seconds / r.seconds_of("OpenBLAS f32")}});
  }
  return {{"case", r.name},
          {"read_bytes_per_s", r.rates.read},
          {"fma_flops_per_s", r.rates.fma},
          {"subjects", subjects}};
}

std::string chart(const std::vector<Outcome>& results) {
  Chart chart{
      "Decode, verify and prefill attention over cold state: time as a multiple of what memory and f32 allow",
      {}};
  for (const Outcome& r : results) {
    Chart::Group group{r.name, {}};
    for (const Measured& m : r.subjects)
      group.bars.push_back({m.name, m.multiple, fmt::format("{:.0f} us", m.seconds * 1e6)});
    chart.groups.push_back(group);
  }
  return chart.svg();
}

std::vector<Codec> codecs_of(const std::string& list) {
  std::vector<Codec> codecs;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    Result<Codec> codec = Codec::parse(list.substr(at, end - at));
    if (!codec.ok()) {
      fmt::print(stderr, "bench_attention: {}\n", codec.status().message());
      std::exit(2);
    }
    codecs.push_back(*codec);
    at = end + 1;
  }
  codecs.push_back(Codec::f16());  // what others are compared with
  return codecs;
}

Flags parse(int argc, char** argv) {
  Flags flags;
  const std::map<std::string, std::string*> texts = {
      {"--json", &flags.json}, {"--svg", &flags.svg}, {"--codecs", &flags.codecs}};
  for (int i = 1; i < argc; i++) {
    const std::string name = argv[i];
    const bool number = name == "--threads" || name == "--rounds";
    if (!number && texts.find(name) == texts.end()) {
      flags.filter = name;
    } else if (++i == argc) {
      fmt::print(stderr, "bench_attention: {} needs a value\n", name);
      std::exit(2);
    } else if (number) {
      (name == "--threads" ? flags.threads : flags.rounds) = std::max(1, std::atoi(argv[i]));
    } else {
      *texts.at(name) = argv[i];
    }
  }
  return flags;
}

int run(const Flags& flags) {
  Result<ThreadPool> pool = ThreadPool::create(flags.threads);
  if (!pool.ok() || !probes_supported()) {
    fmt::print(stderr, "bench_attention: {}\n", pool.ok() ? "the probes need AVX2" : pool.status().message());
    return 1;
  }
  const windrow::internal::Kernels kernels = windrow::internal::select_kernels();
  Probes probes(*pool);
  fmt::print("{}, {} threads, cold, medians of {} rounds\n", kernels.target, flags.threads, flags.rounds);
  const double bf16 = bf16_flops_per_second(*pool);
  fmt::print("read {:.1f} GB/s, f32 fma {:.0f} Gflop/s, int8 {:.0f} Gop/s, bf16 dot {}\n",
             read_bytes_per_second(*pool) / 1e9, fma_flops_per_second(*pool) / 1e9,
             int8_ops_per_second(*pool) / 1e9,
             bf16 > 0 ? fmt::format("{:.0f} Gflop/s", bf16 / 1e9) : "none here");
  std::vector<Outcome> results;
  for (const Case& c : all_cases()) {
    if (c.name.find(flags.filter) == std::string::npos) continue;
    results.push_back(measure(c, codecs_of(flags.codecs), flags.rounds, kernels, *pool, probes));
    print(results.back());
  }
  if (!flags.svg.empty()) std::ofstream(flags.svg) << chart(results);
  if (!flags.json.empty()) {
    nlohmann::json all = {
        {"target", kernels.target}, {"threads", flags.threads}, {"cases", nlohmann::json::array()}};
    for (const Outcome& r : results) all["cases"].push_back(to_json(r));
    std::ofstream(flags.json) << all.dump(1) << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace windrow::bench

int main(int argc, char** argv) { return windrow::bench::run(windrow::bench::parse(argc, argv)); }
