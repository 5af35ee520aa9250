// The values of the template language, and the budget that bounds what a rendering may cost.
//
// Values are immutable but for namespaces; text, lists and mappings are shared, not copied. There are no
// reference cycles: namespaces belong to the rendering and values only point to them. The nesting of a
// value is bounded (kMaxNesting), so that recursion over values is, too.
//
// Inside the engine errors travel as the exception TemplateFailure, which template.cc turns into a Status.
//
// Thread safety: belongs to one rendering, but for constants of a parsed template, which are immutable.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/tainted_text.h"
#include "windrow/status.h"

namespace windrow::text {

struct TemplateFailure {
  StatusCode code;
  std::string message;
};

[[noreturn]] inline void template_error(std::string message, StatusCode code = StatusCode::kCorrupt) {
  throw TemplateFailure{code, std::move(message)};
}

class Value;
struct Macro;      // of the syntax tree
struct LoopState;  // of the evaluator

inline constexpr int kMaxNesting = 64;  // of lists, mappings, bound methods and loops in each other

using TextRef = std::shared_ptr<const TaintedText>;

struct List {
  std::vector<Value> items;
  int nesting = 1;
  bool tuple = false;  // prints as one; else there is no difference
};

// Keys are texts; entries keep their order.
struct Mapping {
  struct Entry;
  std::vector<Entry> entries;
  std::map<std::string_view, std::size_t> index;  // into entries; the views are into their keys
  int nesting = 1;

  const Value* find(std::string_view key) const;
  void set(TextRef key, Value value);  // replaces the value of a key that is there
};

struct Namespace {
  std::map<std::string, Value, std::less<>> members;
};

// What can be called: a global function by name, a method bound to its receiver, a macro.
struct Callable {
  std::string name;
  std::shared_ptr<const Value> receiver;  // of a method
  const Macro* macro = nullptr;
  int nesting = 1;
};

struct Undefined {
  std::shared_ptr<const std::string> what;  // for messages; may be null
};
struct None {};

class Value {
 public:
  using ListRef = std::shared_ptr<const List>;
  using MappingRef = std::shared_ptr<const Mapping>;
  using CallableRef = std::shared_ptr<const Callable>;
  using LoopRef = std::shared_ptr<LoopState>;
  using Kind = std::variant<Undefined, None, bool, std::int64_t, double, TextRef, ListRef, MappingRef,
                            Namespace*, CallableRef, LoopRef>;

  Value() = default;  // undefined
  template <class T>
  explicit Value(T v, bool is_plain = false) : kind(std::move(v)), plain(is_plain) {}
  static Value undefined(std::string what);
  static Value text(TaintedText text) {
    return Value(TextRef(std::make_shared<TaintedText>(std::move(text))));
  }
  static Value text(std::string_view bytes, bool plain) {
    return text(TaintedText(std::string(bytes), plain));
  }
  static Value list(std::vector<Value> items, bool plain, bool tuple = false);  // checks the nesting
  static Value mapping(Mapping mapping, bool plain);

  template <class T>
  const T* as() const {
    return std::get_if<T>(&kind);
  }
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<None>() != nullptr; }
  const TaintedText* as_text() const { return as<TextRef>() ? as<TextRef>()->get() : nullptr; }
  const List* as_list() const { return as<ListRef>() ? as<ListRef>()->get() : nullptr; }
  const Mapping* as_mapping() const { return as<MappingRef>() ? as<MappingRef>()->get() : nullptr; }
  // An int; a bool counts as one, as in Python.
  bool is_number() const { return as<bool>() || as<std::int64_t>() || as<double>(); }
  int nesting() const;
  bool truth() const;
  const char* type_name() const;  // for messages

  Kind kind;
  // What is printed of it came from outside: of numbers and of the brackets of lists and mappings (a text
  // has its own marks).
  bool plain = false;
};

struct Mapping::Entry {
  TextRef key;
  Value value;
};

// Equality and order of Python. Comparing costs `budget`.
class Budget;
bool values_equal(const Value& a, const Value& b, Budget& budget);
// -1, 0, 1; a failure where the two have no order.
int compare_values(const Value& a, const Value& b, Budget& budget);

// Work and memory of one rendering. `memory` counts all that is ever allocated, not what is alive: that
// bounds both the memory and the work of copying.
class Budget {
 public:
  Budget(std::uint64_t steps, std::size_t memory) : steps_(steps), memory_(memory) {}

  void step(std::uint64_t n = 1) {
    if (n > steps_) spent("steps");
    steps_ -= n;
  }
  // Reading this many bytes: a step for every 64, about the cost of evaluating one node.
  void read(std::size_t bytes) { step(1 + bytes / 64); }
  void allocate(std::size_t bytes) {
    if (bytes > memory_) spent("memory");
    memory_ -= bytes;
    read(bytes);
  }
  void allocate_items(std::size_t n) {
    constexpr std::size_t kItem = sizeof(Value) + 16;
    if (n > memory_ / kItem) spent("memory");
    allocate(n * kItem);
  }

 private:
  [[noreturn]] static void spent(const char* what);
  std::uint64_t steps_;
  std::size_t memory_;
};

// A new text value, counted.
inline Value make_text(Budget& budget, TaintedText text) {
  budget.allocate(text.cost() + sizeof(TaintedText));
  return Value::text(std::move(text));
}

}  // namespace windrow::text
