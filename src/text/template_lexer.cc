// Cutting templates into tokens.
#include "text/template_lexer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/utf8.h"
#include "text/template_value.h"

namespace windrow::text {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\f\v";

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const std::size_t open = find_open();
      if (open == source_.npos) {
        add_text(source_.substr(at_));
        at_ = source_.size();
        break;
      }
      const char kind = source_[open + 1];
      const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      add_text(before_tag(source_.substr(at_, open - at_), sign, kind != '{'));
      move_to(open);
      if (kind == '#') {
        comment();
      } else if (kind == '%' && raw()) {
        continue;
      } else {
        tag(kind);
      }
    }
    tokens_.push_back({Token::Type::kEnd, line_, {}});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    template_error(fmt::format("line {}: {}", line_, what));
  }

  // Of the next {{, {% or {#.
  std::size_t find_open() const {
    for (std::size_t at = at_; (at = source_.find('{', at)) != source_.npos; at++) {
      if (at + 1 < source_.size() && std::string_view("{%#").find(source_[at + 1]) != source_.npos) return at;
    }
    return source_.npos;
  }

  void move_to(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  void add(Token::Type type, std::string_view text) { tokens_.push_back({type, line_, text}); }
  void add_text(std::string_view text) {
    if (!text.empty()) add(Token::Type::kText, text);
  }

  // What is left of the text in front of a tag.
  std::string_view before_tag(std::string_view text, char sign, bool block) const {
    if (sign == '-') {
      while (!text.empty()) {
        const std::size_t begin = previous_utf8(text, text.size());
        std::size_t at = begin;
        if (!is_white_space(next_utf8(text, at))) break;
        text = text.substr(0, begin);
      }
      return text;
    }
    if (sign == '+' || !block) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t begin = newline == text.npos ? 0 : newline + 1;
    if (newline == text.npos && !line_starts_) return text;
    for (std::size_t at = begin; at < text.size();) {
      if (!is_white_space(next_utf8(text, at))) return text;
    }
    return text.substr(0, begin);
  }

  // Behind the end of a tag: what the tag takes along of the text that follows.
  void after_tag(bool strip, bool block) {
    if (strip) {
      std::size_t end = at_;
      while (end < source_.size()) {
        std::size_t next = end;
        if (!is_white_space(next_utf8(source_, next))) break;
        end = next;
      }
      move_to(end);
    } else if (block && at_ < source_.size() && source_[at_] == '\n') {
      move_to(at_ + 1);
    }
    line_starts_ = source_[at_ - 1] == '\n';
  }

  void comment() {
    const std::size_t end = source_.find("#}", at_ + 2);
    if (end == source_.npos) fail("a comment {# without #}");
    const char sign = end > at_ + 2 ? source_[end - 1] : '\0';
    move_to(end + 2);
    after_tag(sign == '-', sign != '+');
  }

  // {% NAME %} at `at`, borders with signs allowed: its end and the sign in front of %}.
  struct Plain {
    std::size_t end;
    char sign;
  };
  bool plain_tag(std::size_t at, std::string_view name, Plain* found) const {
    std::size_t i = at + 2;
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) i++;
    i = std::min(source_.find_first_not_of(kSpaces, i), source_.size());
    if (source_.substr(i, name.size()) != name) return false;
    i = std::min(source_.find_first_not_of(kSpaces, i + name.size()), source_.size());
    char sign = '\0';
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) sign = source_[i++];
    if (source_.substr(i, 2) != "%}") return false;
    *found = {i + 2, sign};
    return true;
  }

  // {% raw %}...{% endraw %}; false where something else stands.
  bool raw() {
    Plain begin{}, end{};
    if (!plain_tag(at_, "raw", &begin)) return false;
    move_to(begin.end);
    after_tag(begin.sign == '-', false);
    for (std::size_t at = at_; (at = source_.find("{%", at)) != source_.npos; at += 2) {
      if (!plain_tag(at, "endraw", &end)) continue;
      const char sign = source_[at + 2];
      add_text(before_tag(source_.substr(at_, at - at_), sign, true));
      move_to(end.end);
      after_tag(end.sign == '-', end.sign != '+');
      return true;
    }
    fail("{% raw %} without {% endraw %}");
  }

  // {{ ... }} or {% ... %}.
  void tag(char kind) {
    const bool block = kind == '%';
    const int first_line = line_;
    add(block ? Token::Type::kTag : Token::Type::kOutput, source_.substr(at_, 2));
    at_ += 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) at_++;
    const std::string_view close = block ? "%}" : "}}";
    std::string brackets;
    while (true) {
      const std::size_t next = std::min(source_.find_first_not_of(kSpaces, at_), source_.size());
      move_to(next);
      if (at_ == source_.size()) {
        line_ = first_line;
        fail(fmt::format("{} without {}", block ? "{%" : "{{", close));
      }
      const bool sign = source_[at_] == '-' || source_[at_] == '+';
      if (brackets.empty() && source_.substr(at_ + (sign ? 1 : 0), 2) == close) {
        add(Token::Type::kClose, close);
        const char border = source_[at_];
        at_ += sign ? 3 : 2;
        return after_tag(border == '-', block && border != '+');
      }
      inside(brackets);
    }
  }

  void inside(std::string& brackets) {
    const char c = source_[at_];
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) end++;
      return take(Token::Type::kName, end - at_);
    }
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    for (const std::string_view op : kDouble) {
      if (source_.substr(at_, 2) == op) return take(Token::Type::kOperator, 2);
    }
    if (std::string_view("+-*/%~<>=()[]{}.:|,;").find(c) == std::string_view::npos) {
      fail(fmt::format("{} has no place in a tag",
                       quote(source_.substr(at_, std::max<std::size_t>(1, utf8_length(source_, at_))))));
    }
    if (c == '(' || c == '[' || c == '{') brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) fail(fmt::format("an unexpected {}", c));
      brackets.pop_back();
    }
    take(Token::Type::kOperator, 1);
  }

  void take(Token::Type type, std::size_t n) {
    add(type, source_.substr(at_, n));
    at_ += n;
  }

  void number() {
    std::size_t end = at_;
    const auto digits = [&] {
      while (end < source_.size() &&
             (is_digit(source_[end]) ||
              (source_[end] == '_' && end + 1 < source_.size() && is_digit(source_[end + 1])))) {
        end++;
      }
    };
    digits();
    bool whole = true;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      whole = false;
      end++;
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) exponent++;
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        whole = false;
        end = exponent;
        digits();
      }
    }
    if (end < source_.size() && is_name_start(source_[end])) fail("a number that runs into a name");
    take(whole ? Token::Type::kInt : Token::Type::kFloat, end - at_);
  }

  void string(char quote_sign) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote_sign) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(fmt::format("a string without its closing {}", quote_sign));
    const std::string_view text = source_.substr(at_ + 1, end - at_ - 1);
    add(Token::Type::kString, text);
    move_to(end + 1);
  }

  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // nothing stands between the last newline and at_
  std::vector<Token> tokens_;
};

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string normalize_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); i++) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') i++;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::vector<Token> lex_template(std::string_view source) { return Lexer(source).run(); }

