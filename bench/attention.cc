// Attention over paged state against what memory and f32 units allow, in one run.
//
//   bench_attention [threads] [filter]
//
// Cases are the shapes of DESIGN's prototype: (a) one row, 16 query over 8 kv heads of 128, whole context
// of T; (b) 64 rows, 8 over 4 heads of 256, window 512; (c) 64 rows, 64 over 8 heads of 64, window
// 128; (d) one row, 8 over 4 heads of 256, T 1024, 1 and 8 tokens; (p) a 512-token prefill chunk. Pages lie
// in random order over at least 192 MiB, so nothing is in a cache when a layer is visited.
// floor = max(bytes / read probe, flops / fma probe), probes from the same round.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attention/attend.h"
#include "attention/validate.h"
#include "base/memory.h"
#include "codec/block_layout.h"
#include "probe.h"

namespace windrow {
namespace {

constexpr int kPageTokens = 32;
constexpr std::size_t kStateBytes = std::size_t{192} << 20;

struct Case {
  std::string name;
  int q_heads, kv_heads, head_dim;
  int length;  // positions a query sees
  bool windowed;
  int rows, fresh;
};

// Several layers of the same shape, so that each visit finds cold pages.
class State {
 public:
  State(const Case& c, const Codec& codec)
      : case_(c), layout_(BlockLayout::make(codec, c.head_dim, codec, c.head_dim, kPageTokens)) {
    std::mt19937 random(7);
    row_offsets_ = {0};
    for (int r = 0; r < c.rows; r++) {
      // Windows start anywhere in a page.
      const int history =
          c.length - 1 - (c.windowed ? 0 : c.fresh - 1) + (c.windowed ? static_cast<int>(random() % 64) : 0);
      for (int i = 0; i < c.fresh; i++) {
        positions_.push_back(history + i);
        begins_.push_back(std::max(0, history + i - window() + 1));
        ends_.push_back(history + i + 1);
      }
      row_offsets_.push_back(static_cast<std::int32_t>(positions_.size()));
      const int first = begins_[begins_.size() - static_cast<std::size_t>(c.fresh)] / kPageTokens;
      const int pages = (history + c.fresh - 1) / kPageTokens - first + 1;
      rows_.push_back(
          {.length = history, .table_first = first, .table_size = pages, .fresh_first = first + pages});
      per_layer_ += static_cast<std::size_t>(pages);
    }
    const std::size_t page_bytes = layout_.bytes * static_cast<std::size_t>(c.kv_heads);
    layers_ = std::max<std::size_t>(2, kStateBytes / (per_layer_ * page_bytes) + 1);
    arena_ = *Arena::create(layers_ * per_layer_ * page_bytes, "bench state");
    fill(random);
    pages_.resize(layers_ * per_layer_);
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), random);
    q_.resize(positions_.size() * static_cast<std::size_t>(c.q_heads * c.head_dim));
    for (float& x : q_) x = static_cast<float>(random() % 2001) * 1e-3f - 1;
    out_.resize(q_.size());
  }

  std::size_t layers() const { return layers_; }
  void attend(const internal::Kernels& kernels, std::size_t layer, ThreadPool& pool) {
    KvRead read;
    read.window = window();
    read.kv_heads = case_.kv_heads;
    read.head_dim = read.value_dim = case_.head_dim;
    read.page_tokens = kPageTokens;
    read.row_offsets = row_offsets_;
    read.positions = positions_;
    read.begins = begins_;
    read.ends = ends_;
    const std::int32_t* table = pages_.data() + layer * per_layer_;
    for (KvRead::Row& row : rows_) {
      row.table = table;
      table += row.table_size;
    }
    read.rows = rows_;
    read.storages[0] = {.layout = &layout_,
                        .base = arena_.data(),
                        .page_bytes = layout_.bytes * static_cast<std::size_t>(case_.kv_heads),
                        .block_bytes = layout_.bytes};
    const AttentionParams params{.q_heads = case_.q_heads, .scale = 0.05f};
    const Status valid = internal::validate_attention(read, q_.size(), params, out_.size());
    if (!valid.ok() || !internal::attend_with(kernels, read, q_, params, out_, &pool).ok()) {
      fmt::print(stderr, "{}: {}\n", case_.name, valid.message());
      std::exit(1);
    }
  }

  double bytes() const {  // of the visible positions, read once
    double positions = 0;
    for (int r = 0; r < case_.rows; r++) positions += std::min(case_.length + case_.fresh - 1, last(r) + 1);
    return positions * case_.kv_heads * static_cast<double>(layout_.bytes) / kPageTokens;
  }
  double flops() const {  // two products of head_dim for each (query, position)
    double pairs = 0;
    for (std::size_t t = 0; t < positions_.size(); t++) pairs += ends_[t] - begins_[t];
    return pairs * case_.q_heads * case_.head_dim * 4;
  }

 private:
  int window() const { return case_.windowed ? case_.length : kFullWindow; }
  int last(int row) const {
    return positions_[static_cast<std::size_t>(row_offsets_[static_cast<std::size_t>(row) + 1] - 1)];
  }

