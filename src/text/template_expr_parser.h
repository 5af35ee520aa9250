// Parsing expressions, with Jinja's precedence: choice, or, and, not, comparisons, + -, ~, * / // %, **,
// signs, then . [] () | is.
//
// Thread safety: belongs to one thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template_ast.h"
#include "text/template_lexer.h"

namespace windrow::text {

class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& take() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) at_++;
    return token;
  }
  int line() const { return peek().line; }
  bool is(Token::Type type) const { return peek().type == type; }
  bool is_name(std::string_view name) const { return is(Token::Type::kName) && peek().text == name; }
  bool is_operator(std::string_view op) const { return is(Token::Type::kOperator) && peek().text == op; }
  bool take_operator(std::string_view op) {
    if (!is_operator(op)) return false;
    take();
    return true;
  }

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

class ExprParser {
 public:
  explicit ExprParser(TokenReader& tokens) : tokens_(tokens) {}

  [[noreturn]] void fail(const std::string& what, StatusCode code = StatusCode::kCorrupt) const;
  [[noreturn]] void unexpected(std::string_view expected) const;

  // An expression, or several with commas between them, which make a list. `choice`: A if B else C counts
  // (not behind the `in` of a for, whose `if` is the loop's).
  ExprPtr tuple(bool choice = true);
  ExprPtr expression(bool choice = true);
  Target target(bool of_set);
  std::string name();
  std::vector<std::pair<std::string, ExprPtr>> parameters();  // (a, b=1)
  // | trim | ... over the name "", or null where none stands.
  ExprPtr filters_of_capture();

 private:
  struct Depth;  // counts what stands in each other
  using Kind = Expr::Kind;

  ExprPtr make(Kind kind, std::vector<ExprPtr> parts, std::string name = "");
  ExprPtr constant(Value value);
  ExprPtr either();
  ExprPtr both();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr number();
  ExprPtr list();
  ExprPtr mapping();
  ExprPtr postfix(ExprPtr expr);
  ExprPtr subscript(ExprPtr expr);
  ExprPtr filters(ExprPtr expr);
  ExprPtr filter(ExprPtr expr);
  ExprPtr test(ExprPtr expr);
  Arguments arguments();  // behind their (
  void set_arguments(Expr& expr, Arguments arguments);
  void need(std::string_view op);

  TokenReader& tokens_;
  int depth_ = 0;
};

}  // namespace windrow::text
