// Statements; expressions are in template_expr.cc.
#include "text/template_eval.h"

#include <fmt/format.h>

#include "base/json.h"
#include "text/template_eval_depth.h"
#include "text/template_loop.h"

namespace windrow::text {

TaintedText Evaluator::run(const Block& block) {
  try {
    return capture(block);
  } catch (TemplateFailure& failure) {
    failure.message = fmt::format("line {}: {}", line_, failure.message);
    throw;
  }
}

TaintedText Evaluator::capture(const Block& block) {
  TaintedText text;
  TaintedText* const outer = std::exchange(out_, &text);
  exec(block);
  out_ = outer;
  return text;
}

Evaluator::Flow Evaluator::exec(const Block& block) {
  const Depth depth(*this);
  for (const Statement& statement : block) {
    if (const Flow flow = exec(statement); flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Evaluator::Flow Evaluator::exec(const Statement& s) {
  budget_.step();
  line_ = s.line;
  switch (s.kind) {
    case Statement::Kind::kText: print(s.text); break;
    case Statement::Kind::kOutput: print(eval(*s.expr)); break;
    case Statement::Kind::kIf: return exec_if(s);
    case Statement::Kind::kFor: return exec_for(s);
    case Statement::Kind::kSet: exec_set(s); break;
    case Statement::Kind::kCapture: exec_capture(s); break;
    case Statement::Kind::kMacro:
      store(s.macro->name,
            Value(std::make_shared<const Callable>(Callable{s.macro->name, {}, s.macro.get(), 1})));
      break;
    case Statement::Kind::kGenerate: return exec(s.body);
    case Statement::Kind::kBreak: return Flow::kBreak;
    case Statement::Kind::kContinue: return Flow::kContinue;
  }
  return Flow::kOn;
}

void Evaluator::print(const Value& value) {
  if (value.is_undefined()) return;
  print_value(value, *out_, budget_);
  if (out_->size() > output_limit_) {
    template_error(fmt::format("more than {} bytes of output", output_limit_),
                   StatusCode::kResourceExhausted);
  }
}

Evaluator::Flow Evaluator::exec_if(const Statement& s) {
  for (const Statement::Branch& branch : s.branches) {
    if (branch.condition == nullptr || eval(*branch.condition).truth()) return exec(branch.body);
  }
  return Flow::kOn;
}

// The items, less those that the loop's own `if` refuses; it sees the target but no loop.
Value::ListRef Evaluator::loop_items(const Statement& s) {
  const Value::ListRef all = iterate(eval(*s.expr), budget_);
  if (s.filter == nullptr) return all;
  auto kept = std::make_shared<List>();
  kept->nesting = all->nesting;
  scopes_.emplace_back();
  for (const Value& item : all->items) {
    bind(s.target, item);
    if (!eval(*s.filter).truth()) continue;
    budget_.allocate_items(1);
    kept->items.push_back(item);
  }
  scopes_.pop_back();
  return kept;
}

Evaluator::Flow Evaluator::exec_for(const Statement& s) {
  const Value::ListRef items = loop_items(s);
  if (items->items.empty()) {
    scopes_.emplace_back();
    const Flow flow = exec(s.otherwise);
    scopes_.pop_back();
    return flow;
  }
  if (items->nesting >= kMaxNesting) {
    template_error(fmt::format("values are nested deeper than {}", kMaxNesting),
                   StatusCode::kResourceExhausted);
  }
  const auto loop = std::make_shared<LoopState>();
  loop->items = items;
  loop->nesting = items->nesting + 1;
  for (; loop->at < items->items.size(); loop->at++) {
    budget_.step();
    line_ = s.line;
    scopes_.emplace_back();
    store("loop", Value(Value::LoopRef(loop)));
    bind(s.target, items->items[loop->at]);
    const Flow flow = exec(s.body);
    scopes_.pop_back();
    if (flow == Flow::kBreak) break;
  }
  return Flow::kOn;
}

void Evaluator::store(const std::string& name, Value value) {
  budget_.step();
  scopes_.back().names.insert_or_assign(name, std::move(value));
}

void Evaluator::bind(const Target& target, const Value& value) {
  if (!target.unpack) return store(target.names[0], value);
  const Value::ListRef parts = iterate(value, budget_);
  if (parts->items.size() != target.names.size()) {
    template_error(fmt::format("{} values for {} names", parts->items.size(), target.names.size()));
  }
  for (std::size_t i = 0; i < target.names.size(); i++) store(target.names[i], parts->items[i]);
}

void Evaluator::exec_set(const Statement& s) {
  Value value = eval(*s.expr);
  if (s.target.member.empty()) return bind(s.target, value);
  const Value space = eval_name(s.target.names[0]);
  const auto* members = space.as<Namespace*>();
  if (members == nullptr) {
    template_error(fmt::format("{} is {}, only a namespace's members can be set", quote(s.target.names[0]),
                               space.type_name()));
  }
  budget_.allocate_items(1);
  (*members)->members.insert_or_assign(s.target.member, std::move(value));
}

void Evaluator::exec_capture(const Statement& s) {
  scopes_.emplace_back();
  Value value = Value::text(capture(s.body));
  scopes_.back().names.insert_or_assign("", std::move(value));
  value = s.expr == nullptr ? eval_name("") : eval(*s.expr);
  scopes_.pop_back();
  if (s.target.member.empty()) return store(s.target.names[0], std::move(value));
  const Value space = eval_name(s.target.names[0]);
  const auto* members = space.as<Namespace*>();
  if (members == nullptr) template_error(fmt::format("{} is no namespace", quote(s.target.names[0])));
  (*members)->members.insert_or_assign(s.target.member, std::move(value));
}

}  // namespace windrow::text
