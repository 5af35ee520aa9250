// Python's string methods over tainted text. Positions and widths count characters (code points).
//
// Cost: all linear in the bytes, charged to the budget by the caller or here where a budget is taken.
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tainted_text.h"
#include "text/template_value.h"

namespace windrow::text {

// Python's str.isspace of one character: White_Space and the separators U+001C to U+001F.
bool is_python_space(char32_t c) noexcept;

std::int64_t count_characters(std::string_view text) noexcept;
// The byte where character number n (0 to their count) begins.
std::size_t character_offset(std::string_view text, std::int64_t n) noexcept;

// What strip leaves; `characters`: those to cut, null for white space.
Span strip_span(std::string_view text, const std::string* characters, bool left, bool right);

// The parts between separators, at most `limit` cuts (below 0: all). Null: runs of white space separate,
// and none at the ends. `from_right`: the limit counts from the end. A separator must not be empty.
std::vector<Span> split_spans(std::string_view text, const std::string* separator, std::int64_t limit,
                              bool from_right, Budget& budget);
std::vector<Span> line_spans(std::string_view text, bool keep_ends);

// The first place of `needle` from `from` on, npos for none; linear in the text whatever the needle.
std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from);

// `limit` below 0: all.
TaintedText replace_text(const TaintedText& text, std::string_view from, const TaintedText& to,
                         std::int64_t limit, Budget& budget);

enum class Case { kUpper, kLower, kCapitalize, kTitle, kTitleOfWords };
// Each character's own mapping (and SS for a sharp s in upper case). kTitle begins a word behind what is no
// letter (Python's title), kTitleOfWords behind white space, - ( { [ < (Jinja's filter).
TaintedText map_case(const TaintedText& text, Case how, Budget& budget);

// A line at a time, `indent` in front of each but the first, and of blank ones only on request.
TaintedText indent_text(const TaintedText& text, const TaintedText& indent, bool first, bool blank,
                        Budget& budget);

}  // namespace windrow::text
