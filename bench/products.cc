// Products against what the machine can do (probes of the same round) and against OpenBLAS.
//
//   bench_products [rounds] [filter]     filter: part of "6912x1152 BF16 2" or "6912x1152 q4 default 2"
//   (shape,
//                                        weights, threads), e.g. BF16 or 2048x2048 or "q8 fast"
//
// Every round measures the probes, then our product, then OpenBLAS; a share is taken inside its
// round and the median over rounds is printed. Weights are cold: calls rotate over copies of more
// than 128 MiB in all. Below 1 of "floor" the product is slower than its bytes and flops allow.
#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/float16.h"
#include "model/product.h"
#include "base/probe.h"

extern "C" char* openblas_get_corename(void);
extern "C" void openblas_set_num_threads(int);

namespace windrow {
namespace {

constexpr std::size_t kColdBytes = std::size_t{128} << 20;  // four times the L3
constexpr std::size_t kRowCounts[] = {1, 8, 512};
constexpr std::size_t kMostRows = 512;

struct Shape {
  const char* name;
  std::size_t n, k;
};

// gemma3-1b's feed-forward, a square, and the storyteller's own.
constexpr Shape kShapes[] = {{"6912x1152", 6912, 1152}, {"1152x6912", 1152, 6912}, {"2048x2048", 2048, 2048},
                             {"256x256", 256, 256},     {"768x256", 768, 256},     {"256x768", 256, 768},
                             {"2048x256", 2048, 256}};
constexpr std::size_t kLargeShapes = 3;  // those that affine weights are measured at

// What weights are stored as: plain numbers, or codes of `bits` in groups of 64 with bf16 scales.
struct Form {
  std::string name;
  DType dtype = DType::kBF16;
  int bits = 0;
  Compute compute = Compute::kDefault;
};

std::vector<Form> forms() {
  std::vector<Form> all;
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    all.push_back({std::string(dtype_name(dtype)), dtype});
  }
  const auto affine = [&](int bits, const char* mode, Compute compute) {
    all.push_back({fmt::format("q{} {}", bits, mode), DType::kBF16, bits, compute});
  };
  for (const int bits : {4, 8}) {
    affine(bits, "default", Compute::kDefault);
    affine(bits, "fast", Compute::kFast);
    affine(bits, "f32", Compute::kF32);
  }
  for (const int bits : {2, 3, 5, 6}) affine(bits, "default", Compute::kDefault);
  return all;
}

// The same weights in every form a product reads, as many copies as are needed to be cold.
struct Weights {
  std::vector<PackedMatrix> packed;
  std::vector<std::vector<float>> plain;  // for OpenBLAS
};

PackedMatrix checked(Result<PackedMatrix> packed) {
  if (packed.ok()) return std::move(*packed);
  fmt::print(stderr, "{}\n", packed.status().message());
  std::exit(1);
}

// Each pack() makes one more copy; `values`: the same as numbers.
struct Source {
  std::function<PackedMatrix(ThreadPool&)> pack;
  std::vector<float> values;
};

Source plain_source(const Shape& shape, DType dtype) {
  const std::size_t count = shape.n * shape.k;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-0.1f, 0.1f);
  std::vector<float> values(count);
  std::vector<std::uint16_t> halves(dtype == DType::kF32 ? 0 : count);
  for (std::size_t i = 0; i < count; i++) {
    values[i] = round_to(dtype, uniform(random));
    if (dtype == DType::kBF16) halves[i] = bf16_from_f32(values[i]);
    if (dtype == DType::kF16) halves[i] = f16_from_f32(values[i]);
  }
  const auto pack = [=](ThreadPool& pool) {
    const void* data = dtype == DType::kF32 ? static_cast<const void*>(values.data())
                                            : static_cast<const void*>(halves.data());
    return checked(PackedMatrix::pack(dtype, data, shape.n, shape.k, pool));
  };
  return {pack, values};
}

Source affine_source(const Shape& shape, const Form& form) {
  constexpr std::size_t kGroup = 64;
  const auto bits = static_cast<std::size_t>(form.bits);
  std::mt19937 random(1);
  std::vector<std::uint32_t> codes(shape.n * shape.k * bits / 32);
  for (std::uint32_t& c : codes) c = static_cast<std::uint32_t>(random());
  // Every group the same parameters: values of any code in [-0.1, 0.1].
  const float most = static_cast<float>((1 << form.bits) - 1);
  const std::uint16_t scale = bf16_from_f32(0.2f / most), bias = bf16_from_f32(-0.1f);
  const std::vector<std::uint16_t> scales(shape.n * shape.k / kGroup, scale), biases(scales.size(), bias);
  std::vector<float> values(shape.n * shape.k);
  for (std::size_t i = 0; i < values.size(); i++) {
    const std::size_t at = i * bits;
    std::uint64_t two = codes[at / 32];
    if (at / 32 + 1 < codes.size()) two |= static_cast<std::uint64_t>(codes[at / 32 + 1]) << 32;
    const std::uint64_t code = two >> (at % 32) & ((1u << bits) - 1);
    values[i] = f32_from_bf16(scale) * static_cast<float>(code) + f32_from_bf16(bias);
  }
  const auto pack = [=](ThreadPool& pool) {
    const AffineWeights w{reinterpret_cast<const std::byte*>(codes.data()),
                          scales.data(),
                          biases.data(),
                          DType::kBF16,
                          form.bits,
                          static_cast<int>(kGroup)};
    return checked(PackedMatrix::pack(w, shape.n, shape.k, form.compute, pool));
  };
  return {pack, values};
}

