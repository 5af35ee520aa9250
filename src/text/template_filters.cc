// Filters.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "text/template_functions.h"
#include "text/template_json.h"
#include "text/template_strings.h"

namespace windrow::text {

Bound::Bound(const CallArguments& arguments, std::string_view what,
             std::initializer_list<std::string_view> parameters)
    : what_(what), names_(parameters), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    fail(fmt::format("{} arguments, at most {} are supported", arguments.positional.size(), names_.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); i++) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(names_.begin(), names_.end(), name);
    if (it == names_.end()) fail(fmt::format("argument {} is not supported", quote(name)));
    const Value*& slot = values_[static_cast<std::size_t>(it - names_.begin())];
    if (slot != nullptr) fail(fmt::format("argument {} is given twice", quote(name)));
    slot = &value;
  }
}

void Bound::fail(const std::string& message) const { template_error(fmt::format("{}: {}", what_, message)); }

const Value& Bound::need(std::size_t i) const {
  if (values_[i] == nullptr) fail(fmt::format("argument {} is missing", quote(names_[i])));
  return *values_[i];
}

std::int64_t Bound::int_or(std::size_t i, std::int64_t fallback) const {
  if (values_[i] == nullptr || values_[i]->is_none()) return fallback;
  if (const bool* b = values_[i]->as<bool>()) return *b ? 1 : 0;
  if (const auto* n = values_[i]->as<std::int64_t>()) return *n;
  fail(fmt::format("argument {} is {}, expected an integer", quote(names_[i]), values_[i]->type_name()));
}

bool Bound::flag_or(std::size_t i, bool fallback) const {
  return values_[i] == nullptr ? fallback : values_[i]->truth();
}

const TaintedText* Bound::text_or_null(std::size_t i) const {
  if (values_[i] == nullptr || values_[i]->is_none()) return nullptr;
  if (const TaintedText* text = values_[i]->as_text()) return text;
  fail(fmt::format("argument {} is {}, expected a string", quote(names_[i]), values_[i]->type_name()));
}

const TaintedText& Bound::need_text(std::size_t i) const {
  need(i);
  const TaintedText* text = text_or_null(i);
  if (text == nullptr) fail(fmt::format("argument {} is none, expected a string", quote(names_[i])));
  return *text;
}

namespace {

using Arguments = CallArguments;

// The value as text: filters print what they are given.
TaintedText text_of(const Value& value, Budget& budget) {
  TaintedText text;
  print_value(value, text, budget);
  return text;
}

// a.b.0: a path of members.
Value member_at(const Value& value, const Value& path, Budget& budget) {
  if (path.as_text() == nullptr) return get_item(value, path, budget);
  Value found = value;
  const std::string_view names = path.as_text()->bytes();
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find('.', begin), names.size());
    const std::string_view name = names.substr(begin, end - begin);
    std::int64_t index = 0;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool number = error == std::errc() && stop == name.data() + name.size();
    // Members come before methods here: an item called "items" is meant.
    found = get_item(found, number ? Value(index) : Value::text(name, false), budget);
    begin = end + 1;
  }
  return found;
}

Value trim(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "trim", {"chars"});
  const TaintedText text = text_of(v, budget);
  const TaintedText* characters = bound.text_or_null(0);
  if (characters != nullptr) budget.read(64 * characters->size());  // they are sorted
  const Span span =
      strip_span(text.bytes(), characters == nullptr ? nullptr : &characters->bytes(), true, true);
  return make_text(budget, text.slice(span.begin, span.end));
}

Value length(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "length", {});
  const std::int64_t n = length_of(v, budget);
  if (n < 0) bound.fail(fmt::format("{} has no length", v.type_name()));
  return Value(n);
}

template <Case how>
Value change_case(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "a filter of letters", {});
  return make_text(budget, map_case(text_of(v, budget), how, budget));
}

