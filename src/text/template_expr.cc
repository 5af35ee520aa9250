// Expressions and calls.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "text/template_eval.h"
#include "text/template_eval_depth.h"
#include "text/template_time.h"

namespace windrow::text {

Value Evaluator::eval(const Expr& expr) {
  const Depth depth(*this);
  budget_.step();
  line_ = expr.line;
  return eval_kind(expr);
}

Value Evaluator::eval_kind(const Expr& e) {
  switch (e.kind) {
    case Expr::Kind::kConstant: return e.value;
    case Expr::Kind::kName: return eval_name(e.name);
    case Expr::Kind::kList: return eval_list(e);
    case Expr::Kind::kMapping: return eval_mapping(e);
    case Expr::Kind::kAttribute: return get_attribute(eval(*e.parts[0]), e.name, budget_);
    case Expr::Kind::kItem: {
      const Value value = eval(*e.parts[0]);
      return get_item(value, eval(*e.parts[1]), budget_);
    }
    case Expr::Kind::kSlice: return eval_slice(e);
    case Expr::Kind::kCall: {
      const Value callee = eval(*e.parts[0]);
      const CallArguments arguments = eval_arguments(e.arguments);
      line_ = e.line;
      return call(callee, arguments);
    }
    case Expr::Kind::kFilter: {
      const Value value = eval(*e.parts[0]);
      return apply_filter(e.name, value, eval_arguments(e.arguments), budget_);
    }
    case Expr::Kind::kTest: {
      const Value value = eval(*e.parts[0]);
      return Value(apply_test(e.name, value, eval_arguments(e.arguments), budget_));
    }
    case Expr::Kind::kNot: return Value(!eval(*e.parts[0]).truth());
    case Expr::Kind::kNegative:
    case Expr::Kind::kPositive: return eval_sign(e);
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr: {
      Value left = eval(*e.parts[0]);
      return left.truth() == (e.kind == Expr::Kind::kOr) ? left : eval(*e.parts[1]);
    }
    case Expr::Kind::kConcat: return eval_concat(e);
    case Expr::Kind::kBinary: return eval_binary(e);
    case Expr::Kind::kCompare: return Value(eval_compare(e));
    case Expr::Kind::kChoice:
      if (eval(*e.parts[0]).truth()) return eval(*e.parts[1]);
      return e.parts[2] != nullptr ? eval(*e.parts[2]) : Value::undefined("an if without else was false");
  }
  return Value();
}

Value Evaluator::eval_name(const std::string& name) {
  static constexpr std::string_view kGlobals[] = {"raise_exception", "strftime_now", "namespace", "range",
                                                  "dict"};
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto it = scope->names.find(name);
    if (it != scope->names.end()) return it->second;
    if (!scope->closed) continue;
    const auto first = scopes_[0].names.find(name);
    if (first != scopes_[0].names.end()) return first->second;
    break;
  }
  if (std::find(std::begin(kGlobals), std::end(kGlobals), name) != std::end(kGlobals))
    return Value(std::make_shared<const Callable>(Callable{name, {}, nullptr, 1}));
  budget_.allocate(2 * name.size() + 64);
  return Value::undefined(fmt::format("{} is undefined", quote(name)));
}

Value Evaluator::eval_list(const Expr& e) {
  std::vector<Value> items;
  budget_.allocate_items(e.parts.size());
  for (const ExprPtr& part : e.parts) items.push_back(eval(*part));
  return Value::list(std::move(items), false, e.name == "tuple");
}

Value Evaluator::eval_mapping(const Expr& e) {
  Mapping mapping;
  budget_.allocate_items(2 * e.parts.size());
  for (std::size_t i = 0; i < e.parts.size(); i += 2) {
    const Value key = eval(*e.parts[i]);
    if (key.as_text() == nullptr)
      template_error(fmt::format("a key is {}, expected a string", key.type_name()),
                     StatusCode::kUnsupported);
    mapping.set(*key.as<TextRef>(), eval(*e.parts[i + 1]));
  }
  return Value::mapping(std::move(mapping), false);
}

Value Evaluator::eval_slice(const Expr& e) {
  const Value value = eval(*e.parts[0]);
  Value bounds[3] = {Value(None{}), Value(None{}), Value(None{})};
  for (std::size_t i = 0; i < 3; i++) {
    if (e.parts[i + 1] != nullptr) bounds[i] = eval(*e.parts[i + 1]);
  }
  return slice_value(value, bounds[0], bounds[1], bounds[2], budget_);
}

Value Evaluator::eval_concat(const Expr& e) {
  TaintedText out;
  for (const ExprPtr& part : e.parts) print_value(eval(*part), out, budget_);
  return make_text(budget_, std::move(out));
}

Value Evaluator::eval_binary(const Expr& e) {
  const Value left = eval(*e.parts[0]);
  const Value right = eval(*e.parts[1]);
  line_ = e.line;
  return binary_operation(e.name, left, right, budget_);
}

Value Evaluator::eval_sign(const Expr& e) {
  const Value value = eval(*e.parts[0]);
  if (!value.is_number()) template_error(fmt::format("a sign before {}", value.type_name()));
  return binary_operation(e.kind == Expr::Kind::kNegative ? "-" : "+", Value(std::int64_t{0}, value.plain),
                          value, budget_);
}

