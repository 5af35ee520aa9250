// JSON in and out, and Python's texts of numbers and strings.
#include "text/template_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/utf8.h"

namespace windrow::text {
namespace {

// nlohmann's events build values; of theirs no tree is made.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string name, Budget& budget) : name_(std::move(name)), budget_(budget) {}

  Value take() { return std::move(root_); }
  bool null() override { return add(Value(None{}, true)); }
  bool boolean(bool v) override { return add(Value(v, true)); }
  bool number_integer(number_integer_t v) override { return add(Value(std::int64_t{v}, true)); }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > INT64_MAX) fail(fmt::format("{} is beyond 64 bits", v));
    return add(Value(static_cast<std::int64_t>(v), true));
  }
  bool number_float(number_float_t v, const string_t& text) override {
    if (!std::isfinite(v)) fail(fmt::format("{} is not finite", quote(text)));
    return add(Value(v, true));
  }
  bool string(string_t& v) override { return add(make_text(budget_, TaintedText(std::move(v), true))); }
  bool binary(binary_t&) override { fail("binary value"); }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool key(string_t& v) override {
    Open& top = stack_.back();
    if (top.mapping.find(v) != nullptr) fail(fmt::format("duplicate key {}", quote(v)));
    budget_.allocate_items(4);  // with its place in the index
    budget_.allocate(v.size());
    top.key = std::make_shared<TaintedText>(std::move(v), true);
    return true;
  }
  bool end_object() override {
    Open done = std::move(stack_.back());
    stack_.pop_back();
    return add(Value::mapping(std::move(done.mapping), true));
  }
  bool end_array() override {
    Open done = std::move(stack_.back());
    stack_.pop_back();
    return add(Value::list(std::move(done.items), true));
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    fail(fmt::format("invalid JSON at byte {}", position));
  }

 private:
  struct Open {
    bool is_mapping;
    Mapping mapping;
    std::vector<Value> items;
    TextRef key;
  };
  [[noreturn]] void fail(const std::string& what) const {
    template_error(name_ + ": " + what, StatusCode::kInvalidArgument);
  }
  bool open(bool is_mapping) {
    if (stack_.size() >= kMaxNesting) fail(fmt::format("JSON nested deeper than {}", kMaxNesting));
    stack_.push_back({is_mapping, {}, {}, {}});
    return true;
  }
  bool add(Value value) {
    budget_.allocate_items(1);
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (stack_.back().is_mapping) {
      stack_.back().mapping.set(std::move(stack_.back().key), std::move(value));
    } else {
      stack_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::string name_;
  Budget& budget_;
  Value root_;
  std::vector<Open> stack_;
};

class Writer {
 public:
  Writer(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {
    item_ = style.item_separator.value_or(style.indent ? "," : ", ");
    key_ = style.key_separator.value_or(": ");
  }

  void write(const Value& value) {
    budget_.step();
    const std::size_t before = out_.cost();
    if (value.is_none()) {
      out_.append("null", value.plain);
    } else if (const bool* b = value.as<bool>()) {
      out_.append(*b ? "true" : "false", value.plain);
    } else if (const auto* i = value.as<std::int64_t>()) {
      out_.append(fmt::format("{}", *i), value.plain);
    } else if (const auto* d = value.as<double>()) {
      out_.append(float_text(*d), value.plain);
    } else if (const TaintedText* text = value.as_text()) {
      string(*text);
    } else if (const List* list = value.as_list()) {
      array(*list, value.plain);
    } else if (const Mapping* mapping = value.as_mapping()) {
      object(*mapping, value.plain);
    } else {
      template_error(fmt::format("tojson of {}", value.type_name()));
    }
    if (value.as_list() == nullptr && value.as_mapping() == nullptr) budget_.allocate(out_.cost() - before);
  }

  TaintedText take() { return std::move(out_); }

 private:
  void newline(bool plain) {
    if (!style_.indent) return;
    const auto width = static_cast<std::size_t>(std::max<std::int64_t>(*style_.indent, 0)) * depth_;
    budget_.allocate(width + 1);
    out_.append("\n", plain);
    out_.append(std::string(width, ' '), plain);
  }

  void array(const List& list, bool plain) {
    out_.append("[", plain);
    depth_++;
    for (std::size_t i = 0; i < list.items.size(); i++) {
      if (i > 0) separator(item_, plain);
      newline(plain);
      write(list.items[i]);
    }
    depth_--;
    if (!list.items.empty()) newline(plain);
    out_.append("]", plain);
  }

  void object(const Mapping& mapping, bool plain) {
    std::vector<const Mapping::Entry*> entries;
    for (const Mapping::Entry& entry : mapping.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::sort(entries.begin(), entries.end(), [](const Mapping::Entry* a, const Mapping::Entry* b) {
        return a->key->bytes() < b->key->bytes();
      });
    }
    out_.append("{", plain);
    depth_++;
    for (std::size_t i = 0; i < entries.size(); i++) {
      if (i > 0) separator(item_, plain);
      newline(plain);
      budget_.allocate(2 * entries[i]->key->cost());
      string(*entries[i]->key);
      separator(key_, plain);
      write(entries[i]->value);
    }
    depth_--;
    if (!entries.empty()) newline(plain);
    out_.append("}", plain);
  }

  void separator(const std::string& text, bool plain) {
    budget_.allocate(text.size());
    out_.append(text, plain);
  }

  // Plain characters stay plain, whole runs at a time; the quotes and escapes go with the character.
  void string(const TaintedText& text) {
    const std::string& bytes = text.bytes();
    out_.append("\"", text.any_plain());
    std::string run;
    bool plain = false;
    for (std::size_t at = 0; at < bytes.size();) {
      if (text.plain_at(at) != plain) {
        out_.append(run, plain);
        run.clear();
        plain = !plain;
      }
      const std::size_t begin = at;
      const char32_t c = next_utf8(bytes, at);
      constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
      const std::size_t special = c < 0x80 ? kFrom.find(static_cast<char>(c)) : kFrom.npos;
      if (special != kFrom.npos) {
        run += '\\';
        run += kTo[special];
      } else if (c < 0x20 || (style_.ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
        run += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
      } else if (style_.ascii && c >= 0x10000) {
        const auto pair = static_cast<std::uint32_t>(c) - 0x10000;
        run += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (pair >> 10), 0xDC00 + (pair & 0x3FF));
      } else {
        run.append(bytes, begin, at - begin);
      }
    }
    out_.append(run, plain);
    out_.append("\"", text.any_plain());
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string item_, key_;
  std::size_t depth_ = 0;
  TaintedText out_;
};

}  // namespace

Value value_of_json(std::string_view json, const std::string& name, Budget& budget) {
  budget.allocate(json.size());
  if (json.find('\0') != json.npos)  // nlohmann takes one for the end
    template_error(name + ": invalid JSON: a NUL byte", StatusCode::kInvalidArgument);
  Builder builder(name, budget);
  if (!Json::sax_parse(json.begin(), json.end(), &builder))
    template_error(name + ": invalid JSON", StatusCode::kInvalidArgument);
  return builder.take();
}

TaintedText json_of_value(const Value& value, const JsonStyle& style, Budget& budget) {
  Writer writer(style, budget);
  writer.write(value);
  return writer.take();
}

void append_repr(const TaintedText& text, TaintedText& out) {
  const std::string& bytes = text.bytes();
  const bool any = text.any_plain();
  const bool doubled = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos;
  const char sign = doubled ? '"' : '\'';
  out.append({&sign, 1}, any);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    const char32_t c = next_utf8(bytes, at);
    std::string shown = bytes.substr(begin, at - begin);
    if (c == static_cast<char32_t>(sign) || c == '\\') {
      shown = fmt::format("\\{}", shown);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      shown = c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c < 0x20 || (c >= 0x7F && c <= 0xA0)) {
      shown = fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c));
    }
    out.append(shown, text.plain_at(begin));
  }
  out.append({&sign, 1}, any);
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".ein") == std::string::npos) text += ".0";
  return text;
}

}  // namespace windrow::text
