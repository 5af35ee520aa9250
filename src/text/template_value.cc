// Values: nesting, truth, equality, order.
#include "text/template_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "text/template_loop.h"

namespace windrow::text {
namespace {

template <class... F>
struct Visit : F... {
  using F::operator()...;
};
template <class... F>
Visit(F...) -> Visit<F...>;

int checked_nesting(int nesting) {
  if (nesting > kMaxNesting)
    template_error(fmt::format("values are nested deeper than {}", kMaxNesting),
                   StatusCode::kResourceExhausted);
  return nesting;
}

double to_double(const Value& v) {
  if (const bool* b = v.as<bool>()) return *b ? 1 : 0;
  if (const auto* i = v.as<std::int64_t>()) return static_cast<double>(*i);
  return *v.as<double>();
}

std::int64_t to_int(const Value& v) { return v.as<bool>() ? (*v.as<bool>() ? 1 : 0) : *v.as<std::int64_t>(); }

template <class T>
int order(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

int compare_numbers(const Value& a, const Value& b) {
  if (a.as<double>() == nullptr && b.as<double>() == nullptr) return order(to_int(a), to_int(b));
  return order(to_double(a), to_double(b));
}

}  // namespace

const Value* Mapping::find(std::string_view key) const {
  const auto it = index.find(key);
  return it == index.end() ? nullptr : &entries[it->second].value;
}

void Mapping::set(TextRef key, Value value) {
  nesting = std::max(nesting, checked_nesting(1 + value.nesting()));
  const auto [it, added] = index.emplace(key->bytes(), entries.size());
  if (added) {
    entries.push_back({std::move(key), std::move(value)});
  } else {
    entries[it->second].value = std::move(value);
  }
}

Value Value::undefined(std::string what) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(what))});
}

Value Value::list(std::vector<Value> items, bool plain, bool tuple) {
  int nesting = 1;
  for (const Value& item : items) nesting = std::max(nesting, 1 + item.nesting());
  checked_nesting(nesting);
  return Value(ListRef(std::make_shared<List>(List{std::move(items), nesting, tuple})), plain);
}

Value Value::mapping(Mapping mapping, bool plain) {
  return Value(MappingRef(std::make_shared<Mapping>(std::move(mapping))), plain);
}

int Value::nesting() const {
  return std::visit(Visit{[](const ListRef& list) { return list->nesting; },
                          [](const MappingRef& mapping) { return mapping->nesting; },
                          [](const CallableRef& callable) { return callable->nesting; },
                          [](const LoopRef& loop) { return loop->nesting; }, [](const auto&) { return 0; }},
                    kind);
}

bool Value::truth() const {
  return std::visit(Visit{[](const Undefined&) { return false; }, [](const None&) { return false; },
                          [](bool b) { return b; }, [](std::int64_t i) { return i != 0; },
                          [](double d) { return d != 0; }, [](const TextRef& text) { return !text->empty(); },
                          [](const ListRef& list) { return !list->items.empty(); },
                          [](const MappingRef& mapping) { return !mapping->entries.empty(); },
                          [](const auto&) { return true; }},
                    kind);
}

const char* Value::type_name() const {
  return std::visit(
      Visit{[](const Undefined&) { return "undefined"; }, [](const None&) { return "none"; },
            [](bool) { return "a boolean"; }, [](std::int64_t) { return "an integer"; },
            [](double) { return "a float"; }, [](const TextRef&) { return "a string"; },
            [](const ListRef&) { return "a list"; }, [](const MappingRef&) { return "a mapping"; },
            [](Namespace*) { return "a namespace"; }, [](const CallableRef&) { return "a function"; },
            [](const LoopRef&) { return "a loop"; }},
      kind);
}

bool values_equal(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind.index() != b.kind.index()) return false;
  if (const TaintedText* text = a.as_text()) {
    const std::string& other = b.as_text()->bytes();
    if (text->size() != other.size()) return false;
    budget.read(other.size());
    return text->bytes() == other;
  }
  if (const List* list = a.as_list()) {
    const List* other = b.as_list();
    if (list->items.size() != other->items.size()) return false;
    for (std::size_t i = 0; i < list->items.size(); i++) {
      if (!values_equal(list->items[i], other->items[i], budget)) return false;
    }
    return true;
  }
  if (const Mapping* mapping = a.as_mapping()) {
    const Mapping* other = b.as_mapping();
    if (mapping->entries.size() != other->entries.size()) return false;
    for (const Mapping::Entry& entry : mapping->entries) {
      const Value* value = other->find(entry.key->bytes());
      if (value == nullptr || !values_equal(entry.value, *value, budget)) return false;
    }
    return true;
  }
  if (a.is_undefined() || a.is_none()) return true;
  if (const auto* space = a.as<Namespace*>()) return *space == *b.as<Namespace*>();
  return false;  // functions and loops: nothing asks
}

int compare_values(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.as_text() != nullptr && b.as_text() != nullptr) {
    budget.read(std::min(a.as_text()->size(), b.as_text()->size()));
    // UTF-8 sorts like code points.
    return order(a.as_text()->bytes(), b.as_text()->bytes());
  }
  if (a.as_list() != nullptr && b.as_list() != nullptr) {
    const auto& x = a.as_list()->items;
    const auto& y = b.as_list()->items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); i++) {
      if (!values_equal(x[i], y[i], budget)) return compare_values(x[i], y[i], budget);
    }
    return order(x.size(), y.size());
  }
  template_error(fmt::format("{} and {} have no order", a.type_name(), b.type_name()));
}

void Budget::spent(const char* what) {
  template_error(fmt::format("the rendering needs more {} than the limit", what),
                 StatusCode::kResourceExhausted);
}

}  // namespace windrow::text
