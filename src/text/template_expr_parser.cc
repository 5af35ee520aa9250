// Recursive descent over expressions.
#include "text/template_expr_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/json.h"
#include "text/template_functions.h"
#include "text/template_parser.h"

namespace windrow::text {

using Type = Token::Type;

struct ExprParser::Depth {
  explicit Depth(ExprParser& p) : parser(p) {
    if (++parser.depth_ > kMaxBlockDepth) {
      parser.fail(fmt::format("expressions nested deeper than {}", kMaxBlockDepth),
                  StatusCode::kResourceExhausted);
    }
  }
  ~Depth() { parser.depth_--; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  ExprParser& parser;
};

void ExprParser::fail(const std::string& what, StatusCode code) const {
  template_error(fmt::format("line {}: {}", tokens_.line(), what), code);
}

void ExprParser::unexpected(std::string_view expected) const {
  const Token& token = tokens_.peek();
  const bool end = token.type == Type::kEnd;
  fail(fmt::format("{} where {} is expected", end ? "the end of the template" : quote(token.text), expected));
}

void ExprParser::need(std::string_view op) {
  if (!tokens_.take_operator(op)) unexpected(quote(op));
}

ExprPtr ExprParser::make(Kind kind, std::vector<ExprPtr> parts, std::string name) {
  auto expr = std::make_unique<Expr>(Expr{kind, tokens_.line()});
  expr->name = std::move(name);
  for (const ExprPtr& part : parts) {
    if (part != nullptr) expr->height = std::max(expr->height, 1 + part->height);
  }
  expr->parts = std::move(parts);
  if (expr->height > kMaxExprHeight) {
    fail(fmt::format("an expression of more than {} levels", kMaxExprHeight), StatusCode::kResourceExhausted);
  }
  return expr;
}

namespace {

// std::initializer_list copies, and these can't be copied.
template <class... P>
std::vector<ExprPtr> parts_of(P... parts) {
  std::vector<ExprPtr> list;
  (list.push_back(std::move(parts)), ...);
  return list;
}

}  // namespace

ExprPtr ExprParser::constant(Value value) {
  ExprPtr expr = make(Kind::kConstant, {});
  expr->value = std::move(value);
  return expr;
}

std::string ExprParser::name() {
  if (!tokens_.is(Type::kName)) unexpected("a name");
  return std::string(tokens_.take().text);
}

ExprPtr ExprParser::tuple(bool choice) {
  ExprPtr first = expression(choice);
  if (!tokens_.is_operator(",")) return first;
  std::vector<ExprPtr> parts = parts_of(std::move(first));
  while (tokens_.take_operator(",")) {
    if (tokens_.is(Type::kClose) || tokens_.is_operator(")")) break;
    parts.push_back(expression(choice));
  }
  return make(Kind::kList, std::move(parts), "tuple");
}

Target ExprParser::target(bool of_set) {
  Target target;
  const bool parenthesis = tokens_.take_operator("(");
  target.names.push_back(name());
  if (of_set && tokens_.take_operator(".")) {
    target.member = name();
    return target;
  }
  while (tokens_.take_operator(",")) {
    target.unpack = true;
    if (tokens_.is(Type::kName) && !tokens_.is_name("in")) target.names.push_back(name());
  }
  if (parenthesis) need(")");
  for (const std::string& n : target.names) {
    constexpr std::string_view kReserved[] = {"true", "True", "false", "False", "none", "None"};
    if (std::find(std::begin(kReserved), std::end(kReserved), n) != std::end(kReserved))
      fail(fmt::format("{} can't be set", quote(n)));
  }
  return target;
}

std::vector<std::pair<std::string, ExprPtr>> ExprParser::parameters() {
  std::vector<std::pair<std::string, ExprPtr>> list;
  need("(");
  while (!tokens_.take_operator(")")) {
    if (!list.empty()) need(",");
    std::string parameter = name();
    ExprPtr preset;
    if (tokens_.take_operator("=")) preset = expression();
    if (preset == nullptr && !list.empty() && list.back().second != nullptr)
      fail(fmt::format("parameter {} without a default behind one that has it", quote(parameter)));
    list.emplace_back(std::move(parameter), std::move(preset));
  }
  return list;
}

ExprPtr ExprParser::filters_of_capture() {
  return tokens_.is_operator("|") ? filters(make(Kind::kName, {}, "")) : nullptr;
}

ExprPtr ExprParser::expression(bool choice) {
  const Depth depth(*this);
  ExprPtr value = either();
  while (choice && tokens_.is_name("if")) {
    tokens_.take();
    ExprPtr condition = either();
    ExprPtr otherwise;
    if (tokens_.is_name("else")) {
      tokens_.take();
      otherwise = expression();
    }
    value = make(Kind::kChoice, parts_of(std::move(condition), std::move(value), std::move(otherwise)));
  }
  return value;
}

ExprPtr ExprParser::either() {
  ExprPtr left = both();
  while (tokens_.is_name("or")) {
    tokens_.take();
    left = make(Kind::kOr, parts_of(std::move(left), both()));
  }
  return left;
}

ExprPtr ExprParser::both() {
  ExprPtr left = negation();
  while (tokens_.is_name("and")) {
    tokens_.take();
    left = make(Kind::kAnd, parts_of(std::move(left), negation()));
  }
  return left;
}

ExprPtr ExprParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  const Depth depth(*this);
  tokens_.take();
  return make(Kind::kNot, parts_of(negation()));
}

ExprPtr ExprParser::comparison() {
  std::vector<ExprPtr> parts = parts_of(sum());
  std::vector<std::string> names;
  while (true) {
    static constexpr std::string_view kOrders[] = {"==", "!=", "<", "<=", ">", ">="};
    const Token& token = tokens_.peek();
    if (token.type == Type::kOperator &&
        std::find(std::begin(kOrders), std::end(kOrders), token.text) != std::end(kOrders)) {
      names.emplace_back(tokens_.take().text);
    } else if (tokens_.is_name("in")) {
      tokens_.take();
      names.emplace_back("in");
    } else if (tokens_.is_name("not") && tokens_.peek(1).type == Type::kName &&
               tokens_.peek(1).text == "in") {
      tokens_.take();
      tokens_.take();
      names.emplace_back("not in");
    } else {
      break;
    }
    parts.push_back(sum());
  }
  if (names.empty()) return std::move(parts[0]);
  ExprPtr expr = make(Kind::kCompare, std::move(parts));
  expr->names = std::move(names);
  return expr;
}

ExprPtr ExprParser::sum() {
  ExprPtr left = concatenation();
  while (tokens_.is_operator("+") || tokens_.is_operator("-")) {
    const std::string op(tokens_.take().text);
    left = make(Kind::kBinary, parts_of(std::move(left), concatenation()), op);
  }
  return left;
}

ExprPtr ExprParser::concatenation() {
  std::vector<ExprPtr> parts = parts_of(product());
  while (tokens_.take_operator("~")) parts.push_back(product());
  return parts.size() == 1 ? std::move(parts[0]) : make(Kind::kConcat, std::move(parts));
}

ExprPtr ExprParser::product() {
  ExprPtr left = power();
  while (tokens_.is_operator("*") || tokens_.is_operator("/") || tokens_.is_operator("//") ||
         tokens_.is_operator("%")) {
    const std::string op(tokens_.take().text);
    left = make(Kind::kBinary, parts_of(std::move(left), power()), op);
  }
  return left;
}

ExprPtr ExprParser::power() {
  ExprPtr left = unary(true);
  while (tokens_.take_operator("**"))
    left = make(Kind::kBinary, parts_of(std::move(left), unary(true)), "**");
  return left;
}

ExprPtr ExprParser::unary(bool with_filters) {
  ExprPtr expr;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    const Depth depth(*this);
    const Kind kind = tokens_.take().text == "-" ? Kind::kNegative : Kind::kPositive;
    expr = make(kind, parts_of(unary(false)));
  } else {
    expr = primary();
  }
  expr = postfix(std::move(expr));
  return with_filters ? filters(std::move(expr)) : std::move(expr);
}

