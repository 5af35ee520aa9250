// The tokenizers and cases of tests/data/tokenizers.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "windrow/tokenizer.h"

namespace windrow {

inline std::string read_test_file(const std::string& name) {
  std::ifstream file(std::string(WINDROW_TEST_DATA) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline nlohmann::json read_test_json(const std::string& name) {
  return nlohmann::json::parse(read_test_file(name));
}

inline Tokenizer load_test_tokenizer(const std::string& style) {
  Result<Tokenizer> tokenizer =
      Tokenizer::load(std::string(WINDROW_TEST_DATA) + "/tokenizers/" + style + ".json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(*tokenizer);
}

// All pieces of the incremental decoder; each must be whole UTF-8.
inline std::string decode_in_pieces(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                                    std::vector<std::string>* pieces = nullptr) {
  Tokenizer::Decoder decoder(tokenizer);
  std::string whole;
  for (const std::int32_t id : ids) {
    Result<std::string> piece = decoder.push(id);
    EXPECT_TRUE(piece.ok()) << piece.status().message();
    if (pieces != nullptr) pieces->push_back(*piece);
    whole += *piece;
  }
  const std::string last = decoder.finish();
  if (pieces != nullptr) pieces->push_back(last);
  return whole + last;
}

}  // namespace windrow