bool Evaluator::eval_compare(const Expr& e) {
  Value left = eval(*e.parts[0]);
  for (std::size_t i = 0; i < e.names.size(); i++) {
    Value right = eval(*e.parts[i + 1]);
    const std::string& op = e.names[i];
    line_ = e.line;
    bool holds = false;
    if (op == "==" || op == "!=") {
      holds = values_equal(left, right, budget_) == (op == "==");
    } else if (op == "in" || op == "not in") {
      holds = contains(right, left, budget_) == (op == "in");
    } else {
      const int order = compare_values(left, right, budget_);
      holds = (op[0] == '<' ? order < 0 : order > 0) || (op.size() == 2 && order == 0);
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

CallArguments Evaluator::eval_arguments(const Arguments& arguments) {
  CallArguments values;
  budget_.allocate_items(arguments.positional.size() + arguments.named.size());
  for (const ExprPtr& part : arguments.positional) values.positional.push_back(eval(*part));
  for (const auto& [name, part] : arguments.named) values.named.emplace_back(name, eval(*part));
  return values;
}

Value Evaluator::call(const Value& callee, const CallArguments& arguments) {
  if (const auto* callable = callee.as<Value::CallableRef>()) {
    const Callable& function = **callable;
    if (function.macro != nullptr) return call_macro(*function.macro, arguments);
    if (function.receiver != nullptr)
      return call_method(*function.receiver, function.name, arguments, budget_);
    return call_global(function.name, arguments);
  }
  if (const auto* undefined = callee.as<Undefined>(); undefined != nullptr && undefined->what != nullptr)
    template_error(fmt::format("{}, so that it can't be called", *undefined->what));
  template_error(fmt::format("{} can't be called", callee.type_name()));
}

Value Evaluator::call_macro(const Macro& macro, const CallArguments& arguments) {
  if (arguments.positional.size() > macro.parameters.size()) {
    template_error(fmt::format("macro {} takes {} arguments, {} are given", macro.name,
                               macro.parameters.size(), arguments.positional.size()));
  }
  Scope scope;
  scope.closed = true;
  for (std::size_t i = 0; i < arguments.positional.size(); i++)
    scope.names.insert_or_assign(macro.parameters[i].first, arguments.positional[i]);
  for (const auto& [name, value] : arguments.named) {
    const bool known = std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                   [&name = name](const auto& p) { return p.first == name; });
    if (!known || scope.names.contains(name))
      template_error(
          fmt::format("macro {}: argument {} is not a parameter or given twice", macro.name, quote(name)));
    scope.names.emplace(name, value);
  }
  scopes_.push_back(std::move(scope));
  for (const auto& [name, preset] : macro.parameters) {
    if (scopes_.back().names.contains(name)) continue;
    Value value = preset != nullptr ? eval(*preset)
                                    : Value::undefined(fmt::format("parameter {} is undefined", quote(name)));
    scopes_.back().names.insert_or_assign(name, std::move(value));
  }
  TaintedText text = capture(macro.body);
  scopes_.pop_back();
  return make_text(budget_, std::move(text));
}

Value Evaluator::make_namespace(const CallArguments& arguments) {
  Namespace space;
  budget_.allocate(sizeof(Namespace));
  budget_.allocate_items(arguments.named.size());
  for (const Value& from : arguments.positional) {
    if (from.as_mapping() == nullptr) template_error(fmt::format("namespace of {}", from.type_name()));
    budget_.allocate_items(from.as_mapping()->entries.size());
    for (const Mapping::Entry& entry : from.as_mapping()->entries)
      space.members.insert_or_assign(entry.key->bytes(), entry.value);
  }
  for (const auto& [name, value] : arguments.named) space.members.insert_or_assign(name, value);
  namespaces_.push_back(std::move(space));
  return Value(&namespaces_.back());
}

namespace {

Value range(const CallArguments& arguments, Budget& budget) {
  const Bound bound(arguments, "range", {"start", "stop", "step"});
  bound.need(0);
  std::int64_t from = bound.int_or(0, 0), to = bound.int_or(1, 0);
  const std::int64_t step = bound.int_or(2, 1);
  if (bound.get(1) == nullptr) to = std::exchange(from, 0);
  if (step == 0) bound.fail("the step is 0");
  std::vector<Value> items;
  for (std::int64_t i = from; step > 0 ? i < to : i > to;) {
    budget.allocate_items(1);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items), false);
}

Value dict(const CallArguments& arguments, Budget& budget) {
  Mapping mapping;
  for (const Value& from : arguments.positional) {
    if (from.as_mapping() == nullptr) template_error(fmt::format("dict of {}", from.type_name()));
    budget.allocate_items(2 * from.as_mapping()->entries.size());
    for (const Mapping::Entry& entry : from.as_mapping()->entries) mapping.set(entry.key, entry.value);
  }
  budget.allocate_items(2 * arguments.named.size());
  for (const auto& [name, value] : arguments.named)
    mapping.set(std::make_shared<TaintedText>(name, false), value);
  return Value::mapping(std::move(mapping), false);
}

}  // namespace

Value Evaluator::call_global(std::string_view name, const CallArguments& arguments) {
  budget_.step();
  if (name == "namespace") return make_namespace(arguments);
  if (name == "range") return range(arguments, budget_);
  if (name == "dict") return dict(arguments, budget_);
  if (name == "raise_exception") {
    const Bound bound(arguments, name, {"message"});
    TaintedText message;
    print_value(bound.need(0), message, budget_);
    template_error("the template refuses the conversation: " + quote(message.bytes()),
                   StatusCode::kInvalidArgument);
  }
  const Bound bound(arguments, name, {"format"});
  if (!now_) bound.fail("no time was given");
  // Digits and English names, but given from outside.
  return make_text(budget_, TaintedText(format_time(*now_, bound.need_text(0).bytes()), true));
}

}  // namespace windrow::text