ExprPtr ExprParser::primary() {
  const Token token = tokens_.peek();
  switch (token.type) {
    case Type::kName:
      tokens_.take();
      if (token.text == "true" || token.text == "True") return constant(Value(true));
      if (token.text == "false" || token.text == "False") return constant(Value(false));
      if (token.text == "none" || token.text == "None") return constant(Value(None{}));
      return make(Kind::kName, {}, std::string(token.text));
    case Type::kString: {
      std::string text;
      while (tokens_.is(Type::kString)) {  // strings side by side are one
        const Token& part = tokens_.take();
        text += unescape_literal(part.text, part.line);
      }
      return constant(Value::text(text, false));
    }
    case Type::kInt:
    case Type::kFloat: return number();
    default: break;
  }
  if (tokens_.take_operator("(")) {
    if (tokens_.take_operator(")")) return make(Kind::kList, {}, "tuple");
    ExprPtr expr = tuple();
    need(")");
    return expr;
  }
  if (tokens_.take_operator("[")) return list();
  if (tokens_.take_operator("{")) return mapping();
  unexpected("a value");
}

ExprPtr ExprParser::number() {
  const Token token = tokens_.take();
  std::string digits(token.text);
  std::erase(digits, '_');
  const char* const end = digits.data() + digits.size();
  if (token.type == Type::kInt) {
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc() || stop != end) fail(fmt::format("{} is beyond 64 bits", quote(token.text)));
    return constant(Value(value));
  }
  double value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end) fail(fmt::format("{} is no number", quote(token.text)));
  return constant(Value(value));
}

ExprPtr ExprParser::list() {
  std::vector<ExprPtr> parts;
  while (!tokens_.take_operator("]")) {
    if (!parts.empty()) {
      need(",");
      if (tokens_.take_operator("]")) break;
    }
    parts.push_back(expression());
  }
  return make(Kind::kList, std::move(parts));
}

