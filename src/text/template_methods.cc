// Methods of strings and mappings, and a loop's cycle.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "text/template_functions.h"
#include "text/template_loop.h"
#include "text/template_strings.h"

namespace windrow::text {
namespace {

using Arguments = CallArguments;

Value part_list(const TaintedText& text, const std::vector<Span>& spans, Budget& budget) {
  std::vector<Value> items;
  for (const Span& span : spans) items.push_back(make_text(budget, text.slice(span.begin, span.end)));
  return Value::list(std::move(items), text.any_plain());
}

Value strip(const TaintedText& text, std::string_view name, const Arguments& args, Budget& budget) {
  const Bound bound(args, name, {"chars"});
  const TaintedText* characters = bound.text_or_null(0);
  budget.read(text.size() + (characters == nullptr ? 0 : 64 * characters->size()));  // they are sorted
  const Span span = strip_span(text.bytes(), characters == nullptr ? nullptr : &characters->bytes(),
                               name != "rstrip", name != "lstrip");
  return make_text(budget, text.slice(span.begin, span.end));
}

Value split(const TaintedText& text, std::string_view name, const Arguments& args, Budget& budget) {
  const Bound bound(args, name, {"sep", "maxsplit"});
  const TaintedText* separator = bound.text_or_null(0);
  if (separator != nullptr && separator->empty()) bound.fail("the separator is empty");
  return part_list(text,
                   split_spans(text.bytes(), separator == nullptr ? nullptr : &separator->bytes(),
                               bound.int_or(1, -1), name == "rsplit", budget),
                   budget);
}

Value split_lines(const TaintedText& text, std::string_view name, const Arguments& args, Budget& budget) {
  const Bound bound(args, name, {"keepends"});
  const std::vector<Span> lines = line_spans(text.bytes(), bound.flag_or(0, false));
  budget.read(text.size());
  budget.allocate_items(lines.size());
  return part_list(text, lines, budget);
}

// startswith, endswith: of one text, or of any of a list.
Value borders(const TaintedText& text, std::string_view name, const Arguments& args, Budget& budget) {
  const Bound bound(args, name, {"prefix"});
  const auto holds = [&](const Value& border) {
    if (border.as_text() == nullptr) bound.fail(fmt::format("{} is no string", border.type_name()));
    const std::string& other = border.as_text()->bytes();
    budget.read(other.size());
    return name == "startswith" ? text.bytes().starts_with(other) : text.bytes().ends_with(other);
  };
  const Value& border = bound.need(0);
  if (border.as_list() == nullptr) return Value(holds(border));
  const auto& items = border.as_list()->items;
  return Value(std::any_of(items.begin(), items.end(), holds));
}

Value change_case(const TaintedText& text, std::string_view name, const Arguments& args, Budget& budget) {
  const Bound bound(args, name, {});
  const Case how = name == "upper"        ? Case::kUpper
                   : name == "lower"      ? Case::kLower
                   : name == "capitalize" ? Case::kCapitalize
                                          : Case::kTitle;
  return make_text(budget, map_case(text, how, budget));
}

Value replace(const TaintedText& text, std::string_view name, const Arguments& args, Budget& budget) {
  const Bound bound(args, name, {"old", "new", "count"});
  return make_text(budget, replace_text(text, bound.need_text(0).bytes(), bound.need_text(1),
                                        bound.int_or(2, -1), budget));
}

Value find(const TaintedText& text, std::string_view name, const Arguments& args, Budget& budget) {
  const Bound bound(args, name, {"sub"});
  budget.read(text.size());
  const std::size_t at = find_text(text.bytes(), bound.need_text(0).bytes(), 0);
  if (at == std::string::npos && name == "index") bound.fail("the substring is not found");
  if (at == std::string::npos) return Value(std::int64_t{-1});
  return Value(count_characters(std::string_view(text.bytes()).substr(0, at)), text.any_plain());
}

Value count(const TaintedText& text, std::string_view name, const Arguments& args, Budget& budget) {
  const Bound bound(args, name, {"sub"});
  const std::string& needle = bound.need_text(0).bytes();
  if (needle.empty()) bound.fail("the substring is empty");
  budget.read(text.size());
  std::int64_t n = 0;
  for (std::size_t at = 0; (at = find_text(text.bytes(), needle, at)) != std::string::npos;
       at += needle.size())
    n++;
  return Value(n);
}

Value join(const TaintedText& text, std::string_view name, const Arguments& args, Budget& budget) {
  const Bound bound(args, name, {"iterable"});
  TaintedText out;
  const auto items = iterate(bound.need(0), budget);
  for (std::size_t i = 0; i < items->items.size(); i++) {
    if (i > 0) {
      budget.allocate(text.cost());
      out.append(text);
    }
    if (items->items[i].as_text() == nullptr)
      bound.fail(fmt::format("item {} is {}", i, items->items[i].type_name()));
    print_value(items->items[i], out, budget);
  }
  return Value::text(std::move(out));
}

Value remove_border(const TaintedText& text, std::string_view name, const Arguments& args, Budget& budget) {
  const Bound bound(args, name, {"prefix"});
  const std::string& border = bound.need_text(0).bytes();
  const bool prefix = name == "removeprefix";
  const bool has = prefix ? text.bytes().starts_with(border) : text.bytes().ends_with(border);
  if (!has) return make_text(budget, text);
  return make_text(
      budget, prefix ? text.slice(border.size(), text.size()) : text.slice(0, text.size() - border.size()));
}

// isdigit, isalpha, isspace of ASCII; isspace of all white space.
Value is_kind(const TaintedText& text, std::string_view name, const Arguments& args, Budget& budget) {
  const Bound bound(args, name, {});
  budget.read(text.size());
  const auto holds = [&](char c) {
    const bool digit = c >= '0' && c <= '9';
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (static_cast<unsigned char>(c) >= 0x80) bound.fail("characters beyond ASCII are not supported");
    return name == "isdigit"   ? digit
           : name == "isalpha" ? letter
           : name == "isalnum" ? digit || letter
                               : false;
  };
  if (name == "isspace") {
    const Span rest = strip_span(text.bytes(), nullptr, true, false);
    return Value(!text.empty() && rest.begin == rest.end);
  }
  return Value(!text.empty() && std::all_of(text.bytes().begin(), text.bytes().end(), holds));
}

struct TextMethod {
  std::string_view name;
  Value (*call)(const TaintedText&, std::string_view, const Arguments&, Budget&);
};
constexpr TextMethod kTextMethods[] = {
    {"strip", strip},
    {"lstrip", strip},
    {"rstrip", strip},
    {"split", split},
    {"rsplit", split},
    {"splitlines", split_lines},
    {"startswith", borders},
    {"endswith", borders},
    {"upper", change_case},
    {"lower", change_case},
    {"title", change_case},
    {"capitalize", change_case},
    {"replace", replace},
    {"find", find},
    {"index", find},
    {"count", count},
    {"join", join},
    {"removeprefix", remove_border},
    {"removesuffix", remove_border},
    {"isdigit", is_kind},
    {"isalpha", is_kind},
    {"isalnum", is_kind},
    {"isspace", is_kind},
};

const TextMethod* find_text_method(std::string_view name) {
  const auto it = std::find_if(std::begin(kTextMethods), std::end(kTextMethods),
                               [&](const TextMethod& m) { return m.name == name; });
  return it == std::end(kTextMethods) ? nullptr : it;
}

constexpr std::string_view kMappingMethods[] = {"items", "keys", "values", "get"};

Value mapping_method(const Value& receiver, std::string_view name, const Arguments& args, Budget& budget) {
  const Mapping& mapping = *receiver.as_mapping();
  if (name == "get") {
    const Bound bound(args, "get", {"key", "default"});
    const Value* found = mapping.find(bound.need_text(0).bytes());
    if (found != nullptr) return *found;
    return bound.get(1) != nullptr ? *bound.get(1) : Value(None{});
  }
  const Bound bound(args, name, {});
  budget.allocate_items(mapping.entries.size() * (name == "items" ? 4 : 1));
  std::vector<Value> items;
  for (const Mapping::Entry& entry : mapping.entries) {
    if (name == "items") {
      items.push_back(Value::list({Value(entry.key), entry.value}, receiver.plain, true));
    } else {
      items.push_back(name == "keys" ? Value(entry.key) : entry.value);
    }
  }
  return Value::list(std::move(items), receiver.plain);
}

}  // namespace

bool has_method(const Value& receiver, std::string_view name) {
  if (receiver.as_text() != nullptr) return find_text_method(name) != nullptr;
  return receiver.as_mapping() != nullptr &&
         std::find(std::begin(kMappingMethods), std::end(kMappingMethods), name) != std::end(kMappingMethods);
}

Value call_method(const Value& receiver, std::string_view name, const CallArguments& arguments,
                  Budget& budget) {
  budget.step();
  if (const TaintedText* text = receiver.as_text())
    return find_text_method(name)->call(*text, name, arguments, budget);
  if (receiver.as_mapping() != nullptr) return mapping_method(receiver, name, arguments, budget);
  const LoopState& loop = **receiver.as<Value::LoopRef>();
  if (name != "cycle")
    template_error(fmt::format("loop.{} is not supported", name), StatusCode::kUnsupported);
  if (arguments.positional.empty()) template_error("loop.cycle without values");
  return arguments.positional[loop.at % arguments.positional.size()];
}

}  // namespace windrow::text
