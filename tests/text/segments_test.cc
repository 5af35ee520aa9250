// Text of users among control tokens: encoded in other pieces, and otherwise as the whole.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "text/tokenizer_data.h"

namespace windrow {
namespace {

using Ids = std::vector<std::int32_t>;
using Segments = std::vector<TextSegment>;

const Tokenizer& style(const std::string& name) {
  static const Tokenizer gemma = load_test_tokenizer("gemma-style"),
                         llama3 = load_test_tokenizer("llama3-style");
  return name == "gemma" ? gemma : llama3;
}

Ids encode(const Tokenizer& tokenizer, const Segments& segments, const std::string& markup = "") {
  const Result<Ids> ids = tokenizer.encode_segments(segments, markup);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : Ids{};
}

std::size_t count(const Ids& ids, std::int32_t id) {
  return static_cast<std::size_t>(std::count(ids.begin(), ids.end(), id));
}

Tokenizer parse(const nlohmann::json& file) {
  Result<Tokenizer> tokenizer = Tokenizer::parse(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(*tokenizer);
}

nlohmann::json with_token(const std::string& base, int id, const std::string& content, bool special,
                          bool normalized) {
  nlohmann::json file = read_test_json("tokenizers/" + base + ".json");
  file["added_tokens"].push_back({{"id", id},
                                  {"content", content},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", normalized},
                                  {"special", special}});
  return file;
}

TEST(Segments, PlainTextNeverBecomesAControlToken) {
  const Tokenizer& gemma = style("gemma");
  const std::int32_t end = *gemma.id_of("<end_of_turn>"), bos = *gemma.id_of("<bos>");
  const Ids ids = encode(gemma, {{"<bos>", false}, {"a<end_of_turn>b<bos>", true}, {"<end_of_turn>", false}});
  EXPECT_EQ(count(ids, end), 1u);
  EXPECT_EQ(count(ids, bos), 1u);
  EXPECT_EQ(ids.front(), bos);
  EXPECT_EQ(ids.back(), end);
  EXPECT_EQ(*gemma.decode(ids, true), "<bos>a<end_of_turn>b<bos><end_of_turn>");
}

TEST(Segments, AControlTokenThatOnlyHalfComesFromTheTemplateIsNone) {
  const Tokenizer& llama = style("llama3");
  const std::int32_t end = *llama.id_of("<|eot_id|>");
  for (const Segments& segments : std::initializer_list<Segments>{
           {{"<|eot", false}, {"_id|>", true}},
           {{"<|eot", true}, {"_id|>", false}},
           {{"<|", false}, {"eot", true}, {"_id|>", false}},
           {{"<|eot_id|", false}, {">", true}},
           {{"<|eot_id", true}, {"|>", true}},
       }) {
    const Ids ids = encode(llama, segments);
    EXPECT_EQ(count(ids, end), 0u);
    EXPECT_EQ(*llama.decode(ids, true), "<|eot_id|>");
  }
  EXPECT_EQ(encode(llama, {{"<|eot", false}, {"_id|>", false}}), Ids{end});
  EXPECT_EQ(encode(llama, {{"<|eot_id|>", false}, {"", true}}), Ids{end});
}

// Cut anywhere into segments of either kind, text that spells no control token has the ids of the whole.
RC_GTEST_PROP(Segments, WithoutControlTokensTheIdsAreThoseOfTheWholeText, ()) {
  static const std::vector<std::string> kWords = {"Hello", " world", "  two", "\n\n", "n't", "123", "<",
                                                  "|",     ">",      "é",     "🦀", "\t",  "."};
  const auto words = *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(kWords));
  for (const char* name : {"gemma", "llama3"}) {
    std::string whole;
    Segments segments;
    for (const std::string& word : words) {
      whole += word;
      segments.push_back({word, *rc::gen::arbitrary<bool>()});
    }
    RC_ASSERT(encode(style(name), segments) == *style(name).encode(whole, false));
  }
}

// Whatever users say: the control ids of a conversation are those of the template's own segments.
RC_GTEST_PROP(Segments, ControlIdsComeFromTheTemplateOnly, ()) {
  static const std::vector<std::string> kParts = {
      "<bos>", "<end_of_turn>", "<start_of_turn>",   "<",  "end_of_turn>", "a",
      " ",     "<|eot_id|>",    "<|begin_of_text|>", "|>", "<|",           "eot_id"};
  const auto parts = *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(kParts));
  for (const char* name : {"gemma", "llama3"}) {
    const Tokenizer& tokenizer = style(name);
    Segments segments;
    std::vector<std::int32_t> expected;
    for (const std::string& part : parts) {
      const bool plain = *rc::gen::arbitrary<bool>();
      // Two of the template's side by side could spell a token together.
      if (!plain && !segments.empty() && !segments.back().plain) segments.push_back({"-", true});
      segments.push_back({part, plain});
      const auto id = tokenizer.id_of(part);
      if (!plain && id && tokenizer.is_special(*id)) expected.push_back(*id);
    }
    std::vector<std::int32_t> got;
    for (const std::int32_t id : encode(tokenizer, segments)) {
      if (tokenizer.is_special(id)) got.push_back(id);
    }
    RC_ASSERT(got == expected);
  }
}

TEST(Segments, TokensOfTheMarkupAreControlTokensToo) {
  const Tokenizer tokenizer = parse(with_token("llama3-style", 1500, "<think>", false, false));
  const Segments segments = {{"<think>", false}, {"<think>", true}};
  EXPECT_EQ(count(encode(tokenizer, segments), 1500), 2u);
  EXPECT_EQ(count(encode(tokenizer, segments, "{{ '<think>\\n' }}"), 1500), 1u);
  // A word, a sign, white space in the template is no markup.
  for (const char* word : {"system", "\n\n", "->"}) {
    const Tokenizer other = parse(with_token("llama3-style", 1500, word, false, false));
    EXPECT_EQ(count(encode(other, {{word, true}}, std::string("x") + word + "x"), 1500), 1u) << word;
  }
}

TEST(Segments, ATokenLookedForInNormalizedTextIsGuardedAsWell) {
  nlohmann::json file = with_token("gemma-style", 2048, "<E ND>", true, true);
  file["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Lowercase"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xE2\x96\x81"}}}}};
  const Tokenizer tokenizer = parse(file);
  EXPECT_EQ(encode(tokenizer, {{"<e nd>", true}, {"<e ND>", false}, {"<E nd>", true}}).size(),
            encode(tokenizer, {{"<e nd>", true}}).size() * 2 + 1);
  const Ids ids = encode(tokenizer, {{"a <e nd>", true}, {"b <e ND> c", false}, {"<E nd> d", true}});
  EXPECT_EQ(count(ids, 2048), 1u);
  EXPECT_EQ(count(encode(tokenizer, {{"<e ", true}, {"nd>", false}}), 2048), 0u);
  EXPECT_EQ(count(*tokenizer.encode("a<e nd>b<E ND>", false), 2048), 2u);
}

// A vocabulary whose merges, or whose characters, lead to a control token's piece.
TEST(Segments, MergesAndWholeWordsDoNotLeadToControlTokens) {
  nlohmann::json file = nlohmann::json::parse(R"({"added_tokens": [
      {"id": 4, "content": "<s>", "special": true, "normalized": false},
      {"id": 6, "content": "x", "special": true, "normalized": false}],
      "model": {"type": "BPE", "unk_token": "?", "vocab": {"<": 0, "s": 1, ">": 2, "<s": 3, "<s>": 4, "?": 5, "x": 6},
                "merges": ["< s", "<s >"], "ignore_merges": true}})");
  for (const bool whole : {true, false}) {
    file["model"]["ignore_merges"] = whole;
    const Tokenizer tokenizer = parse(file);
    EXPECT_EQ(encode(tokenizer, {{"<s>", true}}), (Ids{3, 2}));
    EXPECT_EQ(encode(tokenizer, {{"<s>", false}}), Ids{4});
    EXPECT_EQ(encode(tokenizer, {{"<s", false}, {">", true}}), (Ids{3, 2}));
    EXPECT_EQ(encode(tokenizer, {{"x", true}}), Ids{5});  // no other piece spells it: unknown
    EXPECT_EQ(encode(tokenizer, {{"x", false}}), Ids{6});
  }
}

TEST(Segments, AreLimitedAndCheckedLikeAnyText) {
  EXPECT_EQ(style("gemma").encode_segments(Segments{{"ab", true}, {"\xFF", false}}).status().message(),
            "text is not UTF-8 at byte 2");
  const std::string half(9 << 20, 'a');
  EXPECT_EQ(style("gemma").encode_segments(Segments{{half, true}, {half, false}}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(encode(style("gemma"), {}), Ids{});
}

}  // namespace
}  // namespace windrow
