// Oniguruma's dialect (as Hugging Face tokenizers compile it: Ruby syntax, UTF-8) said in PCRE2's.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "text/regex.h"

namespace windrow::text {
namespace {

// Oniguruma's \w: Alphabetic, Mark, Decimal_Number, Connector_Punctuation; outside of a class also the
// superscripts and fractions of Latin-1. PCRE2's UCP \w lacks the marks. Its \s is White_Space;
// PCRE2's has U+180E besides.
constexpr std::string_view kWordInClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kWordMore = R"(\xB2\xB3\xB9\xBC-\xBE)";
constexpr std::string_view kSpace = R"(\p{White_Space})";
constexpr std::string_view kNoSpace = R"(\P{White_Space})";

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> run() {
    while (at_ < in_.size() && error_.empty()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (depth_ > 0) {
        in_class(c);
      } else if (c == '[') {
        open_class();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        interval();
      } else {
        take(1);
      }
    }
    if (!error_.empty()) return Status(StatusCode::kUnsupported, error_);
    return std::move(out_);
  }

 private:
  char peek(std::size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void take(std::size_t n) {
    n = std::min(n, in_.size() - at_);
    out_.append(in_, at_, n);
    at_ += n;
  }
  void replace(std::size_t n, std::string_view by) {
    out_.append(by);
    at_ += n;
  }
  void refuse(std::string_view what) { error_ = fmt::format("{} at byte {} is not supported", what, at_); }

  void escape() {
    const char c = peek(1);
    switch (c) {
      case 's': return replace(2, kSpace);
      case 'S': return replace(2, kNoSpace);
      case 'w':
        if (depth_ > 0) return replace(2, kWordInClass);
        return replace(2, fmt::format("[{}{}]", kWordInClass, kWordMore));
      case 'W':
        if (depth_ > 0) return refuse("\\W inside a class");
        return replace(2, fmt::format("[^{}{}]", kWordInClass, kWordMore));
      case 'p':
      case 'P': return property();
      case 'x':
        if (peek(2) == '{') {
          const std::size_t close = in_.find('}', at_);
          return take(close == in_.npos ? in_.size() - at_ : close - at_ + 1);
        }
        return take(2);
      case 'u':  // \uHHHH
        for (std::size_t i = 2; i < 6; i++) {
          if (std::isxdigit(static_cast<unsigned char>(peek(i))) == 0) return refuse("\\u without 4 digits");
        }
        replace(2, "\\x{");
        take(4);
        return replace(0, "}");
      case 'b':
      case 'B':
        if (depth_ > 0) return take(2);
        return refuse(c == 'b' ? "\\b" : "\\B");  // stands on \w, see above
      // Whole escapes that mean the same in both.
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'v':
      case 'a':
      case 'e':
      case 'A':
      case 'z': return take(2);
      default:
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) return refuse(fmt::format("\\{}", c));
        return take(2);
    }
  }

  // \p{L}, \p{^Lu}, \P{Han}. A script is Script there and Script_Extensions in PCRE2, unless it says sc.
  void property() {
    constexpr std::string_view kBinary[] = {"Alphabetic", "Any", "Emoji", "White_Space"};
    const std::size_t close = in_.find('}', at_);
    if (peek(2) != '{' || close == in_.npos) return refuse("\\p without braces");
    take(peek(3) == '^' ? 4 : 3);
    const std::string_view name = in_.substr(at_, close - at_);
    const bool script =
        name.size() > 2 && std::find(std::begin(kBinary), std::end(kBinary), name) == std::end(kBinary);
    if (script) replace(0, "sc:");
    take(name.size() + 1);
  }

  void open_class() {
    depth_ = 1;
    take(1);
    if (peek(0) == '^') take(1);
    if (peek(0) == ']') refuse("] first in a class");
  }

  void in_class(char c) {
    if (c == ']') {
      depth_ = 0;
    } else if (c == '[') {
      return refuse(peek(1) == ':' ? "a POSIX class" : "a class inside a class");
    } else if (c == '&' && peek(1) == '&') {
      return refuse("a class intersection");
    }
    take(1);
  }

  // ( and what follows it: plain, (?:, (?=, (?!, (?<=, (?<!, (?>, (?i: ; (?i) only in front of all.
  void group() {
    if (peek(1) == '*') return refuse("a verb");
    if (peek(1) != '?') return take(1);
    const char kind = peek(2);
    if (kind == ':' || kind == '=' || kind == '!' || kind == '>') return take(3);
    if (kind == '<' && (peek(3) == '=' || peek(3) == '!')) return take(4);
    std::size_t n = 2;
    while (peek(n) == 'i' || peek(n) == 'x' || peek(n) == '-') n++;
    if (n > 2 && peek(n) == ':') return take(n + 1);
    if (n > 2 && peek(n) == ')' && at_ == 0) return take(n + 1);
    refuse(fmt::format("group (?{}", kind == '\0' ? ' ' : kind));
  }

  // {2}, {2,}, {,2}, {1,3}. A + behind it repeats it in Ruby and makes it possessive in PCRE2.
  void interval() {
    const std::size_t close = in_.find('}', at_);
    const std::string_view body = in_.substr(at_ + 1, close == in_.npos ? in_.npos : close - at_ - 1);
    if (close == in_.npos || body.empty() || body.find_first_not_of("0123456789,") != body.npos) {
      return refuse("a literal {");
    }
    if (body.front() == ',') return refuse("an interval without lower bound");
    take(close - at_ + 1);
    if (peek(0) == '+') refuse("a repeated interval");
  }

  std::string_view in_;
  std::size_t at_ = 0;
  int depth_ = 0;  // 1 inside [...]
  std::string out_;
  std::string error_;
};

}  // namespace

Result<std::string> translate_regex(std::string_view oniguruma) { return Translator(oniguruma).run(); }

}  // namespace windrow::text
