// Append cost: store_vector of one token's keys and values, hot (pages in L1/L2) and cold (each
// token into a page not touched since the caches were replaced), beside a memcpy of the same bytes
// to the same places, one 64-byte-aligned run a vector.
#include <fmt/format.h>
#include <hwy/targets.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/memory.h"
#include "codec/block_layout.h"
#include "base/probe.h"

namespace windrow::bench {
namespace {

constexpr int kKvHeads = 4;
constexpr int kPageTokens = 64;
constexpr std::size_t kColdBytes = std::size_t{192} << 20;  // several times any L3 share
constexpr int kRepeats = 9;

struct Case {
  BlockLayout layout;
  Arena arena;
  std::vector<float> vectors;  // K and V of each head, one token
  std::size_t blocks = 0;

  const float* vector(int head, bool key) const {
    return vectors.data() + static_cast<std::size_t>((2 * head + !key) * layout.keys.head_dim);
  }
  std::byte* block(std::size_t i) const { return arena.data() + i * layout.bytes; }
};

Case make_case(const Codec& codec, int head_dim) {
  Case c;
  c.layout = BlockLayout::make(codec, head_dim, codec, head_dim, kPageTokens);
  c.blocks = kColdBytes / c.layout.bytes / kKvHeads * kKvHeads;
  c.arena = *Arena::create(c.blocks * c.layout.bytes, "bench blocks");
  std::memset(c.arena.data(), 1, c.arena.size());
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  c.vectors.resize(static_cast<std::size_t>(2 * kKvHeads * head_dim));
  for (float& v : c.vectors) v = normal(random);
  return c;
}

// Seconds a token. `store(side, block, position, vector)` for both sides of every head; consecutive
// tokens fill one page when hot and go to another page of the ring when cold.
template <class Store>
double seconds_a_token(const Case& c, bool cold, const Store& store) {
  const std::size_t rows = c.blocks / kKvHeads;
  const std::size_t tokens = cold ? rows : 20000;
  std::vector<double> times;
  int position = 0;
  for (int repeat = 0; repeat < kRepeats; repeat++) {
    const double start = now();
    for (std::size_t t = 0; t < tokens; t++) {
      const std::size_t row = cold ? t : 0;
      if (!cold) position = static_cast<int>(t % kPageTokens);
      prefetch_store(c.layout, c.block(row * kKvHeads), position);  // as Step::append does
      for (int head = 0; head < kKvHeads; head++) {
        std::byte* block = c.block(row * kKvHeads + static_cast<std::size_t>(head));
        if (head + 1 < kKvHeads) prefetch_store(c.layout, block + c.layout.bytes, position);
        store(c.layout.keys, block, position, c.vector(head, true));
        store(c.layout.values, block, position, c.vector(head, false));
      }
    }
    times.push_back((now() - start) / static_cast<double>(tokens));
    if (cold) position = (position + 7) % kPageTokens;
  }
  return median(times);
}

void report(const Codec& codec, int head_dim) {
  const Case c = make_case(codec, head_dim);
  const std::size_t record = codec.record_bytes(head_dim);
  const double numbers = 2.0 * kKvHeads * head_dim;
  const double bytes = 2.0 * kKvHeads * static_cast<double>(record);
  const auto copy = [record](const SideLayout& side, std::byte* block, int position, const float* vector) {
    std::memcpy(block + side.codes_offset + static_cast<std::size_t>(position) * record / 64 * 64, vector,
                record);
  };
  for (const bool cold : {false, true}) {
    const double store = seconds_a_token(c, cold, store_vector);
    const double probe = seconds_a_token(c, cold, copy);
    fmt::print("{:8} {:5} {:5} {:9.3f} {:9.3f} {:8.2f} {:10.3f} {:10.2f} {:7.1f}\n", codec.to_string(),
               head_dim, cold ? "cold" : "hot", store * 1e6, store / numbers * 1e9, bytes / store * 1e-9,
               probe * 1e6, bytes / probe * 1e-9, store / probe);
  }
}

}  // namespace
}  // namespace windrow::bench

int main() {
  using namespace windrow;
  fmt::print("append of one token, {} kv heads, K and V, 1 thread, target {}\n", bench::kKvHeads,
             hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets()));
  fmt::print("{:8} {:>5} {:5} {:>9} {:>9} {:>8} {:>10} {:>10} {:>7}\n", "codec", "dim", "pages", "us/token",
             "ns/number", "GB/s", "memcpy us", "memcpyGB/s", "ratio");
  for (const Codec codec : {Codec::affine(4), Codec::affine(8), Codec::bf16()}) {
    for (const int head_dim : {64, 128, 256}) bench::report(codec, head_dim);
  }
  return 0;
}