ExprPtr ExprParser::mapping() {
  std::vector<ExprPtr> parts;
  while (!tokens_.take_operator("}")) {
    if (!parts.empty()) {
      need(",");
      if (tokens_.take_operator("}")) break;
    }
    parts.push_back(expression());
    need(":");
    parts.push_back(expression());
  }
  return make(Kind::kMapping, std::move(parts));
}

ExprPtr ExprParser::postfix(ExprPtr expr) {
  while (true) {
    if (tokens_.take_operator(".")) {
      if (tokens_.is(Type::kInt)) {
        ExprPtr index = number();
        expr = make(Kind::kItem, parts_of(std::move(expr), std::move(index)));
      } else {
        std::string member = name();
        expr = make(Kind::kAttribute, parts_of(std::move(expr)), std::move(member));
      }
    } else if (tokens_.take_operator("[")) {
      expr = subscript(std::move(expr));
    } else if (tokens_.take_operator("(")) {
      Arguments args = arguments();
      expr = make(Kind::kCall, parts_of(std::move(expr)));
      set_arguments(*expr, std::move(args));
    } else {
      return expr;
    }
  }
}

ExprPtr ExprParser::subscript(ExprPtr expr) {
  ExprPtr bounds[3];
  bool slice = false;
  for (int n = 0; n < 3; n++) {
    if (!tokens_.is_operator(":") && !tokens_.is_operator("]")) bounds[n] = expression();
    if (n == 2 || !tokens_.take_operator(":")) break;
    slice = true;
  }
  if (!slice && bounds[0] == nullptr) unexpected("an index");
  need("]");
  if (!slice) return make(Kind::kItem, parts_of(std::move(expr), std::move(bounds[0])));
  return make(Kind::kSlice,
              parts_of(std::move(expr), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2])));
}

ExprPtr ExprParser::filters(ExprPtr expr) {
  while (true) {
    if (tokens_.take_operator("|")) {
      expr = filter(std::move(expr));
    } else if (tokens_.is_name("is")) {
      tokens_.take();
      expr = test(std::move(expr));
    } else if (tokens_.is_operator("(")) {  // the result of a filter is called
      expr = postfix(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExprParser::filter(ExprPtr expr) {
  std::string filter_name = name();
  if (!is_filter(filter_name)) {
    fail(fmt::format("filter {} is not supported", quote(filter_name)), StatusCode::kUnsupported);
  }
  Arguments args;
  if (tokens_.take_operator("(")) args = arguments();
  expr = make(Kind::kFilter, parts_of(std::move(expr)), std::move(filter_name));
  set_arguments(*expr, std::move(args));
  return expr;
}

// `is NAME`, `is NAME(...)`, `is NAME VALUE`, each with a `not` in front of the name.
ExprPtr ExprParser::test(ExprPtr expr) {
  const bool negated = tokens_.is_name("not");
  if (negated) tokens_.take();
  std::string test_name = name();
  if (!is_test(test_name)) {
    fail(fmt::format("test {} is not supported", quote(test_name)), StatusCode::kUnsupported);
  }
  Arguments args;
  const Token& next = tokens_.peek();
  const bool value = next.type == Type::kString || next.type == Type::kInt || next.type == Type::kFloat ||
                     tokens_.is_operator("[") || tokens_.is_operator("{");
  const bool word = next.type == Type::kName && next.text != "else" && next.text != "or" &&
                    next.text != "and" && next.text != "is" && next.text != "if" && next.text != "not" &&
                    next.text != "in";
  if (tokens_.take_operator("(")) {
    args = arguments();
  } else if (value || word) {
    args.positional.push_back(postfix(primary()));
  }
  expr = make(Kind::kTest, parts_of(std::move(expr)), std::move(test_name));
  set_arguments(*expr, std::move(args));
  return negated ? make(Kind::kNot, parts_of(std::move(expr))) : std::move(expr);
}

Arguments ExprParser::arguments() {
  Arguments args;
  bool first = true;
  while (!tokens_.take_operator(")")) {
    if (!first) {
      need(",");
      if (tokens_.take_operator(")")) break;
    }
    first = false;
    if (tokens_.is_operator("*") || tokens_.is_operator("**")) {
      fail("arguments from a list are not supported", StatusCode::kUnsupported);
    }
    const bool named =
        tokens_.is(Type::kName) && tokens_.peek(1).type == Type::kOperator && tokens_.peek(1).text == "=";
    if (named) {
      std::string argument = name();
      tokens_.take();
      args.named.emplace_back(std::move(argument), expression());
    } else if (args.named.empty()) {
      args.positional.push_back(expression());
    } else {
      fail("an argument without a name behind one with a name");
    }
  }
  return args;
}

void ExprParser::set_arguments(Expr& expr, Arguments arguments) {
  for (const ExprPtr& part : arguments.positional) expr.height = std::max(expr.height, 1 + part->height);
  for (const auto& [unused, part] : arguments.named) expr.height = std::max(expr.height, 1 + part->height);
  expr.arguments = std::move(arguments);
  if (expr.height > kMaxExprHeight) {
    fail(fmt::format("an expression of more than {} levels", kMaxExprHeight), StatusCode::kResourceExhausted);
  }
}

}  // namespace windrow::text
