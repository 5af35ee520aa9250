// From tokens to the syntax tree.
//
// Thread safety: free functions.
#pragma once

#include <string_view>

#include "text/template_ast.h"

namespace windrow::text {

// How deep parentheses, lists, calls and blocks may stand in each other, and how high an expression's tree
// may be (a chain like a + b + c + ... grows by one for each sign). Published templates need 12 and 30.
inline constexpr int kMaxBlockDepth = 64;
inline constexpr int kMaxExprHeight = 200;

// `source` as normalize_lines() leaves it. Throws TemplateFailure, its message beginning with "line N: ".
Block parse_template(std::string_view source);

}  // namespace windrow::text
