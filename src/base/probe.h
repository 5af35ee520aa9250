// What this machine can do at best, measured in the same run as the thing that is judged: the rate
// of reading memory and of f32 fused multiply-adds, by the threads of a pool.
//
//   const double read = bench::read_bytes_per_second(pool);    // a buffer far beyond the caches
//   const double fma = bench::fma_flops_per_second(pool);      // 2 flops an fma, widest vectors here
//   const double floor = std::max(bytes / read, flops / fma);  // seconds nothing can beat
//
// Both swing with the machine's other load, within milliseconds on a shared host: what is judged takes turns
// with short probes (Probes), and ratios of neighbours are compared.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"
#include "windrow/threads.h"

namespace windrow::bench {

inline double now() { return steady_seconds(); }

// The middle of several measurements; 0 for none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Keeps a result alive without storing it.
template <typename T>
void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

namespace internal {

#if defined(__x86_64__)

// Four streams a thread with a software prefetch of 1 KiB ahead each: what reads fastest here.
__attribute__((target("avx2"))) inline void read_lines(const std::byte* data, std::size_t bytes) {
  constexpr std::size_t kAhead = 1024;
  const std::size_t quarter = bytes / 4 / 128 * 128;
  __m256i sum = _mm256_setzero_si256();
  for (std::size_t i = 0; i < quarter; i += 128) {
    for (std::size_t stream = 0; stream < 4; stream++) {
      const std::byte* p = data + stream * quarter + i;
      _mm_prefetch(reinterpret_cast<const char*>(p) + kAhead, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(p) + kAhead + 64, _MM_HINT_T0);
      for (std::size_t k = 0; k < 128; k += 32) {
        sum = _mm256_xor_si256(sum, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + k)));
      }
    }
  }
  keep(sum);
}

// Both compilers need telling, in their own words, or the chains live in memory.
#ifdef __clang__
#define WINDROW_PROBE_UNROLL _Pragma("unroll")
#else
#define WINDROW_PROBE_UNROLL _Pragma("GCC unroll 16")
#endif

inline constexpr int kFmaChains = 12;  // 4 cycles latency x 2 units is 8; the rest is slack

__attribute__((target("avx2,fma"))) inline double fma_avx2(long rounds) {
  __m256 chain[kFmaChains];
  for (__m256& c : chain) c = _mm256_set1_ps(1.0f);
  __m256 factor = _mm256_set1_ps(0.999f);
  const __m256 term = _mm256_set1_ps(0.001f);
  for (long i = 0; i < rounds; i++) {
    WINDROW_PROBE_UNROLL
    for (int j = 0; j < kFmaChains; j++) chain[j] = _mm256_fmadd_ps(chain[j], factor, term);
    asm volatile("" : "+x"(factor));
  }
  __m256 sum = chain[0];
  for (int j = 1; j < kFmaChains; j++) sum = _mm256_add_ps(sum, chain[j]);
  keep(sum);
  return static_cast<double>(rounds) * kFmaChains * 8 * 2;
}

__attribute__((target("avx512f"))) inline double fma_avx512(long rounds) {
  __m512 chain[kFmaChains];
  for (__m512& c : chain) c = _mm512_set1_ps(1.0f);
  __m512 factor = _mm512_set1_ps(0.999f);
  const __m512 term = _mm512_set1_ps(0.001f);
  for (long i = 0; i < rounds; i++) {
    WINDROW_PROBE_UNROLL
    for (int j = 0; j < kFmaChains; j++) chain[j] = _mm512_fmadd_ps(chain[j], factor, term);
    asm volatile("" : "+v"(factor));
  }
  __m512 sum = chain[0];
  for (int j = 1; j < kFmaChains; j++) sum = _mm512_add_ps(sum, chain[j]);
  keep(sum);
  return static_cast<double>(rounds) * kFmaChains * 16 * 2;
}

// Products of bytes and sums of pairs of them, saturating, and the sum that follows: AVX2's way.
__attribute__((target("avx2"))) inline double int8_avx2(long rounds) {
  __m256i chain[kFmaChains] = {};
  __m256i codes = _mm256_set1_epi8(7);
  const __m256i limbs = _mm256_set1_epi8(3);
  for (long i = 0; i < rounds; i++) {
    WINDROW_PROBE_UNROLL
    for (int j = 0; j < kFmaChains; j++) {
      chain[j] = _mm256_add_epi16(chain[j], _mm256_maddubs_epi16(codes, limbs));
      asm volatile("" : "+x"(codes));
    }
  }
  for (const __m256i& c : chain) keep(c);
  return static_cast<double>(rounds) * kFmaChains * 32 * 2;
}

__attribute__((target("avx512f,avx512vnni"))) inline double int8_vnni(long rounds) {
  __m512i chain[kFmaChains] = {};
  __m512i codes = _mm512_set1_epi32(0x07070707);
  const __m512i limbs = _mm512_set1_epi32(0x03030303);
  for (long i = 0; i < rounds; i++) {
    WINDROW_PROBE_UNROLL
    for (int j = 0; j < kFmaChains; j++) chain[j] = _mm512_dpbusd_epi32(chain[j], codes, limbs);
    asm volatile("" : "+v"(codes));
  }
  for (const __m512i& c : chain) keep(c);
  return static_cast<double>(rounds) * kFmaChains * 64 * 2;
}

