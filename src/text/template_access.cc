// Members, items, iteration, printing: what all values have in common.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/utf8.h"
#include "text/template_functions.h"
#include "text/template_json.h"
#include "text/template_loop.h"
#include "text/template_strings.h"

namespace windrow::text {
namespace {

Value loop_member(const LoopState& loop, std::string_view name) {
  const auto count = static_cast<std::int64_t>(loop.items->items.size());
  const auto at = static_cast<std::int64_t>(loop.at);
  if (name == "index") return Value(at + 1);
  if (name == "index0") return Value(at);
  if (name == "revindex") return Value(count - at);
  if (name == "revindex0") return Value(count - at - 1);
  if (name == "first") return Value(at == 0);
  if (name == "last") return Value(at + 1 == count);
  if (name == "length") return Value(count);
  if (name == "depth") return Value(std::int64_t{1});  // of recursion, which is not supported
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "previtem") {
    return at > 0 ? loop.items->items[loop.at - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return at + 1 < count ? loop.items->items[loop.at + 1] : Value::undefined("there is no next item");
  }
  template_error(fmt::format("loop.{} is not supported", name), StatusCode::kUnsupported);
}

// What a bound method, or the reason why a value is undefined, takes besides its Value.
constexpr std::size_t kSmallObject = 192;

Value bound_method(const Value& receiver, std::string_view name, Budget& budget) {
  budget.allocate(kSmallObject);
  if (receiver.nesting() >= kMaxNesting) {
    template_error(fmt::format("values are nested deeper than {}", kMaxNesting),
                   StatusCode::kResourceExhausted);
  }
  Callable callable{std::string(name), std::make_shared<const Value>(receiver), nullptr,
                    receiver.nesting() + 1};
  return Value(std::make_shared<const Callable>(std::move(callable)));
}

// A member of a mapping, a namespace or a loop; null where there is none.
bool find_member(const Value& value, std::string_view name, Value* found) {
  const Value* member = nullptr;
  if (const Mapping* mapping = value.as_mapping()) {
    member = mapping->find(name);
  } else if (const auto* space = value.as<Namespace*>()) {
    const auto it = (*space)->members.find(name);
    if (it != (*space)->members.end()) member = &it->second;
  }
  if (member != nullptr) *found = *member;
  return member != nullptr;
}

std::string undefined_name(const Value& value) {
  const auto& what = value.as<Undefined>()->what;
  return what == nullptr ? "a value is undefined" : *what;
}

// A Python index into `length` things; -1 where it is outside.
std::int64_t wrap_index(std::int64_t index, std::int64_t length) {
  if (index < 0) index += length;
  return index < 0 || index >= length ? -1 : index;
}

}  // namespace

Value get_attribute(const Value& value, std::string_view name, Budget& budget) {
  budget.step();
  if (value.is_undefined()) {
    template_error(fmt::format("{}, so that it has no member {}", undefined_name(value), quote(name)));
  }
  if (const auto* loop = value.as<Value::LoopRef>()) {
    if (name == "cycle" || name == "changed") return bound_method(value, name, budget);
    return loop_member(**loop, name);
  }
  if (has_method(value, name)) return bound_method(value, name, budget);
  Value found;
  if (find_member(value, name, &found)) return found;
  budget.allocate(kSmallObject);
  return Value::undefined(fmt::format("{} has no member {}", value.type_name(), quote(name)));
}

Value get_item(const Value& value, const Value& key, Budget& budget) {
  budget.step();
  if (value.is_undefined()) template_error(fmt::format("{}, so that it has no items", undefined_name(value)));
  if (const TaintedText* name = key.as_text()) {
    Value found;
    if (find_member(value, name->bytes(), &found)) return found;
    return get_attribute(value, name->bytes(), budget);
  }
  const auto* index = key.as<std::int64_t>();
  if (index != nullptr && value.as_list() != nullptr) {
    const auto& items = value.as_list()->items;
    const std::int64_t at = wrap_index(*index, static_cast<std::int64_t>(items.size()));
    if (at >= 0) return items[static_cast<std::size_t>(at)];
    budget.allocate(kSmallObject);
    return Value::undefined(fmt::format("a list of {} has no item {}", items.size(), *index));
  }
  if (index != nullptr && value.as_text() != nullptr) {
    const TaintedText& text = *value.as_text();
    budget.read(text.size());
    const std::int64_t at = wrap_index(*index, count_characters(text.bytes()));
    if (at < 0) return Value::undefined(fmt::format("a string has no character {}", *index));
    const std::size_t begin = character_offset(text.bytes(), at);
    return make_text(budget, text.slice(begin, begin + utf8_length(text.bytes(), begin)));
  }
  return Value::undefined(fmt::format("{} has no item of that kind", value.type_name()));
}

std::shared_ptr<const List> iterate(const Value& value, Budget& budget) {
  if (const auto* list = value.as<Value::ListRef>()) return *list;
  auto items = std::make_shared<List>();
  if (const Mapping* mapping = value.as_mapping()) {
    budget.allocate_items(mapping->entries.size());
    for (const Mapping::Entry& entry : mapping->entries) items->items.emplace_back(entry.key);
  } else if (const TaintedText* text = value.as_text()) {
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t begin = at;
      at += utf8_length(text->bytes(), at);
      budget.allocate_items(1);
      items->items.push_back(make_text(budget, text->slice(begin, at)));
    }
  } else if (!value.is_undefined()) {
    template_error(fmt::format("{} can't be iterated over", value.type_name()));
  }
  return items;
}

