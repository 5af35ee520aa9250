// JSON to template values and back.
//
// Thread safety: free functions over one rendering's values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/template_value.h"

namespace windrow::text {

// All of it is plain: JSON comes from outside. Members keep their order. Throws TemplateFailure
// (kInvalidArgument), its message beginning with `name`.
Value value_of_json(std::string_view json, const std::string& name, Budget& budget);

// The longest JSON of a message or of the variables.
inline constexpr std::size_t kMaxJsonBytes = std::size_t{64} << 20;

struct JsonStyle {
  std::optional<std::int64_t> indent;  // as Python's json.dumps; none: all in one line
  std::optional<std::string> item_separator, key_separator;
  bool ascii = false;  // other characters as \uXXXX
  bool sort_keys = false;
};
// As Python's json.dumps.
TaintedText json_of_value(const Value& value, const JsonStyle& style, Budget& budget);

// Appends what Python's repr() of a text shows.
void append_repr(const TaintedText& text, TaintedText& out);
// 1.0, 0.1, 1e+16: the shortest text that reads back as the same number, as Python's repr.
std::string float_text(double value);

}  // namespace windrow::text
