// Parsing statements; expressions are in template_expr_parser.cc.
#include "text/template_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "text/template_expr_parser.h"

namespace windrow::text {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(lex_template(source)), exprs_(tokens_) {}

  Block run() {
    Block block = parse_block({});
    return block;
  }

 private:
  using Type = Token::Type;

  // Statements up to a tag whose name is in `ends`, which is left with its name taken: last_end_. With
  // no ends, up to the end of the template.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kMaxBlockDepth) {
      exprs_.fail(fmt::format("blocks nested deeper than {}", kMaxBlockDepth),
                  StatusCode::kResourceExhausted);
    }
    const int begin_line = tokens_.line();
    Block block;
    while (true) {
      if (tokens_.is(Type::kEnd)) {
        if (ends.size() == 0) break;
        exprs_.fail(fmt::format("the block that begins before line {} has no {{% {} %}}", begin_line,
                                *(ends.end() - 1)));
      }
      if (tokens_.is(Type::kText)) {
        Statement text{Statement::Kind::kText, tokens_.line()};
        text.text = Value::text(tokens_.take().text, false);
        block.push_back(std::move(text));
      } else if (tokens_.is(Type::kOutput)) {
        Statement output{Statement::Kind::kOutput, tokens_.line()};
        tokens_.take();
        output.expr = exprs_.tuple();
        close();
        block.push_back(std::move(output));
      } else {
        tokens_.take();  // {%
        const Token name = tokens_.peek();
        if (!tokens_.is(Type::kName)) exprs_.fail("a tag without a name");
        tokens_.take();
        if (std::find(ends.begin(), ends.end(), name.text) != ends.end()) {
          last_end_ = name.text;
          break;
        }
        if (std::optional<Statement> statement = parse_tag(name)) block.push_back(std::move(*statement));
      }
    }
    depth_--;
    return block;
  }

  void close() {
    if (!tokens_.is(Type::kClose)) exprs_.unexpected("the end of the tag");
    tokens_.take();
  }

  std::optional<Statement> parse_tag(const Token& name) {
    Statement s{Statement::Kind::kIf, name.line};
    if (name.text == "if") {
      parse_if(s);
    } else if (name.text == "for") {
      parse_for(s);
    } else if (name.text == "set") {
      parse_set(s);
    } else if (name.text == "macro") {
      parse_macro(s);
    } else if (name.text == "generation") {
      s.kind = Statement::Kind::kGenerate;
      close();
      s.body = parse_block({"endgeneration"});
      close();
    } else if (name.text == "break" || name.text == "continue") {
      if (loops_ == 0) exprs_.fail(fmt::format("{{% {} %}} outside of a loop", name.text));
      s.kind = name.text == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue;
      close();
    } else if (name.text.starts_with("end") || name.text == "else" || name.text == "elif") {
      exprs_.fail(fmt::format("{{% {} %}} without its beginning", name.text));
    } else {
      exprs_.fail(fmt::format("tag {} is not supported", quote(name.text)), StatusCode::kUnsupported);
    }
    return s;
  }

  void parse_if(Statement& s) {
    bool has_else = false;
    for (bool condition = true;;) {
      Statement::Branch branch;
      if (condition) branch.condition = exprs_.tuple();
      close();
      branch.body = has_else ? parse_block({"endif"}) : parse_block({"elif", "else", "endif"});
      s.branches.push_back(std::move(branch));
      if (last_end_ == "endif") return close();
      condition = last_end_ == "elif";
      has_else = !condition;
    }
  }

  void parse_for(Statement& s) {
    s.kind = Statement::Kind::kFor;
    s.target = exprs_.target(false);
    if (!tokens_.is_name("in")) exprs_.unexpected("\"in\"");
    tokens_.take();
    s.expr = exprs_.tuple(false);
    if (tokens_.is_name("if")) {
      tokens_.take();
      s.filter = exprs_.expression();
    }
    if (tokens_.is_name("recursive"))
      exprs_.fail("a recursive loop is not supported", StatusCode::kUnsupported);
    close();
    scopes_++;
    loops_++;
    s.body = parse_block({"else", "endfor"});
    loops_--;
    if (last_end_ == "else") {
      close();
      s.otherwise = parse_block({"endfor"});
    }
    scopes_--;
    close();
  }

  void parse_set(Statement& s) {
    s.target = exprs_.target(true);
    if (tokens_.is_operator("=")) {
      tokens_.take();
      s.kind = Statement::Kind::kSet;
      s.expr = exprs_.tuple();
      return close();
    }
    s.kind = Statement::Kind::kCapture;
    if (s.target.unpack) exprs_.unexpected("\"=\"");
    s.expr = exprs_.filters_of_capture();
    close();
    const int loops = std::exchange(loops_, 0);  // a break can't leave the text half captured
    s.body = parse_block({"endset"});
    loops_ = loops;
    close();
  }

  void parse_macro(Statement& s) {
    // Its body sees the arguments and the template's own names, so that where it stands must not matter.
    if (scopes_ > 0)
      exprs_.fail("a macro inside of a loop or a macro is not supported", StatusCode::kUnsupported);
    s.kind = Statement::Kind::kMacro;
    s.macro = std::make_shared<Macro>();
    s.macro->name = exprs_.name();
    s.macro->parameters = exprs_.parameters();
    close();
    scopes_++;
    const int loops = std::exchange(loops_, 0);
    s.macro->body = parse_block({"endmacro"});
    loops_ = loops;
    scopes_--;
    if (tokens_.is(Type::kName)) tokens_.take();  // {% endmacro NAME %}
    close();
  }

  TokenReader tokens_;
  ExprParser exprs_;
  std::string_view last_end_;
  int depth_ = 0;   // of blocks
  int loops_ = 0;   // around here
  int scopes_ = 0;  // loops and macros around here
};

}  // namespace

Block parse_template(std::string_view source) { return Parser(source).run(); }

}  // namespace windrow::text