std::string unescape_literal(std::string_view literal, int line) {
  std::string out;
  out.reserve(literal.size());
  for (std::size_t i = 0; i < literal.size(); i++) {
    if (literal[i] != '\\') {
      out += literal[i];
      continue;
    }
    const char c = literal[++i];  // the lexer leaves no \ at the end
    constexpr std::string_view kFrom = "ntr\\'\"abfv\n";
    constexpr std::string_view kTo = "\n\t\r\\'\"\a\b\f\v";
    if (const std::size_t at = kFrom.find(c); at != kFrom.npos) {
      if (at < kTo.size()) out += kTo[at];  // a \ before a line's end joins two lines
      continue;
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      if (is_digit(c))
        template_error(fmt::format("line {}: octal escape \\{} is not supported", line, c),
                       StatusCode::kUnsupported);
      out += '\\';
      out += c;
      continue;
    }
    char32_t code = 0;
    for (std::size_t n = 1; n <= digits; n++) {
      const int digit = i + n < literal.size() ? hex_value(literal[i + n]) : -1;
      if (digit < 0)
        template_error(fmt::format("line {}: \\{} without {} hexadecimal digits", line, c, digits));
      code = code << 4 | static_cast<char32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      template_error(fmt::format("line {}: \\{} names no character", line, literal.substr(i, digits + 1)));
    append_utf8(out, code);
    i += digits;
  }
  return out;
}

}  // namespace windrow::text