__attribute__((target("avx512f,avx512bf16"))) inline double bf16_avx512(long rounds) {
  __m512 chain[kFmaChains] = {};
  __m512i bits = _mm512_set1_epi32(0x3f803f80);
  for (long i = 0; i < rounds; i++) {
    WINDROW_PROBE_UNROLL
    for (int j = 0; j < kFmaChains; j++) {
      chain[j] =
          _mm512_dpbf16_ps(chain[j], reinterpret_cast<__m512bh>(bits), reinterpret_cast<__m512bh>(bits));
    }
    asm volatile("" : "+v"(bits));
  }
  for (const __m512& c : chain) keep(c);
  return static_cast<double>(rounds) * kFmaChains * 32 * 2;
}

#undef WINDROW_PROBE_UNROLL

inline auto widest_fma() { return __builtin_cpu_supports("avx512f") ? fma_avx512 : fma_avx2; }
inline auto widest_int8() { return __builtin_cpu_supports("avx512vnni") ? int8_vnni : int8_avx2; }
inline bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
inline bool has_bf16() { return __builtin_cpu_supports("avx512bf16"); }

#else  // no probes yet: rates of 0, which say so

inline void read_lines(const std::byte*, std::size_t) {}
inline double widest_fma_of(long) { return 0; }
inline auto widest_fma() { return widest_fma_of; }
inline auto widest_int8() { return widest_fma_of; }
inline constexpr auto bf16_avx512 = widest_fma_of;
inline bool supported() { return false; }
inline bool has_bf16() { return false; }

#endif

// Operations a second of probe(rounds), which says how many it did; all threads.
template <typename Probe>
double rate_of(ThreadPool& pool, long rounds, const Probe& probe) {
  const auto threads = static_cast<std::size_t>(pool.threads());
  std::vector<double> done(threads);
  const double start = now();
  pool.parallel_for(threads, [&](std::size_t task, int) { done[task] = probe(rounds); });
  double sum = 0;
  for (const double d : done) sum += d;
  return sum / (now() - start);
}
template <typename Probe>
double best_rate_of(ThreadPool& pool, int repeats, const Probe& probe) {
  double best = 0;
  for (int i = 0; i < repeats; i++) best = std::max(best, rate_of(pool, 400000, probe));
  return best;
}

// Bytes a second of reading from `data` on, a share a thread.
inline double read_rate(ThreadPool& pool, const std::byte* data, std::size_t bytes) {
  const auto threads = static_cast<std::size_t>(pool.threads());
  const std::size_t share = bytes / threads / 512 * 512;
  const double start = now();
  pool.parallel_for(threads, [&](std::size_t task, int) { read_lines(data + task * share, share); });
  return static_cast<double>(share * threads) / (now() - start);
}

}  // namespace internal

// Operations a second of the other units, for information: products of bytes with sums (VNNI, or AVX2's pair
// of instructions), and of bf16 pairs (0: this machine has none).
inline double int8_ops_per_second(ThreadPool& pool) {
  return internal::supported() ? internal::best_rate_of(pool, 3, internal::widest_int8()) : 0;
}
inline double bf16_flops_per_second(ThreadPool& pool) {
  return internal::has_bf16() ? internal::best_rate_of(pool, 3, internal::bf16_avx512) : 0;
}

// Needs AVX2, as every x86 machine worth a benchmark has; 0 without.
inline bool probes_supported() { return internal::supported(); }

// Bytes a second of reading a buffer beyond any L3, once, all threads at once; best of `repeats`.
inline double read_bytes_per_second(ThreadPool& pool, int repeats = 3) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  if (!probes_supported()) return 0;
  static const Arena buffer = [] {
    Arena arena = *Arena::create(kBytes, "read probe");
    std::memset(arena.data(), 1, kBytes);
    return arena;
  }();
  double best = 0;
  for (int i = 0; i < repeats; i++) best = std::max(best, internal::read_rate(pool, buffer.data(), kBytes));
  return best;
}

// Flops a second of independent f32 fused multiply-adds in registers, all threads; best of `repeats`.
inline double fma_flops_per_second(ThreadPool& pool, int repeats = 3) {
  return probes_supported() ? internal::best_rate_of(pool, repeats, internal::widest_fma()) : 0;
}

// What the machine can do at a moment.
struct Rates {
  double read = 0;  // bytes a second
  double fma = 0;   // flops a second
  double floor(double bytes, double flops) const { return std::max(bytes / read, flops / fma); }
};
inline Rates between(const Rates& a, const Rates& b) {
  return {2 / (1 / a.read + 1 / b.read), 2 / (1 / a.fma + 1 / b.fma)};
}

// Short probes, about a millisecond each, to run between the things that are judged.
class Probes {
 public:
  explicit Probes(ThreadPool& pool) : pool_(pool), buffer_(*Arena::create(kBuffer, "read probe")) {
    std::memset(buffer_.data(), 1, kBuffer);
  }

  Rates now() {
    if (!probes_supported()) return {};
    const std::byte* from = buffer_.data() + at_;
    at_ = (at_ + kChunk) % kBuffer;
    const double read = internal::read_rate(pool_, from, kChunk);
    return {read, internal::rate_of(pool_, kRounds, internal::widest_fma())};
  }

 private:
  static constexpr std::size_t kBuffer = std::size_t{256} << 20, kChunk = std::size_t{16} << 20;
  static constexpr long kRounds = 100000;
  ThreadPool& pool_;
  Arena buffer_;
  std::size_t at_ = 0;
};

}  // namespace windrow::bench
