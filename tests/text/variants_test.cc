// The parts of the tokenizer against what Hugging Face tokenizers do (variants.json and byte_level.json of
// tests/data/tokenizers, written by make_variants.js and make_byte_level.js beside them).
#include <gtest/gtest.h>

#include "text/component.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_data.h"

namespace windrow::text {
namespace {

using nlohmann::json;

const json& variants() {
  static const json all = read_test_json("tokenizers/variants.json");
  return all;
}

const json& byte_level() {
  static const json all = read_test_json("tokenizers/byte_level.json");
  return all;
}

TEST(Variants, EachNormalizerGivesTheTextOfHuggingFace) {
  ASSERT_GE(variants().at("normalizers").size(), 15u);
  for (const json& variant : variants().at("normalizers")) {
    SCOPED_TRACE(variant.at("config").dump());
    Status error;
    Component component(variant.at("config"), "f", error, "normalizer");
    const Normalizer normalizer = Normalizer::parse(component);
    ASSERT_TRUE(error.ok()) << error.message();
    for (const json& c : variant.at("cases")) {
      auto text = c[0].get<std::string>();
      ASSERT_TRUE(normalizer.apply(text).ok());
      EXPECT_EQ(text, c[1].get<std::string>()) << c[0].dump();
    }
  }
}

void check_pre_tokenizers(const json& list) {
  for (const json& variant : list) {
    SCOPED_TRACE(variant.at("config").dump());
    Status error;
    Component component(variant.at("config"), "f", error, "pre_tokenizer");
    const PreTokenizer pre_tokenizer = PreTokenizer::parse(component);
    ASSERT_TRUE(error.ok()) << error.message();
    for (const json& c : variant.at("cases")) {
      Words words;
      words.text = c[0].get<std::string>();
      if (!words.text.empty()) words.spans.push_back({0, words.text.size()});
      ASSERT_TRUE(pre_tokenizer.apply(words).ok());
      std::vector<std::string> got;
      for (std::size_t i = 0; i < words.spans.size(); i++) got.emplace_back(words.word(i));
      EXPECT_EQ(json(got).dump(), c[1].dump()) << c[0].dump();
    }
  }
}

TEST(Variants, EachPreTokenizerCutsTheWordsOfHuggingFace) {
  ASSERT_GE(variants().at("pre_tokenizers").size(), 40u);
  check_pre_tokenizers(variants().at("pre_tokenizers"));
}

TEST(Variants, TheByteLevelExpressionsOfPublishedModelsCutTheWordsOfHuggingFace) {
  ASSERT_GE(byte_level().at("pre_tokenizers").size(), 11u);
  check_pre_tokenizers(byte_level().at("pre_tokenizers"));
}

TEST(Variants, EachDecoderGivesTheTextOfHuggingFace) {
  ASSERT_GE(variants().at("decoders").size(), 12u);
  for (const json& variant : variants().at("decoders")) {
    const json& config = variant.at("config");
    SCOPED_TRACE(config.dump());
    DecoderChain chain;
    if (!config.is_null()) {
      Status error;
      Component component(config, "f", error, "decoder");
      chain = DecoderChain::parse(component);
      ASSERT_TRUE(error.ok()) << error.message();
    }
    for (const json& c : variant.at("cases")) {
      DecoderState state(chain);
      std::string text;
      for (const json& piece : c[0]) ASSERT_TRUE(state.push(piece.get<std::string>(), text).ok());
      state.finish(text);
      EXPECT_EQ(text, c[1].get<std::string>()) << c[0].dump();
    }
  }
}

// The file of a variant: the base with the patch's members put over it, inside "model" one level deeper.
json file_of(const json& variant) {
  json file = read_test_json("tokenizers/" + variant.at("base").get<std::string>() + ".json");
  for (const auto& [key, value] : variant.at("patch").items()) {
    if (key != "model") file[key] = value;
  }
  if (!variant.at("patch").contains("model")) return file;
  for (const auto& [key, value] : variant.at("patch").at("model").items()) {
    if (key != "merges") {
      file["model"][key] = value;
      continue;
    }
    for (json& merge : file["model"]["merges"]) {
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    }
  }
  return file;
}

void check_tokenizers(const json& list) {
  for (const json& variant : list) {
    SCOPED_TRACE(variant.at("patch").dump());
    const auto tokenizer = Tokenizer::parse(file_of(variant).dump());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    for (const json& c : variant.at("cases")) {
      SCOPED_TRACE(c.at("text").dump());
      const auto ids = tokenizer->encode(c.at("text").get<std::string>());
      ASSERT_TRUE(ids.ok()) << ids.status().message();
      EXPECT_EQ(json(*ids).dump(), c.at("ids").dump());
      const auto wanted = c.at("ids").get<std::vector<std::int32_t>>();
      EXPECT_EQ(*tokenizer->decode(wanted), c.at("decoded").get<std::string>());
      EXPECT_EQ(*tokenizer->decode(wanted, true), c.at("decoded_all").get<std::string>());
    }
  }
}

TEST(Variants, EachTokenizerGivesTheIdsAndTheTextOfHuggingFace) {
  ASSERT_GE(variants().at("tokenizers").size(), 15u);
  check_tokenizers(variants().at("tokenizers"));
}

TEST(Variants, ByteLevelTokenizersOfPublishedShapesGiveTheIdsAndTheTextOfHuggingFace) {
  ASSERT_GE(byte_level().at("tokenizers").size(), 7u);
  check_tokenizers(byte_level().at("tokenizers"));
}

}  // namespace
}  // namespace windrow::text
