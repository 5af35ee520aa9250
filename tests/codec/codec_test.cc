// Codec names, limits and their messages.
#include "windrow/codec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "codec/codec_inputs.h"

namespace windrow {
namespace {

std::string error_of(std::string_view text) {
  const auto r = Codec::parse(text);
  EXPECT_FALSE(r.ok()) << text;
  if (r.ok()) return "";
  EXPECT_EQ(r.status().code(), StatusCode::kInvalidArgument);
  return r.status().message();
}

TEST(CodecParse, ReadsPlainAndAffineNamesWithDefaults) {
  EXPECT_EQ(*Codec::parse("f32"), Codec::f32());
  EXPECT_EQ(*Codec::parse("f16"), Codec::f16());
  EXPECT_EQ(*Codec::parse("bf16"), Codec::bf16());
  EXPECT_EQ(*Codec::parse("q4"), Codec::affine(4, 64, DType::kBF16));
  EXPECT_EQ(*Codec::parse("q4:64:bf16"), Codec::affine(4, 64, DType::kBF16));
  EXPECT_EQ(*Codec::parse("q3:128"), Codec::affine(3, 128, DType::kBF16));
  EXPECT_EQ(*Codec::parse("q8:32:f16"), Codec::affine(8, 32, DType::kF16));
}

TEST(CodecParse, ReadsBackTheNameOfEveryCodec) {
  for (const Codec& codec : testing::all_codecs()) {
    const auto again = Codec::parse(codec.to_string());
    ASSERT_TRUE(again.ok()) << codec.to_string();
    EXPECT_EQ(*again, codec);
    EXPECT_TRUE(codec.valid());
  }
  EXPECT_EQ(Codec().to_string(), "bf16");
  EXPECT_EQ(Codec::affine(4).to_string(), "q4:64");
  EXPECT_EQ(Codec::affine(4, 64, DType::kF32).to_string(), "q4:64:f32");
}

TEST(CodecParse, SaysWhichPartIsWrong) {
  EXPECT_EQ(error_of("q7"), "codec \"q7\": affine bits are 2, 3, 4, 5, 6 or 8");
  for (const char* bits :
       {"q", "q:64", "q0", "q04", "q1", "q9", "q16", "q4294967300", "q-4", "q+4", "q 4", "q4 "}) {
    EXPECT_NE(error_of(bits).find("affine bits are 2, 3, 4, 5, 6 or 8"), std::string::npos) << bits;
  }
  EXPECT_EQ(error_of("q4:48"), "codec \"q4:48\": the group is 32, 64 or 128");
  for (const char* group : {"q4:", "q4::bf16", "q4:064", "q4:0", "q4:16", "q4:256", "q4:6 4"}) {
    EXPECT_NE(error_of(group).find("the group is 32, 64 or 128"), std::string::npos) << group;
  }
  EXPECT_EQ(error_of("q4:64:f64"), "codec \"q4:64:f64\": the input type is f32, f16 or bf16");
  EXPECT_EQ(error_of("q4:64:"), "codec \"q4:64:\": the input type is f32, f16 or bf16");
  EXPECT_EQ(error_of("q4:64:f32:"), "codec \"q4:64:f32:\": nothing follows the input type");
  EXPECT_EQ(error_of(""),
            "codec \"\": expected f32, f16, bf16, qBITS, qBITS:GROUP or qBITS:GROUP:INPUT, lower case");
}

TEST(CodecParse, KnowsOneSpellingInLowerCase) {
  for (const char* text : {"Q4", "BF16", "F32", "Bf16", "q4:64:BF16"}) error_of(text);
}

TEST(CodecParse, QuotesJunkInOneShortPrintableLine) {
  EXPECT_EQ(error_of("q4\n\"\xff"), "codec \"q4\\x0a\\\"\\xff\": affine bits are 2, 3, 4, 5, 6 or 8");
  const std::string message = error_of(std::string(5'000'000, 'q'));
  EXPECT_EQ(message.rfind("codec \"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq...\" (5000000 bytes): ", 0), 0u)
      << message;
  EXPECT_NE(error_of(std::string("q4\0:64", 6)).find("\\x00"), std::string::npos);
}

RC_GTEST_PROP(CodecParse, AnyTextGivesACodecThatPrintsToAnEqualOneOrOneLine, ()) {
  // Pieces of real names make near misses likely; plain strings make the rest.
  const auto piece =
      rc::gen::oneOf(rc::gen::element<std::string>("q", "4", "64", ":", "bf16", "f32", "3", "128"),
                     rc::gen::arbitrary<std::string>());
  std::string text;
  for (const std::string& p : *rc::gen::container<std::vector<std::string>>(piece)) text += p;
  const auto r = Codec::parse(text);
  if (r.ok()) {
    RC_ASSERT(r->valid());
    RC_ASSERT(*Codec::parse(r->to_string()) == *r);
  } else {
    const std::string m = r.status().message();
    RC_ASSERT(m.size() < 300u);
    RC_ASSERT(std::all_of(m.begin(), m.end(), [](char c) { return c >= ' ' && c <= '~'; }));
  }
}

TEST(CodecValid, RefusesWhatNoStorageExistsFor) {
  for (int bits = -1; bits <= 33; bits++) {
    const bool ok = bits >= 2 && bits <= 8 && bits != 7;
    EXPECT_EQ(Codec::affine(bits).valid(), ok) << bits;
  }
  for (const int group : {-64, 0, 1, 16, 33, 48, 96, 256})
    EXPECT_FALSE(Codec::affine(4, group).valid()) << group;
  for (const DType input : {DType::kF64, DType::kU8, DType::kI32, DType::kBool}) {
    EXPECT_FALSE(Codec::affine(4, 64, input).valid());
  }
}

TEST(CodecCheck, NamesTheLimitThatAHeadDimBreaks) {
  EXPECT_TRUE(Codec::bf16().check(16).ok());
  EXPECT_TRUE(Codec::f32().check(1024).ok());
  EXPECT_EQ(Codec::bf16().check(0).message(), "codec bf16: head_dim 0, expected 16 to 1024");
  EXPECT_EQ(Codec::bf16().check(-16).message(), "codec bf16: head_dim -16, expected 16 to 1024");
  EXPECT_EQ(Codec::f16().check(1040).message(), "codec f16: head_dim 1040, expected 16 to 1024");
  EXPECT_EQ(Codec::f32().check(72).message(), "codec f32: head_dim 72 is not a multiple of 16");
  EXPECT_TRUE(Codec::affine(4, 32).check(96).ok());
  EXPECT_EQ(Codec::affine(4, 64).check(96).message(),
            "codec q4:64: head_dim 96 is not a multiple of 64, the group");
  EXPECT_EQ(Codec::affine(7).check(64).message(), "codec q7:64: affine bits are 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(Codec::affine(4, 0).check(64).message(), "codec q4:0: the group is 32, 64 or 128");
  EXPECT_EQ(Codec::affine(4, 64, DType::kI8).check(64).message(),
            "codec q4:64:I8: the input type is f32, f16 or bf16");
}

TEST(CodecSizes, RecordBytesAreCodesAndOnePairAGroup) {
  for (const Codec& codec : testing::all_codecs()) {
    for (const int dim : testing::head_dims(codec)) {
      const auto d = static_cast<std::size_t>(dim);
      std::size_t bytes = d * dtype_size(codec.input());
      if (codec.is_affine()) {
        bytes = d * static_cast<std::size_t>(codec.bits()) / 8 +
                d / static_cast<std::size_t>(codec.group()) * 2 * dtype_size(codec.input());
      }
      EXPECT_EQ(codec.record_bytes(dim), bytes) << codec.to_string() << ' ' << dim;
    }
  }
}

}  // namespace
}  // namespace windrow
