// Products by affine weights: against the scalar chain on every SIMD target, against float64, and what may
// not change their bits.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>

#include "base/float16.h"
#include "io/safetensors.h"
#include "model/product.h"
#include "model/product_affine.h"
#include "product_affine_reference.h"
#include "product_run.h"
#include "support/sanitized.h"
#include "support/simd_targets.h"

namespace windrow {
namespace {

using test::affine_reference;
using test::AffineMatrix;
using test::exact_output;
using test::outlier_activations;
using test::random_activations;
using test::random_affine;
using test::same_bits;

// Rows of NaN are right here, so an output that was not stored must be something else.
std::vector<float> product(const PackedMatrix& w, const float* x, std::size_t ldx, std::size_t m,
                           ThreadPool& pool) {
  return test::product(w, x, ldx, m, pool, -7.0f);
}

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
  ThreadPool pool = make_pool(1);
  unsigned seed = 1;
  int targets = 0;
  for (const int bits : kBits) {
    for (const int group : kGroups) {
      for (const std::size_t n : {5, 16, 45, 80}) {
        const DType params = kParams[seed % 3];
        const std::size_t k = static_cast<std::size_t>(group) * (n == 45 ? 5 : 3);
        const AffineMatrix w = random_affine(bits, group, params, n, k, seed++);
        const std::vector<float> x = outlier_activations(6, k, seed);
        for (const Compute compute : kModes) {
          const PackedMatrix packed = pack(w, compute, pool);
          const std::vector<float> fused = reference(w, x.data(), 6, compute, true);
          const std::vector<float> twice_rounded = reference(w, x.data(), 6, compute, false);
          targets = testing::on_every_target([&] {
            for (const std::size_t m : {1, 6}) {  // the kernel of one row; a block of four and one of two
              SCOPED_TRACE(fmt::format("{} bits, groups of {}, {}, N {} K {} {}, M {}", bits, group,
                                       dtype_name(params), n, k, name(compute), m));
              const std::vector<float>& all = has_fma(hwy::SupportedTargets()) ? fused : twice_rounded;
              EXPECT_TRUE(same_bits(product(packed, x.data(), k, m, pool), std::span(all).first(m * n)));
            }
          });
        }
      }
    }
  }
  EXPECT_GT(targets, 1);
}

TEST(ProductAffine, ARowsBitsDoNotDependOnTheBatchItsPlaceOrTheThreads) {
  constexpr std::size_t kRows = 150, k = 192, n = 180;  // more than a pass of rows
  ThreadPool pools[] = {make_pool(1), make_pool(2), make_pool(3)};
  unsigned seed = 100;
  for (const int bits : kBits) {
    if (testing::kSanitized && bits > 4) continue;  // unoptimized kernels take a minute a width
    for (const Compute compute : kModes) {
      const AffineMatrix w = random_affine(bits, 64, DType::kBF16, n, k, seed++);
      const PackedMatrix packed = pack(w, compute, pools[0]);
      const std::vector<float> x = outlier_activations(kRows, k, seed++);
      testing::on_every_target([&] {
        const bool slow = testing::kSanitized || !has_fma(hwy::SupportedTargets());
        const std::vector<float> all = product(packed, x.data(), k, slow ? 46 : kRows, pools[0]);
        for (const std::size_t m : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 64, 100}) {
          if (slow && m > 9) continue;
          for (const std::size_t offset : {0, 37}) {
            for (ThreadPool& pool : pools) {
              SCOPED_TRACE(fmt::format("{} bits {} M {} offset {} threads {}", bits, name(compute), m, offset,
                                       pool.threads()));
              EXPECT_TRUE(same_bits(product(packed, x.data() + offset * k, k, m, pool),
                                    std::span(all).subspan(offset * n, m * n)));
            }
          }
        }
      });
    }
  }
}

