// Incremental decoding: its pieces, their borders, and bytes that are no UTF-8.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/utf8.h"
#include "text/tokenizer_data.h"

namespace windrow {
namespace {

using Ids = std::vector<std::int32_t>;

const Tokenizer& gemma() {
  static const Tokenizer tokenizer = load_test_tokenizer("gemma-style");
  return tokenizer;
}

const Tokenizer& llama3() {
  static const Tokenizer tokenizer = load_test_tokenizer("llama3-style");
  return tokenizer;
}

// Ids of which many are single bytes, so that broken characters are common.
rc::Gen<Ids> ids_of(const Tokenizer& tokenizer) {
  Ids bytes;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); id++) {
    const std::string_view piece = *tokenizer.token_of(id);
    if (piece.size() <= 2 || piece.starts_with("<0x")) bytes.push_back(id);
  }
  return rc::gen::container<Ids>(rc::gen::weightedOneOf<std::int32_t>(
      {{3, rc::gen::elementOf(bytes)}, {1, rc::gen::inRange(0, tokenizer.vocab_size())}}));
}

// The text of a gemma-style list of ids, by its definition over the whole list at once.
std::string gemma_reference(const Ids& ids) {
  std::string out, run;
  const auto flush = [&] {
    for (std::size_t at = 0; at < run.size();) {
      const std::size_t n = utf8_length(run, at);
      out += n == 0 ? std::string(kReplacementCharacter) : run.substr(at, n);
      at += std::max<std::size_t>(n, 1);
    }
    run.clear();
  };
  for (const std::int32_t id : ids) {
    if (gemma().is_special(id)) continue;
    const std::string piece(*gemma().token_of(id));
    if (piece.starts_with("<0x") && piece.size() == 6) {
      run += static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
      continue;
    }
    flush();
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t n = utf8_length(piece, at);
      out += piece.substr(at, n) == "\xE2\x96\x81" ? " " : piece.substr(at, n);
      at += n;
    }
  }
  flush();
  return out;
}

void check_pieces(const Tokenizer& tokenizer, const Ids& ids) {
  std::vector<std::string> pieces;
  const std::string joined = decode_in_pieces(tokenizer, ids, &pieces);
  for (const std::string& piece : pieces) RC_ASSERT(find_invalid_utf8(piece) == std::string::npos);
  const auto whole = tokenizer.decode(ids);
  RC_ASSERT(whole.ok());
  RC_ASSERT(joined == *whole);
}

RC_GTEST_PROP(Decoder, PiecesOfAnyGemmaIdsAreWholeCharactersAndMakeUpDecode, ()) {
  check_pieces(gemma(), *ids_of(gemma()));
}

RC_GTEST_PROP(Decoder, PiecesOfAnyLlama3IdsAreWholeCharactersAndMakeUpDecode, ()) {
  check_pieces(llama3(), *ids_of(llama3()));
}

RC_GTEST_PROP(Decoder, DecodeOfAnyGemmaIdsEqualsTheDefinition, ()) {
  const Ids ids = *ids_of(gemma());
  RC_ASSERT(*gemma().decode(ids) == gemma_reference(ids));
}

RC_GTEST_PROP(Tokenizer, AnyTextComesBackFromItsIds, ()) {
  const auto characters = *rc::gen::container<std::vector<char32_t>>(
      rc::gen::weightedOneOf<char32_t>({{4, rc::gen::cast<char32_t>(rc::gen::inRange(0, 0x80))},
                                        {2, rc::gen::cast<char32_t>(rc::gen::inRange(0x80, 0xD800))},
                                        {1, rc::gen::cast<char32_t>(rc::gen::inRange(0xE000, 0x110000))}}));
  std::string text;
  for (const char32_t c : characters) append_utf8(text, c);
  for (const Tokenizer* tokenizer : {&gemma(), &llama3()}) {
    const auto ids = tokenizer->encode(text, false);
    RC_ASSERT(ids.ok());
    std::string expected;
    for (const char32_t c : characters) {  // U+2581 and a space are one to gemma
      append_utf8(expected, tokenizer == &gemma() && c == 0x2581 ? U' ' : c);
    }
    RC_ASSERT(*tokenizer->decode(*ids, true) == expected);
  }
}

TEST(Decoder, AByteFallbackCharacterComesOutWithItsLastByte) {
  const Ids ids = {234, 195, 166, 323};  // <0xE4> <0xBD> <0xA0> a
  Tokenizer::Decoder decoder(gemma());
  EXPECT_EQ(*decoder.push(234), "");
  EXPECT_EQ(*decoder.push(195), "");
  EXPECT_EQ(*decoder.push(166), "\xE4\xBD\xA0");
  EXPECT_EQ(*decoder.push(323), "a");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(*gemma().decode(ids),
            "\xE4\xBD\xA0"
            "a");
}

TEST(Decoder, ABadByteOfByteFallbackIsOneReplacementAndSparesItsNeighbours) {
  // <0xE4> <0xBD> <0xA0> is a character, <0xE4> <0xBD> the beginning of one.
  EXPECT_EQ(*gemma().decode(Ids{234, 195, 166, 234, 195}), "\xE4\xBD\xA0\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(*gemma().decode(Ids{195, 323}),
            "\xEF\xBF\xBD"
            "a");
}

TEST(Decoder, FinishGivesWhatWasHeldBackAndStartsAnew) {
  Tokenizer::Decoder decoder(gemma());
  EXPECT_EQ(*decoder.push(234), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(*decoder.push(323), "a");
}

TEST(Decoder, SpecialTokensAreSkippedUnlessKept) {
  const Ids ids = {2, 626, 1};
  EXPECT_EQ(*gemma().decode(ids), "The");
  EXPECT_EQ(*gemma().decode(ids, true), "<bos>The<eos>");
}

TEST(Decoder, ASpaceThatTheStartLosesIsLostOnceHoweverItIsCut) {
  nlohmann::json file = read_test_json("tokenizers/gemma-style.json");
  file["decoder"]["decoders"].push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 1}});
  const auto tokenizer = Tokenizer::parse(file.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  for (const std::string text : {" a", "  a ", "a  ", " ", "  ", "   ", "a  b", ""}) {
    std::string expected = text.starts_with(' ') ? text.substr(1) : text;
    if (expected.ends_with(' ')) expected.pop_back();
    const auto ids = tokenizer->encode(text, false);
    EXPECT_EQ(decode_in_pieces(*tokenizer, *ids), expected) << '"' << text << '"';
    EXPECT_EQ(*tokenizer->decode(*ids), expected) << '"' << text << '"';
  }
}

TEST(Decoder, OutlivesItsTokenizer) {
  auto tokenizer = std::make_unique<Tokenizer>(load_test_tokenizer("gemma-style"));
  Tokenizer::Decoder decoder(*tokenizer);
  tokenizer.reset();
  EXPECT_EQ(*decoder.push(323), "a");
}

}  // namespace
}  // namespace windrow
