// What tokenizer_config.json and its side files say of a chat: special tokens and templates.
//
// Files of the folder, each optional:
//   tokenizer_config.json  special tokens, added_tokens_decoder, chat_template
//   chat_template.json     {"chat_template": ...}; goes before the former
//   chat_template.jinja    the default template itself; goes before both
// Keys that only concern other libraries are ignored; those read here are checked.
//
// Thread safety: free functions; a value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "windrow/status.h"

namespace windrow::text {

struct TokenizerConfig {
  struct Added {
    std::int32_t id;
    std::string content;
    bool special;
  };
  std::vector<std::pair<std::string, std::string>> special_tokens;  // "bos_token" -> "<s>"
  std::vector<Added> added;                                         // added_tokens_decoder
  std::map<std::string, std::string> templates;                     // name -> template
  std::string templates_from;                                       // the file, for messages
};

// Of the text of a tokenizer_config.json; `file` names it in messages.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view json, const std::string& file);
Result<TokenizerConfig> load_tokenizer_config(const std::string& folder);

}  // namespace windrow::text