RC_GTEST_PROP(ProductAffine, AnyShapeStridesAndThreadsGiveTheChain, ()) {
  const int bits = *rc::gen::elementOf(std::vector<int>(std::begin(kBits), std::end(kBits)));
  const int group = *rc::gen::elementOf(std::vector<int>(std::begin(kGroups), std::end(kGroups)));
  const Compute compute = *rc::gen::elementOf(std::vector<Compute>(std::begin(kModes), std::end(kModes)));
  const DType params = *rc::gen::elementOf(std::vector<DType>(std::begin(kParams), std::end(kParams)));
  const std::size_t m = *rc::gen::inRange<std::size_t>(0, 12), n = *rc::gen::inRange<std::size_t>(1, 150);
  const std::size_t k = static_cast<std::size_t>(group) * *rc::gen::inRange<std::size_t>(1, 6);
  const std::size_t ldx = k + *rc::gen::inRange<std::size_t>(0, 9),
                    ldy = n + *rc::gen::inRange<std::size_t>(0, 9);
  ThreadPool pool = make_pool(*rc::gen::inRange(1, 4));
  const AffineMatrix w = random_affine(bits, group, params, n, k, 7);
  const std::vector<float> x = random_activations(m * ldx + 1, 8);
  const PackedMatrix packed = pack(w, compute, pool);
  std::vector<float> y(m * ldy, -5.0f);
  const ProductOutput output{&packed, y.data(), ldy};
  products({&output, 1}, x.data(), ldx, m, pool);
  const bool fused = has_fma(hwy::SupportedTargets());
  for (std::size_t r = 0; r < m; r++) {
    for (std::size_t c = 0; c < ldy; c++) {
      // Between the rows of y nothing is written.
      RC_ASSERT(y[r * ldy + c] ==
                (c < n ? affine_reference(w, c, x.data() + r * ldx, compute, fused) : -5.0f));
    }
  }
}

TEST(ProductAffine, MixedOutputsInOneCallEqualOneCallEach) {
  // Widths, groups, modes and plain weights side by side, as q, k and v of a mixed checkpoint.
  constexpr std::size_t k = 384;
  ThreadPool one = make_pool(1);
  std::vector<PackedMatrix> packed;
  packed.push_back(pack(random_affine(4, 64, DType::kBF16, 40, k, 1), Compute::kDefault, one));
  packed.push_back(pack(random_affine(8, 32, DType::kF16, 1, k, 2), Compute::kFast, one));
  packed.push_back(pack(random_affine(6, 64, DType::kBF16, 333, k, 3), Compute::kDefault, one));
  packed.push_back(pack(random_affine(3, 128, DType::kF32, 16, k, 4), Compute::kF32, one));
  packed.push_back(pack(random_affine(8, 64, DType::kF32, 90, k, 4), Compute::kDefault, one));
  const test::Weights plain = test::random_weights(DType::kBF16, 50, k, 5);
  packed.push_back(*PackedMatrix::pack(plain.dtype, plain.bytes.data(), plain.rows, plain.cols, one));
  for (const std::size_t m : {1, 5, 33}) {
    const std::vector<float> x = random_activations(m * k, 5);
    for (const int threads : {1, 2, 3, 8}) {
      SCOPED_TRACE(fmt::format("M {} threads {}", m, threads));
      ThreadPool pool = make_pool(threads);
      std::vector<std::vector<float>> y;
      std::vector<ProductOutput> outputs;
      for (const PackedMatrix& w : packed) {
        y.emplace_back(m * w.rows(), kNan);
        outputs.push_back({&w, y.back().data(), w.rows()});
      }
      products(outputs, x.data(), k, m, pool);
      for (std::size_t i = 0; i < packed.size(); i++) {
        EXPECT_TRUE(same_bits(y[i], product(packed[i], x.data(), k, m, one))) << "output " << i;
      }
    }
  }
}