bool contains(const Value& container, const Value& value, Budget& budget) {
  if (const TaintedText* text = container.as_text()) {
    if (value.as_text() == nullptr)
      template_error(fmt::format("{} in a string, a string is expected", value.type_name()));
    budget.read(text->size());
    return find_text(text->bytes(), value.as_text()->bytes(), 0) != std::string::npos;
  }
  if (const Mapping* mapping = container.as_mapping()) {
    budget.step();
    return value.as_text() != nullptr && mapping->find(value.as_text()->bytes()) != nullptr;
  }
  if (const List* list = container.as_list()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& item) { return values_equal(item, value, budget); });
  }
  if (container.is_undefined()) return false;
  template_error(fmt::format("\"in\" {}", container.type_name()));
}

std::int64_t length_of(const Value& value, Budget& budget) {
  if (const TaintedText* text = value.as_text()) {
    budget.read(text->size());
    return count_characters(text->bytes());
  }
  if (const List* list = value.as_list()) return static_cast<std::int64_t>(list->items.size());
  if (const Mapping* mapping = value.as_mapping()) return static_cast<std::int64_t>(mapping->entries.size());
  return value.is_undefined() ? 0 : -1;
}

namespace {

void print_nested(const Value& value, TaintedText& out, Budget& budget) {
  budget.step();
  const std::size_t before = out.cost();
  if (const TaintedText* text = value.as_text()) {
    budget.allocate(4 * text->cost());
    return append_repr(*text, out);
  }
  if (const List* list = value.as_list()) {
    out.append(list->tuple ? "(" : "[", value.plain);
    for (std::size_t i = 0; i < list->items.size(); i++) {
      if (i > 0) out.append(", ", value.plain);
      print_nested(list->items[i], out, budget);
    }
    if (list->tuple && list->items.size() == 1) out.append(",", value.plain);
    out.append(list->tuple ? ")" : "]", value.plain);
  } else if (const Mapping* mapping = value.as_mapping()) {
    out.append("{", value.plain);
    for (std::size_t i = 0; i < mapping->entries.size(); i++) {
      if (i > 0) out.append(", ", value.plain);
      const Mapping::Entry& entry = mapping->entries[i];
      budget.allocate(4 * entry.key->cost());
      append_repr(*entry.key, out);
      out.append(": ", value.plain);
      print_nested(entry.value, out, budget);
    }
    out.append("}", value.plain);
  } else if (value.is_undefined()) {
    out.append("Undefined", false);
  } else {
    print_value(value, out, budget);
    budget.allocate(out.cost() - before);
  }
}

}  // namespace

void print_value(const Value& value, TaintedText& out, Budget& budget) {
  if (const TaintedText* text = value.as_text()) {
    budget.allocate(text->cost());
    out.append(*text);
  } else if (value.is_none()) {
    out.append("None", value.plain);
  } else if (const bool* b = value.as<bool>()) {
    out.append(*b ? "True" : "False", value.plain);
  } else if (const auto* i = value.as<std::int64_t>()) {
    out.append(fmt::format("{}", *i), value.plain);
  } else if (const auto* d = value.as<double>()) {
    out.append(float_text(*d), value.plain);
  } else if (value.as_list() != nullptr || value.as_mapping() != nullptr) {
    print_nested(value, out, budget);
  } else if (!value.is_undefined()) {
    template_error(fmt::format("{} can't be printed", value.type_name()));
  }
}

}  // namespace windrow::text
