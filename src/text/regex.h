// Regular expressions of tokenizer.json, which are written for Oniguruma (Ruby's syntax, Unicode
// classes), run by PCRE2; and Pattern, which is such an expression or a literal string.
//
// Where the two dialects differ, the expression is translated (\s, \w, their complements), or
// refused by name: class intersections, \h, (?m), an option in the middle, a repeated interval, verbs.
//
// Time: one search start gives up after kMatchesPerByte * text + kMatchesFixed backtracking steps, so
// an expression of exponential or cubic cost is an error and not a hang. A sane expression needs
// about one step for each byte of the longest run that it scans.
//
// Unicode: PCRE2 10.42 knows version 14, so that characters assigned later are in no class.
//
// Thread safety: immutable after compile.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/component.h"
#include "windrow/status.h"

namespace windrow::text {

struct Span {
  std::size_t begin;
  std::size_t end;
  bool operator==(const Span&) const = default;
};

// The expression in PCRE2's dialect, or why it can't be said there.
Result<std::string> translate_regex(std::string_view oniguruma);

// Whether the regular expressions of Rust, which Hugging Face uses where the file doesn't say the
// expression, count a character as part of a word: Alphabetic, Mark, Decimal_Number,
// Connector_Punctuation, Join_Control. REQUIRES one character of UTF-8.
bool is_word_character(std::string_view character);

class Regex {
 public:
  static Result<Regex> compile(const std::string& oniguruma);
  // Appends all matches, left to right, without overlap; none is empty right behind another match.
  // REQUIRES well-formed UTF-8. Errors: kResourceExhausted where the step limit or the heap is spent.
  Status find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

class Pattern {
 public:
  Pattern() = default;  // matches nothing
  explicit Pattern(Regex regex) : kind_(std::move(regex)) {}
  // {"String": "..."} or {"Regex": "..."} at `key`. Errors go to the component.
  static Pattern parse(Component& component, const char* key);
  static Pattern of_literal(std::string literal);
  // Of an expression of our own, which must compile.
  static Pattern of(const char* regex);

  Status find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  std::variant<std::string, Regex> kind_;  // a literal, empty for none
};

}  // namespace windrow::text
