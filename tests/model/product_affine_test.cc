// Products by affine weights: against the scalar chain on every SIMD target, against float64, and what may
// not change their bits.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <limits>
#include <span>

#include "io/safetensors.h"
#include "model/product.h"
#include "product_affine_reference.h"
#include "support/simd_targets.h"

namespace windrow {
namespace {

using test::affine_reference;
using test::AffineMatrix;
using test::exact_output;
using test::outlier_activations;
using test::random_activations;
using test::random_affine;

constexpr int kBits[] = {2, 3, 4, 5, 6, 8};
constexpr int kGroups[] = {32, 64, 128};
constexpr DType kParams[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr Compute kModes[] = {Compute::kDefault, Compute::kFast, Compute::kF32};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const char* name(Compute c) {
  return c == Compute::kDefault ? "default" : c == Compute::kFast ? "fast" : "f32";
}

bool has_fma(std::int64_t target) { return (target & (HWY_AVX3 | HWY_AVX2)) != 0; }

ThreadPool make_pool(int threads) {
  Result<ThreadPool> pool = ThreadPool::create(threads);
  EXPECT_TRUE(pool.ok());
  return std::move(*pool);
}

PackedMatrix pack(const AffineMatrix& m, Compute compute, ThreadPool& pool) {
  Result<PackedMatrix> packed = PackedMatrix::pack(m.view(), m.rows, m.cols, compute, pool);
  EXPECT_TRUE(packed.ok()) << packed.status().message();
  return std::move(*packed);
}

std::vector<float> product(const PackedMatrix& w, const float* x, std::size_t ldx, std::size_t m,
                           ThreadPool& pool) {
  std::vector<float> y(m * w.rows(), -7.0f);
  const ProductOutput output{&w, y.data(), w.rows()};
  products({&output, 1}, x, ldx, m, pool);
  return y;
}

::testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " numbers";
  for (std::size_t i = 0; i < a.size(); i++) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << fmt::format("index {}: {} and {}", i, a[i], b[i]);
    }
  }
  return ::testing::AssertionSuccess();
}

std::vector<float> reference(const AffineMatrix& w, const float* x, std::size_t m, Compute compute,
                             bool fused) {
  std::vector<float> y;
  for (std::size_t r = 0; r < m; r++) {
    for (std::size_t n = 0; n < w.rows; n++) {
      y.push_back(affine_reference(w, n, x + r * w.cols, compute, fused));
    }
  }
  return y;
}

TEST(ProductAffine, EveryTargetMakesTheScalarChainBitForBit) {
  constexpr std::size_t m = 6;  // a block of rows and one of two
  ThreadPool pool = make_pool(1);
  unsigned seed = 1;
  for (const int bits : kBits) {
    for (const int group : kGroups) {
      for (const std::size_t n : {5, 16, 45, 80}) {
        // Every params type with every width and group, none with every N.
        const DType params = kParams[(seed / 4) % 3];
        const std::size_t k = static_cast<std::size_t>(group) * (n == 45 ? 5 : 3);
        const AffineMatrix w = random_affine(bits, group, params, n, k, seed++);
        const std::vector<float> x = outlier_activations(m, k, seed);
        for (const Compute compute : kModes) {
          SCOPED_TRACE(fmt::format("{} bits, groups of {}, {}, N {} K {} {}", bits, group, dtype_name(params),
                                   n, k, name(compute)));
          const PackedMatrix packed = pack(w, compute, pool);
          const std::vector<float> fused = reference(w, x.data(), m, compute, true);
          const std::vector<float> twice_rounded = reference(w, x.data(), m, compute, false);
          testing::on_every_target([&] {
            EXPECT_TRUE(same_bits(product(packed, x.data(), k, m, pool),
                                  has_fma(hwy::SupportedTargets()) ? fused : twice_rounded));
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace windrow
