// Arithmetic and slices.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/template_eval.h"
#include "text/template_strings.h"

namespace windrow::text {
namespace {

[[noreturn]] void no_operation(const std::string& op, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b}) {
    const auto* undefined = v->as<Undefined>();
    if (undefined != nullptr && undefined->what != nullptr)
      template_error(fmt::format("{}, so that it has no {}", *undefined->what, op));
  }
  template_error(fmt::format("{} {} {}", a.type_name(), op, b.type_name()));
}

double as_double(const Value& v) {
  if (const double* d = v.as<double>()) return *d;
  if (const auto* i = v.as<std::int64_t>()) return static_cast<double>(*i);
  return *v.as<bool>() ? 1 : 0;
}

std::int64_t as_int(const Value& v) {
  return v.as<bool>() != nullptr ? (*v.as<bool>() ? 1 : 0) : *v.as<std::int64_t>();
}

Value checked_float(double d, bool plain) {
  if (!std::isfinite(d)) template_error("a result that is no finite number");
  return Value(d, plain);
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

Value integers(const std::string& op, std::int64_t a, std::int64_t b, bool plain) {
  std::int64_t r = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &r);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &r);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &r);
  } else if (op == "**") {
    if (b < 0) return checked_float(std::pow(static_cast<double>(a), static_cast<double>(b)), plain);
    r = 1;
    // Beyond 63 doublings only 0, 1 and -1 stay in range, whose powers depend on the parity alone.
    for (std::int64_t n = b < 64 ? b : 64 + b % 2; n > 0 && !overflow; n--)
      overflow = __builtin_mul_overflow(r, a, &r);
  } else {
    overflow = a == INT64_MIN && b == -1;
    if (!overflow && op == "//") r = floor_divide(a, b);
    if (!overflow && op == "%") r = a - b * floor_divide(a, b);
  }
  if (overflow) template_error("a result beyond 64 bits");
  return Value(r, plain);
}

Value numbers(const std::string& op, const Value& a, const Value& b) {
  const bool plain = a.plain || b.plain;
  const bool division = op == "/" || op == "//" || op == "%";
  if (division && as_double(b) == 0) template_error("division by 0");
  if (op != "/" && a.as<double>() == nullptr && b.as<double>() == nullptr)
    return integers(op, as_int(a), as_int(b), plain);
  const double x = as_double(a), y = as_double(b);
  if (op == "+") return checked_float(x + y, plain);
  if (op == "-") return checked_float(x - y, plain);
  if (op == "*") return checked_float(x * y, plain);
  if (op == "/") return checked_float(x / y, plain);
  if (op == "//") return checked_float(std::floor(x / y), plain);
  if (op == "**") return checked_float(std::pow(x, y), plain);
  return checked_float(x - y * std::floor(x / y), plain);
}

Value repeat(const Value& value, std::int64_t times, Budget& budget) {
  if (const TaintedText* text = value.as_text()) {
    TaintedText out;
    for (std::int64_t n = 0; n < times && !text->empty(); n++) {
      budget.allocate(text->cost() + 1);
      out.append(*text);
    }
    return Value::text(std::move(out));
  }
  const auto& items = value.as_list()->items;
  std::vector<Value> out;
  for (std::int64_t n = 0; n < times && !items.empty(); n++) {
    budget.allocate_items(items.size());
    out.insert(out.end(), items.begin(), items.end());
  }
  return Value::list(std::move(out), value.plain);
}

// Python's slice.indices().
struct Range {
  std::int64_t from, to, step;
};

Range slice_range(const Value& from, const Value& to, const Value& step, std::int64_t length) {
  const auto bound = [&](const Value& v, std::int64_t fallback, std::int64_t low, std::int64_t high) {
    if (v.is_none()) return fallback;
    if (v.as<std::int64_t>() == nullptr) template_error(fmt::format("a slice bound is {}", v.type_name()));
    std::int64_t i = *v.as<std::int64_t>();
    if (i < 0) i = i < -length ? low : i + length;
    return std::clamp(i, low, high);
  };
  std::int64_t by = 1;
  if (!step.is_none()) {
    if (step.as<std::int64_t>() == nullptr)
      template_error(fmt::format("a slice step is {}", step.type_name()));
    by = std::clamp<std::int64_t>(*step.as<std::int64_t>(), -(std::int64_t{1} << 40), std::int64_t{1} << 40);
    if (by == 0) template_error("a slice step is 0");
  }
  if (by > 0) return {bound(from, 0, 0, length), bound(to, length, 0, length), by};
  return {bound(from, length - 1, -1, length - 1), bound(to, -1, -1, length - 1), by};
}

}  // namespace

Value binary_operation(const std::string& op, const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_number() && b.is_number()) return numbers(op, a, b);
  if (op == "+" && a.as_text() != nullptr && b.as_text() != nullptr) {
    budget.allocate(a.as_text()->cost() + b.as_text()->cost());
    TaintedText out = *a.as_text();
    out.append(*b.as_text());
    return make_text(budget, std::move(out));
  }
  if (op == "+" && a.as_list() != nullptr && b.as_list() != nullptr) {
    std::vector<Value> items = a.as_list()->items;
    const auto& more = b.as_list()->items;
    budget.allocate_items(items.size() + more.size());
    items.insert(items.end(), more.begin(), more.end());
    return Value::list(std::move(items), a.plain || b.plain);
  }
  const auto sequence = [](const Value& v) { return v.as_text() != nullptr || v.as_list() != nullptr; };
  if (op == "*" && sequence(a) && b.as<std::int64_t>() != nullptr) return repeat(a, as_int(b), budget);
  if (op == "*" && sequence(b) && a.as<std::int64_t>() != nullptr) return repeat(b, as_int(a), budget);
  no_operation(op, a, b);
}

Value slice_value(const Value& value, const Value& from, const Value& to, const Value& step, Budget& budget) {
  if (const List* list = value.as_list()) {
    const Range range = slice_range(from, to, step, static_cast<std::int64_t>(list->items.size()));
    std::vector<Value> out;
    for (std::int64_t i = range.from; range.step > 0 ? i < range.to : i > range.to; i += range.step) {
      budget.allocate_items(1);
      out.push_back(list->items[static_cast<std::size_t>(i)]);
    }
    return Value::list(std::move(out), value.plain);
  }
  const TaintedText* text = value.as_text();
  if (text == nullptr) template_error(fmt::format("a slice of {}", value.type_name()));
  budget.read(text->size());
  const Range range = slice_range(from, to, step, count_characters(text->bytes()));
  if (range.step == 1) {
    if (range.from >= range.to) return Value::text("", false);
    const std::size_t begin = character_offset(text->bytes(), range.from);
    const std::size_t n =
        character_offset(std::string_view(text->bytes()).substr(begin), range.to - range.from);
    return make_text(budget, text->slice(begin, begin + n));
  }
  std::vector<std::size_t> offsets;  // of each character
  budget.allocate(text->size() * sizeof(std::size_t));
  for (std::size_t at = 0; at < text->size(); at += utf8_length(text->bytes(), at)) offsets.push_back(at);
  TaintedText out;
  for (std::int64_t i = range.from; range.step > 0 ? i < range.to : i > range.to; i += range.step) {
    const std::size_t at = offsets[static_cast<std::size_t>(i)];
    budget.step();
    out.append(*text, at, at + utf8_length(text->bytes(), at));
  }
  return make_text(budget, std::move(out));
}

}  // namespace windrow::text