Weights make_weights(const Shape& shape, const Form& form, ThreadPool& pool) {
  const Source source = form.bits == 0 ? plain_source(shape, form.dtype) : affine_source(shape, form);
  Weights weights;
  for (std::size_t bytes = 0; bytes < kColdBytes; bytes += weights.packed.back().bytes()) {
    weights.packed.push_back(source.pack(pool));
  }
  for (std::size_t bytes = 0; bytes < kColdBytes; bytes += source.values.size() * sizeof(float)) {
    weights.plain.push_back(source.values);
  }
  return weights;
}

// Median time of calls body(i), i rotating over `copies`, for about `budget` seconds.
template <typename Body>
double median_time(std::size_t copies, double budget, Body body) {
  static std::size_t next = 0;
  std::vector<double> times;
  double spent = 0;
  do {
    const double start = bench::now();
    body(next++ % copies);
    times.push_back(bench::now() - start);
    spent += times.back();
  } while (spent < budget);
  return bench::median(times);
}

struct Samples {
  std::vector<double> seconds, of_read, of_fma, of_floor, blas_seconds, speedup;
};

// max |ours - theirs| / rms(theirs): different orders of summation, so only near 1e-6.
double relative_error(const std::vector<float>& ours, const std::vector<float>& theirs) {
  double square = 0, worst = 0;
  for (std::size_t i = 0; i < ours.size(); i++) {
    square += static_cast<double>(theirs[i]) * theirs[i];
    worst = std::max(worst, std::fabs(static_cast<double>(ours[i]) - theirs[i]));
  }
  return worst / std::sqrt(square / static_cast<double>(ours.size()));
}

void bench_shape(const Shape& shape, const Form& form, int threads, int rounds) {
  ThreadPool pool = *ThreadPool::create(threads);
  openblas_set_num_threads(threads);
  const Weights weights = make_weights(shape, form, pool);
  std::vector<float> x(kMostRows * shape.k), y(kMostRows * shape.n), expected(y.size());
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(random);
  const double weight_bytes = static_cast<double>(weights.packed[0].bytes());

  Samples samples[std::size(kRowCounts)];
  std::vector<double> read, fma;
  for (int round = 0; round < rounds; round++) {
    for (std::size_t i = 0; i < std::size(kRowCounts); i++) {
      const std::size_t m = kRowCounts[i];
      Samples& s = samples[i];
      const auto ours = [&](std::size_t copy) {
        const ProductOutput output{&weights.packed[copy], y.data(), shape.n};
        products({&output, 1}, x.data(), shape.k, m, pool);
      };
      const auto theirs = [&](std::size_t copy) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(m), static_cast<int>(shape.n),
                    static_cast<int>(shape.k), 1.0f, x.data(), static_cast<int>(shape.k),
                    weights.plain[copy].data(), static_cast<int>(shape.k), 0.0f, expected.data(),
                    static_cast<int>(shape.n));
      };
      const double r = bench::read_bytes_per_second(pool, 2);
      // Product and FMA probe take turns and both give their medians: on a shared machine one short
      // best probe would meet a quieter moment than a product that runs fifty times as long.
      std::vector<double> probes, times;
      double spent = 0;
      do {
        for (int probe = 0; probe < 3; probe++) probes.push_back(bench::fma_flops_per_second(pool, 1));
        times.push_back(median_time(weights.packed.size(), 0.01, ours));
        spent += std::max(times.back(), 0.01);
      } while (spent < 0.2);
      const double time = bench::median(times), peak = bench::median(probes);
      const double blas_time = median_time(weights.plain.size(), 0.03, theirs);
      // OpenBLAS's threads spin for a while after a call and would take the pool's cores.
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      const double flops = 2.0 * static_cast<double>(m * shape.n * shape.k);
      read.push_back(r);
      fma.push_back(peak);
      s.seconds.push_back(time);
      s.of_read.push_back(weight_bytes / time / r);
      s.of_fma.push_back(flops / time / peak);
      s.of_floor.push_back(std::max(weight_bytes / r, flops / peak) / time);
      s.blas_seconds.push_back(blas_time);
      s.speedup.push_back(blas_time / time);
    }
  }
  fmt::print("{} {} {} thread{}: read {:.1f} GB/s, fma {:.0f} Gflop/s, error against OpenBLAS {:.1e}\n",
             shape.name, form.name, threads, threads == 1 ? "" : "s", bench::median(read) / 1e9,
             bench::median(fma) / 1e9, relative_error(y, expected));
  for (std::size_t i = 0; i < std::size(kRowCounts); i++) {
    const Samples& s = samples[i];
    fmt::print(
        "  M {:>3}  {:>9.1f} us  {:>5.2f} of read  {:>5.2f} of fma  {:>5.2f} of floor (best {:.2f})"
        "  OpenBLAS {:>9.1f} us, {:.2f} times ours\n",
        kRowCounts[i], bench::median(s.seconds) * 1e6, bench::median(s.of_read), bench::median(s.of_fma),
        bench::median(s.of_floor), *std::max_element(s.of_floor.begin(), s.of_floor.end()),
        bench::median(s.blas_seconds) * 1e6, bench::median(s.speedup));
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  const std::string filter = argc > 2 ? argv[2] : "";
  fmt::print("OpenBLAS core {}; {} rounds, medians\n", openblas_get_corename(), rounds);
  for (const Form& form : forms()) {
    for (const Shape& shape : std::span(kShapes, form.bits == 0 ? std::size(kShapes) : kLargeShapes)) {
      for (const int threads : {1, 2}) {
        if (threads > ThreadPool::available()) continue;
        const std::string name = fmt::format("{} {} {}", shape.name, form.name, threads);
        if (name.find(filter) != std::string::npos) bench_shape(shape, form, threads, rounds);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace windrow

int main(int argc, char** argv) { return windrow::run(argc, argv); }
