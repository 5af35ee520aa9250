// Tokenizer against what Hugging Face tokenizers gave for the same files.
#include <gtest/gtest.h>

#include "text/tokenizer_data.h"

namespace windrow {
namespace {

using Ids = std::vector<std::int32_t>;

class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, EveryCaseOfTheStyleGivesTheIdsAndTheTextOfHuggingFace) {
  const Tokenizer tokenizer = load_test_tokenizer(GetParam());
  const nlohmann::json cases = read_test_json("tokenizers/cases.json").at(GetParam());
  ASSERT_GE(cases.size(), 15u);
  for (const auto& c : cases) {
    const auto text = c.at("text").get<std::string>();
    SCOPED_TRACE(text);
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, c.at("ids").get<Ids>());
    const auto plain = tokenizer.encode(text, false);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    EXPECT_EQ(*plain, c.at("ids_no_special").get<Ids>());
    const auto decoded = tokenizer.decode(*ids);
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    EXPECT_EQ(*decoded, c.at("decoded").get<std::string>());
    EXPECT_EQ(decode_in_pieces(tokenizer, *ids), *decoded);
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, Golden, ::testing::Values("gemma-style", "llama3-style"));

}  // namespace
}  // namespace windrow
