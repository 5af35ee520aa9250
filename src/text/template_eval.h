// Running a template.
//
// Scopes are Jinja's: what a for sets is gone with the iteration, if opens no scope, a macro sees its
// arguments and the template's own names. Globals: raise_exception, strftime_now, namespace, range, dict.
//
// Thread safety: an Evaluator is one rendering.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "text/template_ast.h"
#include "text/template_functions.h"
#include "windrow/chat.h"

namespace windrow::text {

// How deep statements, expressions and macro calls may stand in each other while running. A level takes
// about 500 bytes of stack (five times that under sanitizers), so this stays within 1 MiB.
inline constexpr int kMaxRunDepth = 1000;

class Evaluator {
 public:
  Evaluator(Budget& budget, std::size_t output_limit, const std::optional<CivilTime>& now)
      : budget_(budget), output_limit_(output_limit), now_(now) {}

  void set(const std::string& name, Value value) { scopes_[0].names[name] = std::move(value); }
  // Throws TemplateFailure, its message beginning with "line N: ".
  TaintedText run(const Block& block);

 private:
  struct Scope {
    std::map<std::string, Value, std::less<>> names;
    bool closed = false;  // behind it only the first scope is seen: a macro's
  };
  enum class Flow { kOn, kBreak, kContinue };
  class Depth;

  // Statements.
  Flow exec(const Block& block);
  Flow exec(const Statement& statement);
  Flow exec_if(const Statement& statement);
  Flow exec_for(const Statement& statement);
  Value::ListRef loop_items(const Statement& statement);
  void exec_set(const Statement& statement);
  void exec_capture(const Statement& statement);
  void bind(const Target& target, const Value& value);
  void store(const std::string& name, Value value);
  void print(const Value& value);
  // What `block` prints.
  TaintedText capture(const Block& block);

  // Expressions.
  Value eval(const Expr& expr);
  Value eval_kind(const Expr& expr);
  Value eval_name(const std::string& name);
  Value eval_list(const Expr& expr);
  Value eval_mapping(const Expr& expr);
  Value eval_slice(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_binary(const Expr& expr);
  Value eval_sign(const Expr& expr);
  bool eval_compare(const Expr& expr);
  CallArguments eval_arguments(const Arguments& arguments);

  // Calls.
  Value call(const Value& callee, const CallArguments& arguments);
  Value call_global(std::string_view name, const CallArguments& arguments);
  Value call_macro(const Macro& macro, const CallArguments& arguments);
  Value make_namespace(const CallArguments& arguments);

  Budget& budget_;
  std::size_t output_limit_;
  const std::optional<CivilTime>& now_;
  std::deque<Scope> scopes_ = std::deque<Scope>(1);
  std::deque<Namespace> namespaces_;  // live as long as the rendering: values point to them
  TaintedText* out_ = nullptr;
  int depth_ = 0;
  int line_ = 1;
};

// + - * / // % ** of numbers, texts and lists.
Value binary_operation(const std::string& op, const Value& a, const Value& b, Budget& budget);
// VALUE[from:to:step] of a text or a list, as Python; each bound may be none.
Value slice_value(const Value& value, const Value& from, const Value& to, const Value& step, Budget& budget);

}  // namespace windrow::text