TEST(ProductAffine, KernelsWithoutPreparedActivationsMakeTheSameBits) {
  // What products() falls back to when there is no memory for them.
  constexpr std::size_t n = 70, k = 256;
  ThreadPool pool = make_pool(1);
  for (const int bits : kBits) {
    for (const Compute compute : kModes) {
      const PackedMatrix w = pack(random_affine(bits, 64, DType::kBF16, n, k, 1), compute, pool);
      for (const std::size_t m : {1, 7, 140}) {
        SCOPED_TRACE(fmt::format("{} bits {} M {}", bits, name(compute), m));
        std::vector<float> x = outlier_activations(m, k, 2), y(m * n);
        x[0] *= 1e30f;
        if (m > 1) x[k] = kInfinity;
        const internal::AffineJob job{w.data(),
                                      {bits, 64, DType::kBF16},
                                      internal::affine_chain(bits, compute),
                                      k,
                                      n,
                                      0,
                                      5,
                                      x.data(),
                                      k,
                                      nullptr,
                                      m,
                                      y.data(),
                                      n};
        internal::affine_functions().run(job);
        const std::vector<float> expected = product(w, x.data(), k, m, pool);
        for (std::size_t i = 0; i < y.size(); i++) {
          if (i / n == 1) {
            ASSERT_TRUE(std::isnan(y[i]) && std::isnan(expected[i]));
          } else {
            ASSERT_TRUE(same_bits({&y[i], 1}, {&expected[i], 1})) << i;
          }
        }
      }
    }
  }
}

// Relative rms error of all outputs against float64; f32: that of one naive FMA chain.
struct Errors {
  double ours, naive;
};
Errors errors(const AffineMatrix& w, std::span<const float> x, std::size_t m, Compute compute) {
  ThreadPool pool = make_pool(1);
  const PackedMatrix packed = pack(w, compute, pool);
  const std::vector<float> y = product(packed, x.data(), w.cols, m, pool);
  double square = 0, ours = 0, naive = 0;
  for (std::size_t r = 0; r < m; r++) {
    for (std::size_t n = 0; n < w.rows; n++) {
      const double exact = exact_output(w, n, x.data() + r * w.cols);
      const double a = static_cast<double>(y[r * w.rows + n]) - exact;
      const double b = static_cast<double>(test::naive_output(w, n, x.data() + r * w.cols)) - exact;
      square += exact * exact;
      ours += a * a;
      naive += b * b;
    }
  }
  return {std::sqrt(ours / square), std::sqrt(naive / square)};
}

TEST(ProductAffine, ErrorsAgainstFloat64AreThoseOfTheModes) {
  unsigned seed = 1;
  for (const int bits : kBits) {
    for (const int group : kGroups) {
      const AffineMatrix w = random_affine(bits, group, DType::kBF16, 64, 1152, seed++);
      const std::vector<float> x = outlier_activations(8, w.cols, seed++);
      for (const Compute compute : kModes) {
        const Errors e = errors(w, x, 8, compute);
        SCOPED_TRACE(fmt::format("{} bits, groups of {}, {}: {:.2e}, a naive f32 chain {:.2e}", bits, group,
                                 name(compute), e.ours, e.naive));
        if (compute == Compute::kFast) {
          EXPECT_LT(e.ours, 1.2e-4);
          EXPECT_GT(e.ours, 1e-6);  // else the mode was not taken
        } else {
          EXPECT_LT(e.ours, 1e-6);
          EXPECT_LT(e.ours, 1.3 * e.naive);
        }
      }
    }
  }
}

TEST(ProductAffine, ARowWithNanOrInfinityIsNanAndTouchesNoOther) {
  constexpr std::size_t n = 50, k = 192;
  ThreadPool pool = make_pool(2);
  for (const int bits : kBits) {
    for (const Compute compute : kModes) {
      const PackedMatrix packed = pack(random_affine(bits, 64, DType::kBF16, n, k, 1), compute, pool);
      for (const std::size_t m : {1, 9}) {
        const std::vector<float> x = random_activations(m * k, 2);
        for (const float poison : {kNan, -kNan, kInfinity, -kInfinity}) {
          SCOPED_TRACE(fmt::format("{} bits {} M {} {}", bits, name(compute), m, poison));
          std::vector<float> dirty = x;
          const std::size_t bad = m / 2;
          dirty[bad * k + 100] = poison;
          testing::on_every_target([&] {
            const std::vector<float> clean = product(packed, x.data(), k, m, pool);
            const std::vector<float> y = product(packed, dirty.data(), k, m, pool);
            for (std::size_t r = 0; r < m; r++) {
              const std::span<const float> row = std::span(y).subspan(r * n, n);
              if (r == bad) {
                for (const float v : row) EXPECT_TRUE(std::isnan(v));
              } else {
                EXPECT_TRUE(same_bits(row, std::span(clean).subspan(r * n, n)));
              }
            }
          });
        }
      }
    }
  }
}

