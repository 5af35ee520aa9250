// Byte-pair encoding against its definition, and its cost.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "text/bpe.h"
#include "text/tokenizer_data.h"

namespace windrow::text {
namespace {

using Ids = std::vector<std::int32_t>;

Bpe parse_bpe(const nlohmann::json& model) {
  Status error;
  Component component(model, "f", error, "model");
  Bpe bpe = Bpe::parse(component);
  EXPECT_TRUE(error.ok()) << error.message();
  return bpe;
}

using Merges = std::vector<std::pair<std::string, std::string>>;

// Merges over the letters a to c in the order given, as a model.
nlohmann::json model_of(const Merges& merges) {
  std::map<std::string, int> vocab = {{"a", 0}, {"b", 1}, {"c", 2}};
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [left, right] : merges) {
    vocab.emplace(left + right, static_cast<int>(vocab.size()));
    list.push_back({left, right});
  }
  return {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}};
}

// The definition, quadratic: join the leftmost pair of the best rank until there is none.
std::vector<std::string> join_by_definition(const Merges& merges, const std::string& word) {
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  while (true) {
    std::size_t best = merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); i++) {
      const auto it = std::find(merges.begin(), merges.end(), std::pair(symbols[i], symbols[i + 1]));
      const auto rank = static_cast<std::size_t>(it - merges.begin());
      if (rank < best) best = rank, at = i;
    }
    if (best == merges.size()) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Merges each of whose sides is a letter or made by an earlier one, and of which no two make one piece.
Merges draw_merges() {
  Merges merges;
  std::vector<std::string> pieces = {"a", "b", "c"};
  const int n = *rc::gen::inRange(0, 12);
  for (int i = 0; i < n; i++) {
    const std::string left = *rc::gen::elementOf(pieces), right = *rc::gen::elementOf(pieces);
    if (std::find(pieces.begin(), pieces.end(), left + right) != pieces.end()) continue;
    merges.emplace_back(left, right);
    pieces.push_back(left + right);
  }
  return merges;
}

RC_GTEST_PROP(Bpe, JoinsWhatTheDefinitionJoins, ()) {
  const Merges merges = draw_merges();
  const auto word = *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
  const Bpe bpe = parse_bpe(model_of(merges));
  Bpe::Scratch scratch;
  Ids ids;
  bpe.encode(word, scratch, ids);
  std::vector<std::string> got;
  for (const std::int32_t id : ids) got.emplace_back(*bpe.vocabulary().piece_of(id));
  RC_ASSERT(got == join_by_definition(merges, word));
}

TEST(Bpe, AWordOfNCharactersLooksAtFewerThan3NCandidates) {
  const Bpe bpe = parse_bpe(read_test_json("tokenizers/gemma-style.json").at("model"));
  for (const std::string unit : {"word", "a", "the", "e\xCC\x81", "\xE4\xBD\xA0"}) {
    for (const std::size_t n : {std::size_t{1000}, std::size_t{200'000}}) {
      std::string word;
      while (word.size() < n) word += unit;
      Bpe::Scratch scratch;
      Ids ids;
      bpe.encode(word, scratch, ids);
      EXPECT_LT(scratch.candidates, 3 * word.size()) << unit << " " << n;
      EXPECT_FALSE(ids.empty());
    }
  }
}

TEST(Bpe, AMegabyteWithoutASpaceIsEncodedAndComesBack) {
  const Tokenizer tokenizer = load_test_tokenizer("gemma-style");
  std::string text;
  for (unsigned i = 0; text.size() < (1U << 20); i++) text += static_cast<char>('a' + i * i % 23);
  const auto ids = tokenizer.encode(text, false);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*tokenizer.decode(*ids), text);
}

TEST(Bpe, ACharacterWithoutPieceIsUnkFusedOrNotOrNothing) {
  nlohmann::json model = {
      {"type", "BPE"}, {"vocab", {{"a", 0}, {"?", 7}}}, {"merges", nlohmann::json::array()}};
  const auto encode = [&](const char* word) {
    const Bpe bpe = parse_bpe(model);
    Bpe::Scratch scratch;
    Ids ids;
    bpe.encode(word, scratch, ids);
    return ids;
  };
  EXPECT_EQ(encode("xyaz"), (Ids{0}));
  model["unk_token"] = "?";
  EXPECT_EQ(encode("xyaz"), (Ids{7, 7, 0, 7}));
  model["fuse_unk"] = true;
  EXPECT_EQ(encode("xyaz"), (Ids{7, 0, 7}));
}

TEST(Bpe, BytePiecesStandForACharacterWithoutPiece) {
  nlohmann::json vocab = {{"a", 0}};
  for (int byte = 0; byte < 256; byte++) vocab[fmt::format("<0x{:02X}>", byte)] = byte + 1;
  const Bpe bpe = parse_bpe({{"vocab", vocab}, {"merges", nlohmann::json::array()}, {"byte_fallback", true}});
  Bpe::Scratch scratch;
  Ids ids;
  bpe.encode("a\xC3\xA9", scratch, ids);
  EXPECT_EQ(ids, (Ids{0, 0xC3 + 1, 0xA9 + 1}));
}

}  // namespace
}  // namespace windrow::text
