// Products against the scalar chain on every SIMD target, and what may not change their bits.
#include "model/product.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "product_reference.h"
#include "product_run.h"
#include "support/sanitized.h"
#include "support/simd_targets.h"

namespace windrow {
namespace {

using test::product;
using test::random_activations;
using test::random_weights;
using test::reference_output;
using test::same_bits;
using test::Weights;

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Runs the body once for each target this processor has, with only that target allowed.
template <typename Body>
void for_each_target(Body body) {
  testing::on_every_target([&] { body(hwy::SupportedTargets()); });
}

bool has_fma(std::int64_t target) { return (target & (HWY_AVX3 | HWY_AVX2)) != 0; }

ThreadPool make_pool(int threads) {
  Result<ThreadPool> pool = ThreadPool::create(threads);
  EXPECT_TRUE(pool.ok());
  return std::move(*pool);
}

PackedMatrix pack(const Weights& w, ThreadPool& pool) {
  Result<PackedMatrix> packed = PackedMatrix::pack(w.dtype, w.bytes.data(), w.rows, w.cols, pool);
  EXPECT_TRUE(packed.ok()) << packed.status().message();
  return std::move(*packed);
}

std::vector<float> reference(const Weights& w, const float* x, std::size_t ldx, std::size_t m, bool fused) {
  std::vector<float> y;
  for (std::size_t r = 0; r < m; r++) {
    for (std::size_t n = 0; n < w.rows; n++) y.push_back(reference_output(w, n, x + r * ldx, fused));
  }
  return y;
}

TEST(Product, EveryTargetMakesTheScalarChainBitForBit) {
  ThreadPool pool = make_pool(1);
  unsigned seed = 1;
  for (const DType dtype : kDTypes) {
    for (const std::size_t n : {1, 15, 16, 17, 100}) {
      for (const std::size_t k : {1, 2, 3, 63, 64, 65, 96, 256, 1000}) {
        SCOPED_TRACE(fmt::format("{} N {} K {}", dtype_name(dtype), n, k));
        const Weights w = random_weights(dtype, n, k, seed++);
        const PackedMatrix packed = pack(w, pool);
        const std::vector<float> x = random_activations(9 * k, seed++);
        const std::vector<float> fused = reference(w, x.data(), k, 9, true);
        const std::vector<float> twice_rounded = reference(w, x.data(), k, 9, false);
        for_each_target([&](std::int64_t target) {
          EXPECT_TRUE(
              same_bits(product(packed, x.data(), k, 9, pool), has_fma(target) ? fused : twice_rounded));
        });
      }
    }
  }
}

TEST(Product, ARowsBitsDoNotDependOnTheBatchItsPlaceOrTheThreads) {
  constexpr std::size_t kRows = 230;  // a panel of more than one pass
  ThreadPool pools[] = {make_pool(1), make_pool(2), make_pool(3)};
  unsigned seed = 100;
  for (const DType dtype : kDTypes) {
    for (const auto& shape : std::initializer_list<std::pair<std::size_t, std::size_t>>{
             {1, 65}, {17, 1000}, {320, 96}, {1040, 256}}) {
      const std::size_t n = shape.first, k = shape.second;
      const Weights w = random_weights(dtype, n, k, seed++);
      const PackedMatrix packed = pack(w, pools[0]);
      const std::vector<float> x = random_activations(kRows * k, seed++);
      for_each_target([&](std::int64_t target) {
        const bool slow = testing::kSanitized || !has_fma(target);
        if (slow && n == 1040) return;
        const std::vector<float> all = product(packed, x.data(), k, kRows, pools[0]);
        for (const std::size_t m : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 23, 24, 25, 64, 100, 193}) {
          if (slow && m > 25) continue;
          for (const std::size_t offset : {0, 37}) {
            for (ThreadPool& pool : pools) {
              SCOPED_TRACE(fmt::format("{} N {} K {} M {} offset {} threads {}", dtype_name(dtype), n, k, m,
                                       offset, pool.threads()));
              EXPECT_TRUE(same_bits(product(packed, x.data() + offset * k, k, m, pool),
                                    std::span(all).subspan(offset * n, m * n)));
            }
          }
        }
      });
    }
  }
}

RC_GTEST_PROP(Product, AnyShapeStridesAndThreadsGiveTheChain, ()) {
  const DType dtype = *rc::gen::elementOf(std::vector<DType>(std::begin(kDTypes), std::end(kDTypes)));
  const std::size_t m = *rc::gen::inRange<std::size_t>(0, 40), k = *rc::gen::inRange<std::size_t>(1, 300);
  const std::size_t n = *rc::gen::inRange<std::size_t>(1, 90);
  const std::size_t ldx = k + *rc::gen::inRange<std::size_t>(0, 9),
                    ldy = n + *rc::gen::inRange<std::size_t>(0, 9);
  ThreadPool pool = make_pool(*rc::gen::inRange(1, 4));
  const Weights w = random_weights(dtype, n, k, 7);
  const std::vector<float> x = random_activations(m * ldx + 1, 8);
  const PackedMatrix packed = pack(w, pool);
  std::vector<float> y(m * ldy, -5.0f);
  const ProductOutput output{&packed, y.data(), ldy};
  products({&output, 1}, x.data(), ldx, m, pool);
  const bool fused = has_fma(hwy::SupportedTargets() & HWY_TARGETS);
  for (std::size_t r = 0; r < m; r++) {
    for (std::size_t c = 0; c < ldy; c++) {
      // Between the rows of y nothing is written.
      RC_ASSERT(y[r * ldy + c] == (c < n ? reference_output(w, c, x.data() + r * ldx, fused) : -5.0f));
    }
  }
}

TEST(Product, SeveralOutputsInOneCallEqualOneCallEach) {
  constexpr std::size_t k = 192;
  ThreadPool one = make_pool(1);
  const Weights weights[] = {random_weights(DType::kBF16, 40, k, 1), random_weights(DType::kF32, 1, k, 2),
                             random_weights(DType::kF16, 333, k, 3), random_weights(DType::kBF16, 16, k, 4)};
  std::vector<PackedMatrix> packed;
  for (const Weights& w : weights) packed.push_back(pack(w, one));
  for (const std::size_t m : {1, 5, 23, 33}) {
    const std::vector<float> x = random_activations(m * k, 5);
    for (const int threads : {1, 2, 3, 8}) {
      SCOPED_TRACE(fmt::format("M {} threads {}", m, threads));
      ThreadPool pool = make_pool(threads);
      std::vector<std::vector<float>> y;
      std::vector<ProductOutput> outputs;
      for (const PackedMatrix& w : packed) {
        y.emplace_back(m * w.rows(), std::numeric_limits<float>::quiet_NaN());
        outputs.push_back({&w, y.back().data(), w.rows()});
      }
      products(outputs, x.data(), k, m, pool);
      for (std::size_t i = 0; i < packed.size(); i++) {
        EXPECT_TRUE(same_bits(y[i], product(packed[i], x.data(), k, m, one))) << "output " << i;
      }
    }
  }
}

TEST(Product, NanAndInfinityStayInTheirRow) {
  constexpr std::size_t n = 50, k = 130, m = 12;
  ThreadPool pool = make_pool(2);
  for (const DType dtype : kDTypes) {
    const PackedMatrix packed = pack(random_weights(dtype, n, k, 1), pool);
    std::vector<float> x = random_activations(m * k, 2);
    for_each_target([&](std::int64_t) {
      const std::vector<float> clean = product(packed, x.data(), k, m, pool);
      std::vector<float> dirty = x;
      dirty[3 * k + 129] = std::numeric_limits<float>::quiet_NaN();
      dirty[7 * k] = std::numeric_limits<float>::infinity();
      const std::vector<float> y = product(packed, dirty.data(), k, m, pool);
      for (std::size_t r = 0; r < m; r++) {
        const std::span<const float> row = std::span(y).subspan(r * n, n);
        if (r == 3 || r == 7) {
          for (const float v : row) EXPECT_FALSE(std::isfinite(v));
        } else {
          EXPECT_TRUE(same_bits(row, std::span(clean).subspan(r * n, n))) << "row " << r;
        }
      }
    });
  }
}

TEST(Product, InfinityInThePaddingOfAnOddKCannotMakeNan) {
  // K = 5 ends in half a pair; what follows x in memory must not be multiplied by its zero.
  ThreadPool pool = make_pool(1);
  for (const DType dtype : kDTypes) {
    const Weights w = random_weights(dtype, 20, 5, 1);
    const PackedMatrix packed = pack(w, pool);
    std::vector<float> x = random_activations(6, 2);
    x[5] = std::numeric_limits<float>::infinity();
    for_each_target([&](std::int64_t) {
      for (const float v : product(packed, x.data(), 6, 1, pool)) EXPECT_TRUE(std::isfinite(v));
    });
  }
}

TEST(Product, EveryFiniteAndSpecialWeightKeepsItsValue) {
  // One product by 1 decodes the weight: all 65536 of the 16-bit types.
  ThreadPool pool = make_pool(1);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Weights w{dtype, 65536, 1, std::vector<std::byte>(65536 * 2)};
    for (std::uint32_t i = 0; i < 65536; i++) std::memcpy(w.bytes.data() + 2 * i, &i, 2);
    const PackedMatrix packed = pack(w, pool);
    const float x = 1.0f;
    for_each_target([&](std::int64_t) {
      const std::vector<float> y = product(packed, &x, 1, 1, pool);
      for (std::size_t i = 0; i < y.size(); i++) {
        const float expected = w.at(i, 0) + 0.0f;  // the chain starts at +0, so -0 becomes +0
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(y[i])) << i;
        } else {
          ASSERT_TRUE(same_bits({&y[i], 1}, {&expected, 1})) << i;
        }
      }
    });
  }
}