TEST(ProductAffine, ExtremeActivationsKeepTheErrorOfTheMode) {
  // Rows of every magnitude that f32 has; groups of zeros; rows that mix magnitudes across groups.
  constexpr std::size_t n = 40, k = 256;
  ThreadPool pool = make_pool(1);
  std::vector<std::vector<float>> rows;
  const std::vector<float> normal = random_activations(k, 3);
  for (const float scale : {1e-44f, 1e-39f, 1e-30f, 1e-20f, 1e-10f, 1e10f, 1e20f, 1e30f, 3e37f}) {
    rows.push_back(normal);
    for (float& v : rows.back()) v *= scale;
  }
  rows.push_back(std::vector<float>(k, 0.0f));
  rows.push_back(normal);
  std::fill_n(rows.back().begin() + 64, 64, -0.0f);
  rows.push_back(normal);
  for (std::size_t i = 0; i < k; i++) rows.back()[i] *= i < 64 ? 1e-44f : i < 128 ? 1e-12f : 1e5f;
  rows.push_back(std::vector<float>(k, 0.0f));
  rows.back()[70] = std::numeric_limits<float>::max();
  rows.push_back(std::vector<float>(k, 0.0f));
  rows.back()[200] = -std::numeric_limits<float>::denorm_min();
  for (const int bits : kBits) {
    AffineMatrix w = random_affine(bits, 64, DType::kF32, n, k, 9);
    for (std::size_t r = 0; r < n; r++) {  // small weights: y stays in range where x is the largest
      for (std::size_t g = 0; g < k / 64; g++) {
        w.scales.set(r, g, w.scales.at(r, g) * 0.02f);
        w.biases.set(r, g, w.biases.at(r, g) * 0.02f);
      }
    }
    for (const Compute compute : kModes) {
      const PackedMatrix packed = pack(w, compute, pool);
      for (std::size_t i = 0; i < rows.size(); i++) {
        SCOPED_TRACE(fmt::format("{} bits {} row {}", bits, name(compute), i));
        testing::on_every_target([&] {
          const std::vector<float> y = product(packed, rows[i].data(), k, 1, pool);
          double square = 0, error = 0;
          for (std::size_t c = 0; c < n; c++) {
            const double exact = exact_output(w, c, rows[i].data());
            square += exact * exact;
            error += (y[c] - exact) * (y[c] - exact);
          }
          // A denormal y is a multiple of 2^-149.
          const double unit = 0x1p-149 * std::sqrt(static_cast<double>(n));
          EXPECT_LE(std::sqrt(error), (compute == Compute::kFast ? 2e-4 : 2e-6) * std::sqrt(square) + unit);
        });
      }
    }
  }
}

TEST(ProductAffine, CodesOfEveryValueWithTheLargestLimbsDoNotOverflow) {
  // All codes at their largest, all x at the group's largest with the sign that adds up, and x whose lower
  // limb is at its edges, -64 and 63: the sums that the kernels' derivations bound.
  constexpr std::size_t n = 17;
  ThreadPool pool = make_pool(1);
  for (const int bits : kBits) {
    for (const int group : kGroups) {
      const auto k = static_cast<std::size_t>(group) * 2;
      AffineMatrix w = random_affine(bits, group, DType::kF32, n, k, 3);
      std::fill(w.codes.begin(), w.codes.end(), std::byte{0xff});
      for (const float edge : {1.0f, -1.0f, 64.0f / 4177850, 63.0f / 4177850, -64.0f / 4177850}) {
        std::vector<float> x(2 * k, edge);
        for (std::size_t g = 0; g < 2 * k; g += static_cast<std::size_t>(group)) x[g] = 1;
        for (const Compute compute : kModes) {
          SCOPED_TRACE(fmt::format("{} bits, groups of {} {} edge {}", bits, group, name(compute), edge));
          const PackedMatrix packed = pack(w, compute, pool);
          const std::vector<float> fused = reference(w, x.data(), 2, compute, true);
          const std::vector<float> twice = reference(w, x.data(), 2, compute, false);
          testing::on_every_target([&] {
            const std::vector<float>& all = has_fma(hwy::SupportedTargets()) ? fused : twice;
            EXPECT_TRUE(same_bits(product(packed, x.data(), k, 2, pool), all));
            EXPECT_TRUE(same_bits(product(packed, x.data(), k, 1, pool), std::span(all).first(n)));
          });
        }
      }
    }
  }
}

