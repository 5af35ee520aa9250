// Tests: what stands behind `is`.
#include <fmt/format.h>

#include <algorithm>

#include "text/template_functions.h"
#include "text/template_strings.h"

namespace windrow::text {
namespace {

using Arguments = CallArguments;

bool defined(const Value& v) { return !v.is_undefined(); }
bool undefined(const Value& v) { return v.is_undefined(); }
bool none(const Value& v) { return v.is_none(); }
bool boolean(const Value& v) { return v.as<bool>() != nullptr; }
bool is_true(const Value& v) { return v.as<bool>() != nullptr && *v.as<bool>(); }
bool is_false(const Value& v) { return v.as<bool>() != nullptr && !*v.as<bool>(); }
bool integer(const Value& v) { return v.as<std::int64_t>() != nullptr; }
bool floating(const Value& v) { return v.as<double>() != nullptr; }
bool number(const Value& v) { return v.is_number(); }
bool string(const Value& v) { return v.as_text() != nullptr; }
bool mapping(const Value& v) { return v.as_mapping() != nullptr; }
// Jinja asks for a length and items, or for an iterator; a mapping and a string have both, and an undefined
// value too.
bool iterable(const Value& v) {
  return v.as_list() != nullptr || v.as_mapping() != nullptr || v.as_text() != nullptr || v.is_undefined();
}
bool callable(const Value& v) { return v.as<Value::CallableRef>() != nullptr; }

struct Property {
  std::string_view name;
  bool (*holds)(const Value&);
};
constexpr Property kProperties[] = {
    {"defined", defined},   {"undefined", undefined}, {"none", none},       {"boolean", boolean},
    {"true", is_true},      {"false", is_false},      {"integer", integer}, {"float", floating},
    {"number", number},     {"string", string},       {"mapping", mapping}, {"iterable", iterable},
    {"sequence", iterable}, {"callable", callable},
};

std::int64_t need_int(const Value& v, std::string_view test) {
  if (const auto* i = v.as<std::int64_t>()) return *i;
  template_error(fmt::format("test {}: {} is no integer", test, v.type_name()));
}

bool odd(const Value& v, const Arguments& args, Budget&) {
  const Bound bound(args, "odd", {});
  return need_int(v, "odd") % 2 != 0;
}
bool even(const Value& v, const Arguments& args, Budget&) {
  const Bound bound(args, "even", {});
  return need_int(v, "even") % 2 == 0;
}
bool divisible(const Value& v, const Arguments& args, Budget&) {
  const Bound bound(args, "divisibleby", {"num"});
  const std::int64_t n = need_int(bound.need(0), "divisibleby");
  if (n == 0) bound.fail("division by 0");
  return n == -1 || need_int(v, "divisibleby") % n == 0;
}
bool lower(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "lower", {});
  const TaintedText* text = v.as_text();
  return text != nullptr && map_case(*text, Case::kLower, budget).bytes() == text->bytes() &&
         map_case(*text, Case::kUpper, budget).bytes() != text->bytes();
}
bool upper(const Value& v, const Arguments& args, Budget& budget) {
  const Bound bound(args, "upper", {});
  const TaintedText* text = v.as_text();
  return text != nullptr && map_case(*text, Case::kUpper, budget).bytes() == text->bytes() &&
         map_case(*text, Case::kLower, budget).bytes() != text->bytes();
}
bool equal(const Value& v, const Arguments& args, Budget& budget) {
  return values_equal(v, Bound(args, "eq", {"other"}).need(0), budget);
}
bool unequal(const Value& v, const Arguments& args, Budget& budget) { return !equal(v, args, budget); }
// Of constants, which is what templates ask; two texts of equal bytes count as the same, too.
bool same(const Value& v, const Arguments& args, Budget& budget) {
  const Value& other = Bound(args, "sameas", {"other"}).need(0);
  return v.kind.index() == other.kind.index() && values_equal(v, other, budget);
}
bool inside(const Value& v, const Arguments& args, Budget& budget) {
  return contains(Bound(args, "in", {"seq"}).need(0), v, budget);
}
template <bool less, bool or_equal>
bool ordered(const Value& v, const Arguments& args, Budget& budget) {
  const int order = compare_values(v, Bound(args, "an order", {"other"}).need(0), budget);
  return order == 0 ? or_equal : (order < 0) == less;
}

struct Relation {
  std::string_view name;
  bool (*holds)(const Value&, const Arguments&, Budget&);
};
constexpr Relation kRelations[] = {
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisible},
    {"lower", lower},
    {"upper", upper},
    {"eq", equal},
    {"equalto", equal},
    {"==", equal},
    {"ne", unequal},
    {"!=", unequal},
    {"sameas", same},
    {"in", inside},
    {"lt", ordered<true, false>},
    {"lessthan", ordered<true, false>},
    {"<", ordered<true, false>},
    {"le", ordered<true, true>},
    {"<=", ordered<true, true>},
    {"gt", ordered<false, false>},
    {"greaterthan", ordered<false, false>},
    {">", ordered<false, false>},
    {"ge", ordered<false, true>},
    {">=", ordered<false, true>},
};

template <class T, std::size_t n>
const T* find_in(const T (&table)[n], std::string_view name) {
  const auto it =
      std::find_if(std::begin(table), std::end(table), [&](const T& t) { return t.name == name; });
  return it == std::end(table) ? nullptr : it;
}

}  // namespace

bool is_test(std::string_view name) {
  return find_in(kProperties, name) != nullptr || find_in(kRelations, name) != nullptr;
}

bool apply_test(std::string_view name, const Value& value, const CallArguments& arguments, Budget& budget) {
  budget.step();
  if (const Property* property = find_in(kProperties, name)) {
    const Bound bound(arguments, name, {});
    return property->holds(value);
  }
  return find_in(kRelations, name)->holds(value, arguments, budget);
}

}  // namespace windrow::text
