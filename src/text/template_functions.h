// Filters, tests and methods of the template language, by name.
//
// Thread safety: free functions over one rendering's values.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template_value.h"

namespace windrow::text {

// The arguments of a call, evaluated.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments bound to a function's parameters, and what the function may ask of them. Failures name the
// function. `what` and the names must outlive it.
class Bound {
 public:
  Bound(const CallArguments& arguments, std::string_view what,
        std::initializer_list<std::string_view> parameters);

  // Null where it was not given.
  const Value* get(std::size_t i) const { return values_[i]; }
  const Value& need(std::size_t i) const;
  // none counts as not given.
  std::int64_t int_or(std::size_t i, std::int64_t fallback) const;
  bool flag_or(std::size_t i, bool fallback) const;
  const TaintedText* text_or_null(std::size_t i) const;
  const TaintedText& need_text(std::size_t i) const;
  [[noreturn]] void fail(const std::string& message) const;

 private:
  std::string_view what_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
// REQUIRES is_filter(name), is_test(name).
Value apply_filter(std::string_view name, const Value& value, const CallArguments& arguments, Budget& budget);
bool apply_test(std::string_view name, const Value& value, const CallArguments& arguments, Budget& budget);

bool has_method(const Value& receiver, std::string_view name);
// REQUIRES has_method(receiver, name).
Value call_method(const Value& receiver, std::string_view name, const CallArguments& arguments,
                  Budget& budget);

// VALUE . NAME as Jinja has it: a method first, then the member. Undefined where there is none; a failure
// on an undefined value.
Value get_attribute(const Value& value, std::string_view name, Budget& budget);
// VALUE [ KEY ]: the member first, then the method.
Value get_item(const Value& value, const Value& key, Budget& budget);

// What a for runs over: the items of a list, the keys of a mapping, the characters of a text, nothing of
// an undefined value.
std::shared_ptr<const List> iterate(const Value& value, Budget& budget);
// The element `value` is in the text, list or mapping `container`.
bool contains(const Value& container, const Value& value, Budget& budget);
// Characters, items or entries; -1 where a value has no length.
std::int64_t length_of(const Value& value, Budget& budget);

// Appends what {{ value }} prints, as Python's str(). A failure for functions, namespaces and loops.
void print_value(const Value& value, TaintedText& out, Budget& budget);

}  // namespace windrow::text