// Reads the codes of one of MLX's quantized tensors back, as products by unit vectors of the same codes with
// scale 1 and bias 0, and compares what they decode to with MLX's own mx.dequantize.
void check_mlx_tensor(const SafetensorsFile& file, const std::string& prefix, int bits, int group,
                      ThreadPool& pool) {
  SCOPED_TRACE(prefix);
  const TensorView &packed = *file.find(prefix + "packed"), &scales = *file.find(prefix + "scales"),
                   &biases = *file.find(prefix + "biases"), &dequant = *file.find(prefix + "dequant");
  const DType dtype = dequant.dtype;
  const std::size_t cols = dequant.shape.back(), rows = dequant.elements() / cols;
  const auto numbers = [](const TensorView& t, std::size_t count) {
    return test::Weights{t.dtype, 1, count, {t.bytes.begin(), t.bytes.end()}};
  };
  const test::Weights s = numbers(scales, scales.elements()), b = numbers(biases, biases.elements()),
                      expected = numbers(dequant, dequant.elements());
  const std::vector<float> one(scales.elements(), 1.0f), zero(scales.elements(), 0.0f);
  const Result<PackedMatrix> w =
      PackedMatrix::pack({packed.bytes.data(), one.data(), zero.data(), DType::kF32, bits, group}, rows, cols,
                         Compute::kF32, pool);
  ASSERT_TRUE(w.ok()) << w.status().message();
  std::vector<float> identity(cols * cols, 0.0f);
  for (std::size_t i = 0; i < cols; i++) identity[i * cols + i] = 1;
  const std::vector<float> codes = product(*w, identity.data(), cols, cols, pool);
  for (std::size_t r = 0; r < rows; r++) {
    for (std::size_t c = 0; c < cols; c++) {
      const std::size_t g = (r * cols + c) / static_cast<std::size_t>(group);
      const float value = round_to(dtype, round_to(dtype, s.at(0, g) * codes[c * rows + r]) + b.at(0, g));
      const float want = expected.at(0, r * cols + c);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(value)) << r << ' ' << c;
      } else {
        ASSERT_TRUE(same_bits({&value, 1}, {&want, 1})) << r << ' ' << c;
      }
    }
  }
}

TEST(ProductAffine, CodesOfMlxFilesComeOutAsMlxDequantizesThem) {
  ThreadPool pool = make_pool(1);
  int tensors = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WINDROW_TEST_DATA "/mlx/G1_quantize")) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string stem = entry.path().stem().string();
    SCOPED_TRACE(stem);
    const int group = std::stoi(stem.substr(stem.find("_g") + 2));
    const auto file = SafetensorsFile::open(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status().message();
    for (const char* kind : {"rand", "edge"}) {
      for (const int bits : kBits) {
        const std::string prefix = fmt::format("{}.b{}.", kind, bits);
        if (file->find(prefix + "packed") == nullptr) continue;
        check_mlx_tensor(*file, prefix, bits, group, pool);
        tensors++;
      }
    }
  }
  EXPECT_GE(tensors, 6 * 9);
}