TEST(PackedMatrix, AnyAlignmentAndThreadCountPackTheSameBytes) {
  ThreadPool one = make_pool(1), three = make_pool(3);
  for (const DType dtype : kDTypes) {
    const Weights w = random_weights(dtype, 83, 77, 1);
    const PackedMatrix expected = pack(w, one);
    for (const std::size_t shift : {0, 1, 3}) {
      std::vector<std::byte> moved(w.bytes.size() + shift);
      std::memcpy(moved.data() + shift, w.bytes.data(), w.bytes.size());
      Result<PackedMatrix> packed = PackedMatrix::pack(dtype, moved.data() + shift, 83, 77, three);
      ASSERT_TRUE(packed.ok());
      ASSERT_EQ(packed->bytes(), expected.bytes());
      EXPECT_EQ(std::memcmp(packed->data(), expected.data(), expected.bytes()), 0);
      EXPECT_EQ(packed->rows(), 83u);
      EXPECT_EQ(packed->cols(), 77u);
      EXPECT_EQ(packed->dtype(), dtype);
    }
  }
}

TEST(PackedMatrix, RefusesWhatItCannotHold) {
  ThreadPool pool = make_pool(1);
  const float one = 1.0f;
  constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
  const auto refusal = [&](DType dtype, const void* data, std::size_t rows, std::size_t cols) {
    return PackedMatrix::pack(dtype, data, rows, cols, pool).status();
  };
  EXPECT_EQ(refusal(DType::kU32, &one, 1, 1).code(), StatusCode::kUnsupported);
  EXPECT_EQ(refusal(DType::kU32, &one, 1, 1).message(),
            "product weights: type U32, supported are F32, F16 and BF16");
  EXPECT_EQ(refusal(DType::kF32, &one, 0, 64).message(), "product weights: shape [0, 64] is empty");
  EXPECT_EQ(refusal(DType::kF32, &one, 64, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal(DType::kF32, nullptr, 2, 3).message(), "product weights: no data for shape [2, 3]");
  for (const auto& [rows, cols] : std::initializer_list<std::pair<std::size_t, std::size_t>>{
           {huge, 1}, {1, huge}, {huge, huge}, {std::size_t{1} << 32, std::size_t{1} << 32}}) {
    EXPECT_EQ(refusal(DType::kBF16, &one, rows, cols).code(), StatusCode::kInvalidArgument);
  }
  // Fits a size_t but no machine: the system's refusal comes back as a status.
  EXPECT_EQ(refusal(DType::kF32, &one, std::size_t{1} << 30, std::size_t{1} << 28).code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace windrow
