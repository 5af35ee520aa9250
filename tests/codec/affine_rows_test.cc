// Rows of any length: the codec's records cut and joined, and back as f32.
#include "codec/affine_rows.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "base/load_float.h"
#include "support/simd_targets.h"

namespace windrow {
namespace {

std::vector<std::byte> random_rows(DType dtype, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes(count * dtype_size(dtype));
  for (std::size_t i = 0; i < count; i++) {
    const float f = normal(random);
    const std::uint16_t h = dtype == DType::kF16 ? f16_from_f32(f) : bf16_from_f32(f);
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[4 * i], &f, 4);
    } else {
      std::memcpy(&bytes[2 * i], &h, 2);
    }
  }
  return bytes;
}

// One group at a time through the scalar codec, codes and parameters put where MLX has them.
struct Reference {
  std::vector<std::uint32_t> codes;
  std::vector<float> scales, biases, values;  // values: round(scale * code) + bias in f32

  Reference(const AffineFormat& f, DType dtype, const std::vector<std::byte>& rows, std::size_t cols) {
    const auto group = static_cast<std::size_t>(f.group), size = dtype_size(dtype);
    const Codec codec = Codec::affine(f.bits, f.group, dtype);
    for (std::size_t at = 0; at < rows.size() / size; at += group) {
      std::vector<float> x(group);
      for (std::size_t i = 0; i < group; i++) x[i] = load_float(dtype, &rows[(at + i) * size]);
      std::vector<std::uint32_t> words(group * static_cast<std::size_t>(f.bits) / 32);
      std::uint32_t params[2];
      encode_record_scalar(codec, x, words, {params, static_cast<std::size_t>(codec.record_params(f.group))});
      codes.insert(codes.end(), words.begin(), words.end());
      if (dtype == DType::kF32) {
        scales.push_back(std::bit_cast<float>(params[0]));
        biases.push_back(std::bit_cast<float>(params[1]));
      } else {
        const std::uint16_t low = params[0] & 0xffff, high = static_cast<std::uint16_t>(params[0] >> 16);
        scales.push_back(dtype == DType::kF16 ? f32_from_f16(low) : f32_from_bf16(low));
        biases.push_back(dtype == DType::kF16 ? f32_from_f16(high) : f32_from_bf16(high));
      }
      for (std::size_t i = 0; i < group; i++) {
        const std::size_t bit = i * static_cast<std::size_t>(f.bits);
        std::uint64_t wide = words[bit / 32];
        if (bit / 32 + 1 < words.size()) wide |= static_cast<std::uint64_t>(words[bit / 32 + 1]) << 32;
        const auto code = static_cast<float>((wide >> bit % 32) & ((1u << f.bits) - 1));
        const float product = scales.back() * code;
        values.push_back(product + biases.back());
      }
    }
    (void)cols;
  }
};

TEST(AffineRows, EqualTheCodecGroupByGroupAtAnyWidthTypeAndAlignment) {
  ThreadPool pool = ThreadPool::create(2).value();
  constexpr std::size_t kRows = 3;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const std::size_t cols :
             {std::size_t(group), std::size_t{1024}, 1024 + 3 * std::size_t(group)}) {
          const AffineFormat format{bits, group};
          const std::vector<std::byte> rows = random_rows(dtype, kRows * cols, 5);
          const Reference want(format, dtype, rows, cols);
          std::vector<std::byte> shifted(rows.size() + 1);
          std::memcpy(&shifted[1], rows.data(), rows.size());
          const std::size_t param_bytes = affine_param_bytes(format, cols, dtype);
          std::vector<std::byte> codes(kRows * affine_code_bytes(format, cols));
          std::vector<std::byte> scales(kRows * param_bytes), biases(kRows * param_bytes);
          testing::on_every_target([&] {
            std::fill(codes.begin(), codes.end(), std::byte{0xee});
            quantize_rows(format, dtype, &shifted[1], kRows, cols,
                          {codes.data(), scales.data(), biases.data()}, pool);
            ASSERT_EQ(codes.size(), 4 * want.codes.size());
            EXPECT_EQ(std::memcmp(codes.data(), want.codes.data(), codes.size()), 0);
            for (std::size_t i = 0; i < want.scales.size(); i++) {
              ASSERT_EQ(load_float(dtype, &scales[i * dtype_size(dtype)]), want.scales[i]);
              ASSERT_EQ(load_float(dtype, &biases[i * dtype_size(dtype)]), want.biases[i]);
            }
            std::vector<float> row(cols);
            for (std::size_t r = 0; r < kRows; r++) {
              const AffineArrays<const std::byte> at{codes.data() + r * affine_code_bytes(format, cols),
                                                     scales.data() + r * param_bytes,
                                                     biases.data() + r * param_bytes};
              dequantize_row(format, dtype, at, cols, 1.0f, row.data());
              EXPECT_EQ(std::memcmp(row.data(), &want.values[r * cols], 4 * cols), 0);
              dequantize_row(format, dtype, at, cols, 3.0f, row.data());
              EXPECT_EQ(row[5], want.values[r * cols + 5] * 3.0f);
            }
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace windrow
