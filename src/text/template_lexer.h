// A template cut into tokens.
//
// Outside of tags stands text; white space around tags goes as transformers sets Jinja: a tag alone on its
// line leaves nothing of the line (trim_blocks, lstrip_blocks), `-` inside a tag's border strips all white
// space there, `+` keeps it. One newline at the end of the template is dropped; line ends become \n.
//
// Thread safety: free functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace windrow::text {

struct Token {
  enum class Type { kText, kOutput, kTag, kClose, kName, kString, kInt, kFloat, kOperator, kEnd };
  Type type = Type::kEnd;
  int line = 0;
  // Of kText the text; of kString what stands between the quotes; of others as written. kOutput and kTag
  // are {{ and {%, kClose is the }} or %} that belongs to them.
  std::string_view text;
};

// Line ends as \n, the last one dropped.
std::string normalize_lines(std::string_view source);

// `source` as normalize_lines() leaves it; the tokens are views into it. The last token is kEnd. Throws
// TemplateFailure.
std::vector<Token> lex_template(std::string_view source);

// The characters of a string literal, its escapes undone. Throws TemplateFailure.
std::string unescape_literal(std::string_view literal, int line);

}  // namespace windrow::text
