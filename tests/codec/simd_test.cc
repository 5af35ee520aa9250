// encode_record and decode_record on every instruction set against the scalar definition.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "codec/codec_inputs.h"
#include "support/simd_targets.h"
#include "windrow/codec.h"

namespace windrow {
namespace {

using testing::Numbers;
using testing::Record;

std::string label(const Codec& codec, int dim) { return codec.to_string() + " of " + std::to_string(dim); }

TEST(CodecSimd, EncodesTheScalarBytesOfEveryCodecDimAndKindOfNumbers) {
  std::size_t cases = 0;
  const int targets = testing::on_every_target([&cases] {
    std::mt19937 random(7);
    for (const Codec& codec : testing::all_codecs()) {
      for (const int dim : testing::head_dims(codec)) {
        for (int kind = 0; kind < static_cast<int>(Numbers::kCount); kind++) {
          const auto n = static_cast<std::size_t>(dim);
          // One number in front: the vectors of a caller stand at any address of a float.
          const std::vector<float> x = testing::numbers(static_cast<Numbers>(kind), n + 1, random);
          Record want(codec, dim), got(codec, dim);
          encode_record_scalar(codec, {x.data() + 1, n}, want.words, want.params);
          encode_record(codec, {x.data() + 1, n}, got.words, got.params);
          ASSERT_EQ(got.words, want.words) << label(codec, dim) << " kind " << kind;
          ASSERT_EQ(got.params, want.params) << label(codec, dim) << " kind " << kind;
          cases++;
        }
      }
    }
  });
  EXPECT_GE(targets, 2);  // x86-64 machines of the last 15 years have SSE4 beside the baseline
  EXPECT_GT(cases, 8000u * static_cast<unsigned>(targets));
}

TEST(CodecSimd, DecodesTheScalarNumbersOfEncodedAndOfArbitraryRecords) {
  testing::on_every_target([] {
    std::mt19937 random(8);
    for (const Codec& codec : testing::all_codecs()) {
      for (const int dim : testing::head_dims(codec)) {
        for (int kind = 0; kind <= static_cast<int>(Numbers::kCount); kind++) {
          const auto n = static_cast<std::size_t>(dim);
          Record record(codec, dim);
          if (kind == static_cast<int>(Numbers::kCount)) {
            for (std::uint32_t& w : record.words) w = random();
            for (std::uint32_t& p : record.params) p = random();
          } else {
            const std::vector<float> x = testing::numbers(static_cast<Numbers>(kind), n, random);
            encode_record_scalar(codec, x, record.words, record.params);
          }
          std::vector<float> want(n), got(n);
          decode_record_scalar(codec, record.words, record.params, want);
          decode_record(codec, record.words, record.params, got);
          ASSERT_EQ(testing::bits_of(got), testing::bits_of(want)) << label(codec, dim) << " kind " << kind;
        }
      }
    }
  });
}

TEST(CodecSimd, EverySixteenBitFloatDecodesAndEncodesBack) {
  testing::on_every_target([] {
    for (const Codec codec : {Codec::f16(), Codec::bf16()}) {
      for (std::uint32_t first = 0; first < 65536; first += 1024) {
        Record record(codec, 1024), again(codec, 1024);
        for (std::uint32_t i = 0; i < 512; i++) {
          const std::uint32_t low = first + 2 * i;
          record.words[i] = low | (low + 1) << 16;
        }
        std::vector<float> x(1024), want(1024);
        decode_record(codec, record.words, {}, x);
        decode_record_scalar(codec, record.words, {}, want);
        ASSERT_EQ(testing::bits_of(x), testing::bits_of(want));
        encode_record(codec, x, again.words, again.params);
        for (std::uint32_t i = 0; i < 1024; i++) {
          if (std::isnan(x[i])) continue;  // signalling ones come back quiet
          ASSERT_EQ(again.words[i / 2] >> (i % 2 * 16) & 0xffff, first + i);
        }
      }
    }
  });
}

RC_GTEST_PROP(CodecSimd, AnyFloatBitsEncodeToTheScalarBytesOnEveryTarget, ()) {
  const auto codecs = testing::all_codecs();
  const Codec codec = codecs[*rc::gen::inRange<std::size_t>(0, codecs.size())];
  const int unit = codec.is_affine() ? codec.group() : 16;
  const int dim = unit * *rc::gen::inRange(1, 512 / unit + 1);
  std::vector<float> x;
  for (const std::uint32_t bits : *rc::gen::container<std::vector<std::uint32_t>>(
           static_cast<std::size_t>(dim), rc::gen::arbitrary<std::uint32_t>())) {
    x.push_back(std::bit_cast<float>(bits));
  }
  Record want(codec, dim);
  encode_record_scalar(codec, x, want.words, want.params);
  testing::on_every_target([&] {
    Record got(codec, dim);
    encode_record(codec, x, got.words, got.params);
    RC_ASSERT(got == want);
  });
}

}  // namespace
}  // namespace windrow