  // Codes are any bits; scales and biases near 1/64, which both halves of 0x3c80 are as bf16.
  void fill(std::mt19937& random) {
    const std::size_t words = arena_.size() / 4;
    auto* const all = reinterpret_cast<std::uint32_t*>(arena_.data());
    std::uint32_t x = static_cast<std::uint32_t>(random());
    for (std::size_t i = 0; i < words; i++) {
      x = x * 1664525u + 1013904223u;
      all[i] = layout_.keys.codec.is_affine() ? x : 0x3c803c80u | (x >> 8 & 0x007f007fu);
    }
    for (std::size_t at = 0; at < arena_.size(); at += layout_.bytes) {
      for (const SideLayout* side : {&layout_.keys, &layout_.values}) {
        std::fill_n(side->param_words(arena_.data() + at), side->params * kPageTokens, 0x3c803c80u);
      }
    }
  }

  Case case_;
  BlockLayout layout_;
  std::size_t layers_ = 0, per_layer_ = 0;  // pages of a layer
  Arena arena_;
  std::vector<std::int32_t> row_offsets_, positions_, begins_, ends_, pages_;
  std::vector<KvRead::Row> rows_;
  std::vector<float> q_, out_;
};

void measure(const Case& c, const Codec& codec, const internal::Kernels& kernels, ThreadPool& pool) {
  State state(c, codec);
  constexpr int kRounds = 3;
  constexpr double kSecondsPerRound = 0.25;
  std::vector<double> times, multiples, hot;
  double read = 0, fma = 0;
  for (int round = 0; round < kRounds; round++) {
    read = bench::read_bytes_per_second(pool, 2);
    fma = bench::fma_flops_per_second(pool, 2);
    const double floor = std::max(state.bytes() / read, state.flops() / fma);
    std::vector<double> cold;
    const double begin = bench::now();
    for (std::size_t layer = 0; layer < state.layers() && bench::now() - begin < kSecondsPerRound; layer++) {
      const double start = bench::now();
      state.attend(kernels, layer, pool);
      cold.push_back(bench::now() - start);
    }
    times.push_back(bench::median(cold));
    multiples.push_back(times.back() / floor);
    std::vector<double> again;
    for (int i = 0; i < 9; i++) {
      const double start = bench::now();
      state.attend(kernels, 0, pool);
      again.push_back(bench::now() - start);
    }
    hot.push_back(bench::median(again) / floor);
  }
  fmt::print(
      "{:<28} {:<6} {:>10.1f} us  {:>5.2f} x floor  (same layer again {:>5.2f} x)  {} bound, {:.1f} GB/s, "
      "{:.0f} Gflop/s\n",
      c.name, codec.to_string(), bench::median(times) * 1e6, bench::median(multiples), bench::median(hot),
      state.bytes() / read > state.flops() / fma ? "read" : "fma", state.bytes() / bench::median(times) / 1e9,
      state.flops() / bench::median(times) / 1e9);
  std::fflush(stdout);
}

}  // namespace
}  // namespace windrow

int main(int argc, char** argv) {
  using namespace windrow;
  const int threads = argc > 1 ? std::atoi(argv[1]) : ThreadPool::available();
  const std::string filter = argc > 2 ? argv[2] : "";
  Result<ThreadPool> pool = ThreadPool::create(threads);
  if (!pool.ok() || !bench::probes_supported()) {
    fmt::print(stderr, "bench_attention: {}\n", pool.ok() ? "the probes need AVX2" : pool.status().message());
    return 1;
  }
  const internal::Kernels kernels = internal::select_kernels();
  fmt::print("{}, {} threads, read {:.1f} GB/s, fma {:.0f} Gflop/s\n", kernels.target, threads,
             bench::read_bytes_per_second(*pool) / 1e9, bench::fma_flops_per_second(*pool) / 1e9);
  const std::vector<Case> cases = {{"a decode T512 D128", 16, 8, 128, 512, false, 1, 1},
                                   {"a decode T1024 D128", 16, 8, 128, 1024, false, 1, 1},
                                   {"a decode T4096 D128", 16, 8, 128, 4096, false, 1, 1},
                                   {"b decode W512 B64 D256", 8, 4, 256, 512, true, 64, 1},
                                   {"c decode W128 B64 D64", 64, 8, 64, 128, true, 64, 1},
                                   {"d decode T1024 D256", 8, 4, 256, 1024, false, 1, 1},
                                   {"d verify 8 T1024 D256", 8, 4, 256, 1024, false, 1, 8},
                                   {"p prefill 512 D256", 8, 4, 256, 512, false, 1, 512}};
  for (const Case& c : cases) {
    for (const Codec codec : {Codec::affine(4), Codec::affine(8), Codec::bf16()}) {
      const std::string label = c.name + " " + codec.to_string();
      if (label.find(filter) != std::string::npos) measure(c, codec, kernels, *pool);
    }
  }
  return 0;
}