TEST(PackedAffineMatrix, TakesTheBytesOfTheFileAndAnyAlignment) {
  ThreadPool one = make_pool(1), three = make_pool(3);
  for (const int bits : kBits) {
    for (const DType params : kParams) {
      const AffineMatrix w = random_affine(bits, 64, params, 80, 320, 1);
      const PackedMatrix expected = pack(w, Compute::kDefault, one);
      EXPECT_EQ(expected.bytes(), w.codes.size() + w.scales.bytes.size() + w.biases.bytes.size());
      EXPECT_EQ(expected.bits(), bits);
      EXPECT_EQ(expected.group(), 64);
      EXPECT_EQ(expected.dtype(), params);
      const auto shifted = [](const std::vector<std::byte>& bytes, std::size_t by) {
        std::vector<std::byte> out(bytes.size() + by);
        std::memcpy(out.data() + by, bytes.data(), bytes.size());
        return out;
      };
      const auto codes = shifted(w.codes, 1), scales = shifted(w.scales.bytes, 1),
                 biases = shifted(w.biases.bytes, 3);
      Result<PackedMatrix> packed =
          PackedMatrix::pack({codes.data() + 1, scales.data() + 1, biases.data() + 3, params, bits, 64}, 80,
                             320, Compute::kDefault, three);
      ASSERT_TRUE(packed.ok());
      ASSERT_EQ(packed->bytes(), expected.bytes());
      EXPECT_EQ(std::memcmp(packed->data(), expected.data(), expected.bytes()), 0);
    }
  }
}

TEST(PackedAffineMatrix, RefusesWhatItCannotHold) {
  ThreadPool pool = make_pool(1);
  const AffineMatrix m = random_affine(4, 64, DType::kBF16, 2, 64, 1);
  constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
  const auto refusal = [&](AffineWeights w, std::size_t rows, std::size_t cols,
                           Compute compute = Compute::kDefault) {
    return PackedMatrix::pack(w, rows, cols, compute, pool).status();
  };
  const auto message = [&](auto change, std::size_t rows = 2, std::size_t cols = 64) {
    AffineWeights w = m.view();
    change(w);
    const Status status = refusal(w, rows, cols);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto same = [](AffineWeights&) {};
  EXPECT_TRUE(refusal(m.view(), 2, 64).ok());
  for (const int bits : {-1, 0, 1, 7, 9, 16, 1 << 30}) {
    EXPECT_EQ(message([&](AffineWeights& w) { w.bits = bits; }),
              fmt::format("quantized weights: {} bits, supported are 2, 3, 4, 5, 6 and 8", bits));
  }
  for (const int group : {-64, 0, 1, 16, 96, 256}) {
    EXPECT_EQ(message([&](AffineWeights& w) { w.group = group; }),
              fmt::format("quantized weights: groups of {}, supported are 32, 64 and 128", group));
  }
  EXPECT_EQ(message(same, 2, 100), "quantized weights: 100 columns are no whole groups of 64");
  EXPECT_EQ(message(same, 0, 64), "quantized weights: shape [0, 64] is empty");
  EXPECT_EQ(message(same, 2, 0), "quantized weights: shape [2, 0] is empty");
  EXPECT_EQ(message([](AffineWeights& w) { w.codes = nullptr; }),
            "quantized weights: no codes for shape [2, 64]");
  EXPECT_EQ(message([](AffineWeights& w) { w.scales = nullptr; }),
            "quantized weights: no scales for shape [2, 64]");
  EXPECT_EQ(message([](AffineWeights& w) { w.biases = nullptr; }),
            "quantized weights: no biases for shape [2, 64]");
  for (const auto& [rows, cols] : std::initializer_list<std::pair<std::size_t, std::size_t>>{
           {huge, 64},
           {1, huge / 64 * 64},
           {huge, huge / 64 * 64},
           {std::size_t{1} << 32, std::size_t{1} << 34}}) {
    EXPECT_EQ(
        message(same, rows, cols),
        fmt::format("quantized weights: shape [{}, {}] of 4 bits exceeds the address space", rows, cols));
  }
  EXPECT_EQ(refusal(m.view(), 2, 64, static_cast<Compute>(9)).code(), StatusCode::kInvalidArgument);
  AffineWeights integer = m.view();
  integer.params = DType::kU8;
  EXPECT_EQ(refusal(integer, 2, 64).code(), StatusCode::kUnsupported);
  EXPECT_EQ(refusal(integer, 2, 64).message(),
            "quantized weights: scales of type U8, supported are F32, F16 and BF16");
  // Fits a size_t but no machine: the system's refusal comes back as a status.
  EXPECT_EQ(refusal(m.view(), std::size_t{1} << 30, std::size_t{1} << 30).code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace windrow