Value to_json(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.flag_or(0, false);
  if (bound.get(1) != nullptr && !bound.get(1)->is_none()) {
    style.indent = bound.int_or(1, 0);
    if (*style.indent < 0 || *style.indent > 1024) bound.fail("indent is not from 0 to 1024");
  }
  if (const Value* separators = bound.get(2); separators != nullptr && !separators->is_none()) {
    const List* pair = separators->as_list();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].as_text() == nullptr ||
        pair->items[1].as_text() == nullptr)
      bound.fail("separators are not two strings");
    style.item_separator = pair->items[0].as_text()->bytes();
    style.key_separator = pair->items[1].as_text()->bytes();
  }
  style.sort_keys = bound.flag_or(3, false);
  return Value::text(json_of_value(v, style, budget));
}

Value or_default(const Value& v, const Arguments& args, Budget&) {
  const Bound bound(args, "default", {"default_value", "boolean"});
  if (!v.is_undefined() && !(bound.flag_or(1, false) && !v.truth())) return v;
  return bound.get(0) == nullptr ? Value::text("", false) : *bound.get(0);
}

Value join(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "join", {"d", "attribute"});
  const TaintedText* separator = bound.text_or_null(0);
  TaintedText out;
  const auto items = iterate(v, budget);
  for (std::size_t i = 0; i < items->items.size(); i++) {
    budget.step();
    if (i > 0 && separator != nullptr) {
      budget.allocate(separator->cost());
      out.append(*separator);
    }
    print_value(bound.get(1) == nullptr ? items->items[i] : member_at(items->items[i], *bound.get(1), budget),
                out, budget);
  }
  return make_text(budget, std::move(out));
}

Value replace(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "replace", {"old", "new", "count"});
  return make_text(budget, replace_text(text_of(v, budget), bound.need_text(0).bytes(), bound.need_text(1),
                                        bound.int_or(2, -1), budget));
}

Value list(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "list", {});
  return Value(Value::ListRef(iterate(v, budget)), v.plain);
}

Value items(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "items", {});
  if (v.is_undefined()) return Value::list({}, false);
  if (v.as_mapping() == nullptr) bound.fail(fmt::format("{} is no mapping", v.type_name()));
  return call_method(v, "items", {}, budget);
}

template <bool last>
Value border(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, last ? "last" : "first", {});
  const auto all = iterate(v, budget);
  if (all->items.empty()) return Value::undefined("an empty list has no first and no last item");
  return last ? all->items.back() : all->items.front();
}

Value string(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "string", {});
  return make_text(budget, text_of(v, budget));
}

Value safe(const Value& v, const Arguments& args, Budget&) {
  const Bound bound(args, "safe", {});
  return v;  // nothing is escaped
}

Value to_int(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "int", {"default"});
  const std::int64_t fallback = bound.int_or(0, 0);
  if (const bool* b = v.as<bool>()) return Value(std::int64_t{*b ? 1 : 0}, v.plain);
  if (v.as<std::int64_t>() != nullptr) return v;
  if (const double* d = v.as<double>()) {
    if (!(std::abs(*d) < 9e18)) bound.fail("the number is beyond 64 bits");
    return Value(static_cast<std::int64_t>(*d), v.plain);
  }
  const TaintedText* text = v.as_text();
  if (text == nullptr) return Value(fallback);
  budget.read(text->size());
  const Span span = strip_span(text->bytes(), nullptr, true, true);
  std::string_view digits = std::string_view(text->bytes()).substr(span.begin, span.end - span.begin);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  std::int64_t n = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error == std::errc() && stop == digits.data() + digits.size()) return Value(n, text->any_plain());
  double d = 0;  // "2.7" is 2
  const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), d);
  const bool number = wrong == std::errc() && end == digits.data() + digits.size() && std::abs(d) < 9e18;
  return number ? Value(static_cast<std::int64_t>(d), text->any_plain()) : Value(fallback);
}

Value to_float(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "float", {"default"});
  double d = 0;
  if (const double* same = v.as<double>()) return Value(*same, v.plain);
  if (v.is_number()) return Value(static_cast<double>(*to_int(v, {}, budget).as<std::int64_t>()), v.plain);
  if (const TaintedText* text = v.as_text()) {
    const auto [stop, error] = std::from_chars(text->bytes().data(), text->bytes().data() + text->size(), d);
    if (error == std::errc() && stop == text->bytes().data() + text->size() && std::isfinite(d))
      return Value(d, text->any_plain());
  }
  return bound.get(0) == nullptr ? Value(0.0) : *bound.get(0);
}

