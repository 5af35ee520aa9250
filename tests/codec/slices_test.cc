// Sliced words: the definition bit by bit, on every instruction set, and back.
#include "codec/slices.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/simd_targets.h"

namespace windrow {
namespace {

std::uint32_t code_at(const std::vector<std::uint32_t>& words, int bits, int word, int slot) {
  return words[static_cast<std::size_t>(word)] >> (slot * bits) & ((1u << bits) - 1);
}

TEST(Slices, ElementsOfAUnitLieInTheSameSlotOfItsWords) {
  std::mt19937 random(3);
  testing::on_every_target([&] {
    for (const int bits : {2, 4, 8}) {
      const int codes = 32 / bits;
      for (const int lanes : {2, 4, 8}) {
        if (bits == 8 && lanes < 8) continue;  // never: 32 dims are a unit of 8 words
        const int words = 3 * lanes;
        std::vector<std::uint32_t> record(static_cast<std::size_t>(words)), sliced(record.size()),
            back(record.size());
        for (std::uint32_t& w : record) w = random();
        slice_words(bits, lanes, record, sliced);
        for (int element = 0; element < words * codes; element++) {
          const int unit = element / (lanes * codes), e = element % (lanes * codes);
          EXPECT_EQ(code_at(sliced, bits, unit * lanes + e % lanes, e / lanes),
                    code_at(record, bits, element / codes, element % codes))
              << bits << " bits over " << lanes << " words, element " << element;
        }
        unslice_words(bits, lanes, sliced, back);
        EXPECT_EQ(back, record);
      }
    }
  });
}

TEST(Slices, LanesAreAsManyAsCutTheDimIntoWholeUnits) {
  EXPECT_EQ(slice_lanes(Codec::affine(4, 64), 256), 8);
  EXPECT_EQ(slice_lanes(Codec::affine(4, 32), 96), 4);  // units of 32: 96 is no multiple of 64
  EXPECT_EQ(slice_lanes(Codec::affine(8, 32), 32), 8);
  EXPECT_EQ(slice_lanes(Codec::affine(2, 64), 128), 8);
  EXPECT_EQ(slice_lanes(Codec::affine(2, 64), 64), 4);
  EXPECT_EQ(slice_lanes(Codec::affine(2, 32), 32), 2);
  for (const Codec codec :
       {Codec::affine(3), Codec::affine(5), Codec::affine(6), Codec::f32(), Codec::bf16()})
    EXPECT_EQ(slice_lanes(codec, 128), 1);
}

TEST(Slices, EncodingSlicedEqualsSlicingWhatWasEncoded) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  testing::on_every_target([&] {
    for (const int bits : {2, 4, 8}) {
      for (const int dim : {32, 64, 96, 128, 256, 512}) {
        for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
          const Codec codec = Codec::affine(bits, dim % 64 == 0 ? 64 : 32, input);
          const int lanes = slice_lanes(codec, dim);
          std::vector<float> x(static_cast<std::size_t>(dim));
          for (float& v : x) v = normal(random);
          const auto words = static_cast<std::size_t>(codec.record_words(dim)),
                     params = static_cast<std::size_t>(codec.record_params(dim));
          std::vector<std::uint32_t> record(words), expected(words), sliced(words), p(params), q(params);
          encode_record_scalar(codec, x, record, p);
          slice_words(bits, lanes, record, expected);
          encode_sliced(codec, lanes, x, sliced, q);
          EXPECT_EQ(sliced, expected) << codec.to_string() << " of " << dim;
          EXPECT_EQ(p, q);
        }
      }
    }
  });
}

}  // namespace
}  // namespace windrow
