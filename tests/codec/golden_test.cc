// Affine codecs against MLX's own output (tests/data/mlx/G1_quantize): codes, scales, biases and
// dequantized numbers of every bits x group x dtype, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/float16.h"
#include "codec/affine.h"
#include "io/safetensors.h"
#include "support/simd_targets.h"
#include "windrow/codec.h"

namespace windrow {
namespace {

std::vector<std::uint32_t> raw_words(const TensorView& t) {
  std::vector<std::uint32_t> out(t.bytes.size() / 4);
  std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
  return out;
}

// The raw bits of float tensor elements, 16 or 32 wide.
std::vector<std::uint32_t> raw_bits(const TensorView& t) {
  if (t.dtype == DType::kF32) return raw_words(t);
  std::vector<std::uint16_t> half(t.bytes.size() / 2);
  std::memcpy(half.data(), t.bytes.data(), t.bytes.size());
  return {half.begin(), half.end()};
}

float widen(DType dtype, std::uint32_t bits) {
  if (dtype == DType::kF32) return std::bit_cast<float>(bits);
  const auto h = static_cast<std::uint16_t>(bits);
  return dtype == DType::kF16 ? f32_from_f16(h) : f32_from_bf16(h);
}

std::vector<float> as_f32(const TensorView& t) {
  std::vector<float> out;
  for (const std::uint32_t b : raw_bits(t)) out.push_back(widen(t.dtype, b));
  return out;
}

struct Set {  // one (x, bits) of a file
  std::string name;
  Codec codec;
  std::size_t dim;
  std::vector<float> x;
  std::vector<std::uint32_t> packed, scales, biases, dequant;
};

std::vector<Set> load_sets() {
  std::vector<Set> sets;
  for (const auto& entry : std::filesystem::directory_iterator(WINDROW_TEST_DATA "/mlx/G1_quantize")) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string stem = entry.path().stem().string();
    const std::size_t g = stem.find("_g") + 2;
    const int group = std::stoi(stem.substr(g));
    const auto file = SafetensorsFile::open(entry.path().string());
    EXPECT_TRUE(file.ok()) << file.status().message();
    if (!file.ok()) return {};
    const auto tensor = [&](const std::string& name) -> const TensorView& {
      const TensorView* view = file->find(name);
      if (view == nullptr) throw std::runtime_error(stem + " lacks " + name);
      return *view;
    };
    for (const std::string kind : {"rand", "edge"}) {
      if (file->find(kind + ".x") == nullptr) continue;
      const TensorView& x = tensor(kind + ".x");
      for (const int bits : {2, 3, 4, 5, 6, 8}) {
        const std::string prefix = kind + ".b" + std::to_string(bits) + ".";
        sets.push_back({stem + " " + prefix, Codec::affine(bits, group, x.dtype), x.shape.back(), as_f32(x),
                        raw_words(tensor(prefix + "packed")), raw_bits(tensor(prefix + "scales")),
                        raw_bits(tensor(prefix + "biases")), raw_bits(tensor(prefix + "dequant"))});
      }
    }
  }
  return sets;
}

using Encode = void (*)(const Codec&, std::span<const float>, std::span<std::uint32_t>,
                        std::span<std::uint32_t>);
using Decode = void (*)(const Codec&, std::span<const std::uint32_t>, std::span<const std::uint32_t>,
                        std::span<float>);

// Row by row, as positions of a cache.
void expect_equal_to_mlx(const Set& set, Encode encode, Decode decode) {
  SCOPED_TRACE(set.name);
  const int dim = static_cast<int>(set.dim);
  ASSERT_TRUE(set.codec.check(dim).ok());
  const auto words = static_cast<std::size_t>(set.codec.record_words(dim));
  const std::size_t groups = set.dim / static_cast<std::size_t>(set.codec.group());
  const std::size_t rows = set.x.size() / set.dim;
  ASSERT_EQ(set.packed.size(), rows * words);
  ASSERT_EQ(set.scales.size(), rows * groups);
  ASSERT_EQ(set.dequant.size(), set.x.size());
  std::vector<std::uint32_t> w(words), p(static_cast<std::size_t>(set.codec.record_params(dim)));
  std::vector<float> decoded(set.dim);
  const bool wide = set.codec.input() == DType::kF32;
  for (std::size_t row = 0; row < rows; row++) {
    encode(set.codec, {&set.x[row * set.dim], set.dim}, w, p);
    for (std::size_t i = 0; i < words; i++) ASSERT_EQ(w[i], set.packed[row * words + i]) << row << ' ' << i;
    for (std::size_t g = 0; g < groups; g++) {
      ASSERT_EQ(wide ? p[2 * g] : p[g] & 0xffff, set.scales[row * groups + g]) << row << ' ' << g;
      ASSERT_EQ(wide ? p[2 * g + 1] : p[g] >> 16, set.biases[row * groups + g]) << row << ' ' << g;
    }
    decode(set.codec, w, p, decoded);
    for (std::size_t i = 0; i < set.dim; i++) {
      const float want = widen(set.codec.input(), set.dequant[row * set.dim + i]);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(decoded[i])) << row << ' ' << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(decoded[i]), std::bit_cast<std::uint32_t>(want))
            << row << ' ' << i;
      }
    }
  }
}

class CodecGolden : public ::testing::Test {
 protected:
  static const std::vector<Set>& sets() {
    static const std::vector<Set> all = load_sets();
    return all;
  }
};

TEST_F(CodecGolden, HoldsEveryCodecOfTheMatrix) {
  std::set<std::string> codecs;
  std::size_t nan = 0;
  for (const Set& s : sets()) {
    codecs.insert(s.codec.to_string());
    for (const std::uint32_t b : s.dequant) nan += std::isnan(widen(s.codec.input(), b));
  }
  // 27 files (dtype x group x head_dim), each with random rows, 15 of them with edge rows too; 6 bit widths.
  EXPECT_EQ(sets().size(), (27u + 15u) * 6);
  EXPECT_EQ(codecs.size(), 6u * 3 * 3);  // bits x group x input
  EXPECT_GT(nan, 0u);                    // the overflowing edge rows are there
}

TEST_F(CodecGolden, ScalarEqualsMlxBitForBit) {
  for (const Set& s : sets()) expect_equal_to_mlx(s, encode_record_scalar, decode_record_scalar);
}

TEST_F(CodecGolden, EveryInstructionSetEqualsMlxBitForBit) {
  testing::on_every_target([] {
    for (const Set& s : sets()) expect_equal_to_mlx(s, encode_record, decode_record);
  });
}

}  // namespace
}  // namespace windrow