Value absolute(const Value& v, const Arguments& args, Budget&) {
  const Bound bound(args, "abs", {});
  if (const double* d = v.as<double>()) return Value(std::abs(*d), v.plain);
  const auto* i = v.as<std::int64_t>();
  if (i == nullptr || *i == INT64_MIN) bound.fail("no number with an absolute value");
  return Value(*i < 0 ? -*i : *i, v.plain);
}

Value indent(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "indent", {"width", "first", "blank"});
  TaintedText width;
  if (bound.get(0) != nullptr && bound.get(0)->as_text() != nullptr) {
    width = *bound.get(0)->as_text();
  } else {
    const std::int64_t n = bound.int_or(0, 4);
    if (n < 0 || n > 1024) bound.fail("width is not from 0 to 1024");
    width = TaintedText(std::string(static_cast<std::size_t>(n), ' '), false);
  }
  return make_text(budget, indent_text(text_of(v, budget), width, bound.flag_or(1, false),
                                       bound.flag_or(2, false), budget));
}

// A list of the items for which keep(item) holds.
template <class F>
Value kept(const Value& v, Budget& budget, const F& keep) {
  std::vector<Value> out;
  for (const Value& item : iterate(v, budget)->items) {
    budget.step();
    if (!keep(item)) continue;
    budget.allocate_items(1);
    out.push_back(item);
  }
  return Value::list(std::move(out), v.plain);
}

// select, reject (a test and its arguments), selectattr, rejectattr (a member, a test and its arguments).
template <bool attribute, bool wanted>
Value choose(const Value& v, const Arguments& args, Budget& budget) {
  constexpr std::size_t kTest = attribute ? 1 : 0;
  if (!args.named.empty() || args.positional.size() < kTest)
    template_error("select, reject: a member, a test and its arguments are expected");
  Arguments rest;
  std::string test;
  if (args.positional.size() > kTest) {
    const TaintedText* name = args.positional[kTest].as_text();
    test = name == nullptr ? "" : name->bytes();
    if (!is_test(test))
      template_error(fmt::format("test {} is not supported", quote(test)), StatusCode::kUnsupported);
    rest.positional.assign(args.positional.begin() + kTest + 1, args.positional.end());
  }
  return kept(v, budget, [&](const Value& item) {
    const Value value = attribute ? member_at(item, args.positional[0], budget) : item;
    return (test.empty() ? value.truth() : apply_test(test, value, rest, budget)) == wanted;
  });
}

// map(attribute=..., default=...) or map(filter, its arguments...).
Value map(const Value& v, const Arguments& args, Budget& budget) {
  std::vector<Value> out;
  const auto all = iterate(v, budget);
  budget.allocate_items(all->items.size());
  if (args.positional.empty()) {
    const Bound bound(args, "map", {"attribute", "default"});
    for (const Value& item : all->items) {
      Value member = member_at(item, bound.need(0), budget);
      if (member.is_undefined() && bound.get(1) != nullptr) member = *bound.get(1);
      out.push_back(std::move(member));
    }
  } else {
    const TaintedText* text = args.positional[0].as_text();
    const std::string name = text == nullptr ? "" : text->bytes();
    // A filter in a filter in a filter ... would be a recursion without a bound.
    if (!is_filter(name) || name == "map" || name.starts_with("select") || name.starts_with("reject"))
      template_error(fmt::format("map over filter {} is not supported", quote(name)),
                     StatusCode::kUnsupported);
    Arguments rest;
    rest.positional.assign(args.positional.begin() + 1, args.positional.end());
    rest.named = args.named;
    for (const Value& item : all->items) out.push_back(apply_filter(name, item, rest, budget));
  }
  return Value::list(std::move(out), v.plain);
}

// What a value is sorted by: texts without regard to case, unless asked otherwise.
Value sort_key(const Value& v, bool by_case, Budget& budget) {
  if (by_case || v.as_text() == nullptr) return v;
  return make_text(budget, map_case(*v.as_text(), Case::kLower, budget));
}

using Keyed = std::pair<Value, Value>;
Value sorted(std::vector<Keyed> keyed, bool reverse, bool plain, Budget& budget) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? compare_values(b.first, a.first, budget) < 0
                   : compare_values(a.first, b.first, budget) < 0;
  });
  std::vector<Value> out;
  for (Keyed& item : keyed) out.push_back(std::move(item.second));
  return Value::list(std::move(out), plain);
}

Value sort(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> keyed;
  const auto all = iterate(v, budget);
  budget.allocate_items(2 * all->items.size());
  for (const Value& item : all->items) {
    const Value by = bound.get(2) == nullptr ? item : member_at(item, *bound.get(2), budget);
    keyed.emplace_back(sort_key(by, bound.flag_or(1, false), budget), item);
  }
  return sorted(std::move(keyed), bound.flag_or(0, false), v.plain, budget);
}

Value dictsort(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "dictsort", {"case_sensitive", "by", "reverse"});
  if (v.as_mapping() == nullptr) bound.fail(fmt::format("{} is no mapping", v.type_name()));
  const TaintedText* by = bound.text_or_null(1);
  if (by != nullptr && by->bytes() != "key" && by->bytes() != "value")
    bound.fail("by is neither key nor value");
  const std::size_t part = by != nullptr && by->bytes() == "value" ? 1 : 0;
  const Value pairs = call_method(v, "items", {}, budget);
  std::vector<Keyed> keyed;
  for (const Value& pair : pairs.as_list()->items) {
    keyed.emplace_back(sort_key(pair.as_list()->items[part], bound.flag_or(0, false), budget), pair);
  }
  return sorted(std::move(keyed), bound.flag_or(2, false), v.plain, budget);
}

Value reverse(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "reverse", {});
  std::vector<Value> all = iterate(v, budget)->items;
  budget.allocate_items(all.size());
  std::reverse(all.begin(), all.end());
  if (v.as_text() == nullptr) return Value::list(std::move(all), v.plain);
  TaintedText out;
  for (const Value& c : all) out.append(*c.as_text());
  return make_text(budget, std::move(out));
}

Value unique(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "unique", {"case_sensitive", "attribute"});
  std::vector<Value> seen;
  return kept(v, budget, [&](const Value& item) {
    const Value by = bound.get(1) == nullptr ? item : member_at(item, *bound.get(1), budget);
    Value key = sort_key(by, bound.flag_or(0, false), budget);
    // Quadratic, and every comparison is a step of the budget.
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Value& other) { return values_equal(other, key, budget); });
    if (!known) seen.push_back(std::move(key));
    return !known;
  });
}

template <int sign>
Value extreme(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, sign < 0 ? "min" : "max", {});
  const auto all = iterate(v, budget);
  if (all->items.empty()) return Value::undefined("an empty list has no least and no greatest item");
  const Value* best = &all->items[0];
  for (const Value& item : all->items) {
    if (compare_values(item, *best, budget) * sign > 0) best = &item;
  }
  return *best;
}

struct Filter {
  std::string_view name;
  Value (*apply)(const Value&, const Arguments&, Budget&);
};
constexpr Filter kFilters[] = {
    {"trim", trim},
    {"length", length},
    {"count", length},
    {"upper", change_case<Case::kUpper>},
    {"lower", change_case<Case::kLower>},
    {"title", change_case<Case::kTitleOfWords>},
    {"capitalize", change_case<Case::kCapitalize>},
    {"tojson", to_json},
    {"default", or_default},
    {"d", or_default},
    {"join", join},
    {"replace", replace},
    {"list", list},
    {"items", items},
    {"first", border<false>},
    {"last", border<true>},
    {"string", string},
    {"safe", safe},
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"indent", indent},
    {"select", choose<false, true>},
    {"reject", choose<false, false>},
    {"selectattr", choose<true, true>},
    {"rejectattr", choose<true, false>},
    {"map", map},
    {"sort", sort},
    {"dictsort", dictsort},
    {"reverse", reverse},
    {"unique", unique},
    {"min", extreme<-1>},
    {"max", extreme<1>},
};

const Filter* find_filter(std::string_view name) {
  const auto it =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const Filter& f) { return f.name == name; });
  return it == std::end(kFilters) ? nullptr : it;
}

}  // namespace

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(std::string_view name, const Value& value, const CallArguments& arguments,
                   Budget& budget) {
  budget.step();
  return find_filter(name)->apply(value, arguments, budget);
}

}  // namespace windrow::text
