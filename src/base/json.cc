// The guarded JSON parser: nlohmann's SAX events build a value while limits and keys are checked.
#include "base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <new>
#include <utility>

#include "base/utf8.h"

namespace windrow {
namespace {

// The reason inside one of nlohmann's messages, which look like
// "[json.exception.parse_error.101] parse error at line 1, column 2: REASON; last read: 'TEXT'":
// without the position (ours counts bytes) and without the text, which may be long and of several lines.
std::string reason_of(const std::string& what) {
  std::string_view text = what;
  if (const auto column = text.find(", column "); column != text.npos) {
    if (const auto colon = text.find(": ", column); colon != text.npos) text.remove_prefix(colon + 2);
  } else if (const auto bracket = text.find("] "); bracket != text.npos) {
    text.remove_prefix(bracket + 2);
  }
  text = text.substr(0, text.find("; last read"));
  text = text.substr(0, text.find("; expected "));
  text = text.substr(0, text.find(" parsing '"));  // "number overflow parsing '1e999'"
  return std::string(text);
}

class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& name, const JsonLimits& limits) : name_(name), limits_(limits) {}

  Json& root() { return root_; }
  Status& error() { return error_; }

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool v) override { return add(v) != nullptr; }
  bool number_integer(number_integer_t v) override { return add(v) != nullptr; }
  bool number_unsigned(number_unsigned_t v) override { return add(v) != nullptr; }
  bool number_float(number_float_t v, const string_t&) override {
    if (!std::isfinite(v)) return fail("a number is not finite");
    return add(v) != nullptr;
  }
  bool string(string_t& v) override { return add(std::move(v)) != nullptr; }
  bool binary(binary_t&) override { return fail("binary value"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& v) override {
    if (stack_.back()->contains(v)) return fail(fmt::format("duplicate key {}", quote(v)));
    key_ = std::move(v);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& e) override {
    return fail(fmt::format("invalid JSON at byte {}: {}", position, reason_of(e.what())));
  }

 private:
  bool fail(const std::string& what) {
    if (error_.ok()) error_ = Status(StatusCode::kCorrupt, name_ + ": " + what);
    return false;
  }

  Json* add(Json value) {
    if (++values_ > limits_.max_values) {
      fail(fmt::format("more than {} JSON values", limits_.max_values));
      return nullptr;
    }
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) return &parent.get_ref<Json::array_t&>().emplace_back(std::move(value));
    return &parent.get_ref<Json::object_t&>().emplace(std::move(key_), std::move(value)).first->second;
  }

  bool open(Json container) {
    if (stack_.size() >= static_cast<std::size_t>(limits_.max_depth)) {
      return fail(fmt::format("JSON nested deeper than {}", limits_.max_depth));
    }
    Json* added = add(std::move(container));
    if (added != nullptr) stack_.push_back(added);
    return added != nullptr;
  }

  bool close() {
    stack_.pop_back();
    return true;
  }

  const std::string& name_;
  const JsonLimits& limits_;
  Json root_;
  // The open containers. A pointer stays valid: while a container is open nothing is added to its parent.
  std::vector<Json*> stack_;
  std::string key_;
  std::size_t values_ = 0;
  Status error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& name, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Status(StatusCode::kCorrupt,
                  fmt::format("{}: {} bytes of JSON, the limit is {}", name, text.size(), limits.max_bytes));
  }
  // JSON has no place for a raw NUL, but nlohmann's lexer takes one for the end and ignores what follows.
  if (const auto nul = text.find('\0'); nul != text.npos) {
    return Status(StatusCode::kCorrupt,
                  fmt::format("{}: invalid JSON at byte {}: a NUL byte", name, nul + 1));
  }
  try {
    Builder builder(name, limits);
    const bool parsed = Json::sax_parse(text.begin(), text.end(), &builder);
    if (!builder.error().ok()) return builder.error();
    if (!parsed) return Status(StatusCode::kCorrupt, name + ": invalid JSON");
    return std::move(builder.root());
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, name + ": out of memory while parsing JSON");
  } catch (const std::exception& e) {
    return Status(StatusCode::kCorrupt, fmt::format("{}: invalid JSON: {}", name, reason_of(e.what())));
  }
}

std::string quote(std::string_view text) {
  constexpr std::size_t kMaxBytes = 80;  // keeps a message on one line of a terminal
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    if (i >= kMaxBytes) {
      out += "...";
      break;
    }
    const std::size_t n = utf8_length(text, i);
    const auto byte = static_cast<unsigned char>(text[i]);
    // C1 controls (U+0080..U+009F) can drive a terminal as C0 ones do.
    const bool c1 = n == 2 && byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (n == 0 || byte < 0x20 || byte == 0x7F || c1) {
      out += fmt::format("\\x{:02x}", byte);
      if (c1) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i + 1]));
    } else {
      if (byte == '"' || byte == '\\') out += '\\';
      out.append(text, i, n);
    }
    i += n == 0 ? 1 : n;
  }
  return out + '"';
}

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::boolean: return value.get<bool>() ? "true" : "false";
    case Json::value_t::string: return quote(value.get_ref<const std::string&>());
    case Json::value_t::array: return fmt::format("an array of {}", value.size());
    case Json::value_t::object: return "an object";
    case Json::value_t::number_integer: return fmt::format("{}", value.get<std::int64_t>());
    case Json::value_t::number_unsigned: return fmt::format("{}", value.get<std::uint64_t>());
    case Json::value_t::number_float: {
      // A float of integral value keeps its point, else "3" where an integer is expected would puzzle.
      const double v = value.get<double>();
      return v == std::floor(v) && std::abs(v) < 1e15 ? fmt::format("{:.1f}", v) : fmt::format("{}", v);
    }
    default: return "a binary value";
  }
}

std::optional<std::uint64_t> json_uint(const Json& value) noexcept {
  if (const auto* v = value.get_ptr<const Json::number_unsigned_t*>()) return *v;
  if (const auto* v = value.get_ptr<const Json::number_integer_t*>(); v != nullptr && *v >= 0) {
    return static_cast<std::uint64_t>(*v);
  }
  return std::nullopt;
}

JsonReader::JsonReader(const Json& value, std::string name, Status& error, std::string path)
    : value_(&value), name_(std::move(name)), path_(std::move(path)), error_(&error) {
  if (value.is_object() || !error.ok()) return;
  const std::string what = fmt::format("is {}, expected an object", describe(value));
  *error_ = Status(StatusCode::kCorrupt, path_.empty() ? fmt::format("{}: the file {}", name_, what)
                                                       : fmt::format("{}: {} {}", name_, quote(path_), what));
}

const Json* JsonReader::find(const char* key) const {
  if (!value_->is_object()) return nullptr;
  const auto it = value_->find(key);
  return it == value_->end() || it->is_null() ? nullptr : &*it;
}

bool JsonReader::is_null(const char* key) const {
  if (!value_->is_object()) return false;
  const auto it = value_->find(key);
  return it != value_->end() && it->is_null();
}

const Json* JsonReader::require(const char* key) {
  const Json* value = find(key);
  if (value == nullptr) fail(key, "is missing");
  return value;
}

void JsonReader::fail(const char* key, const std::string& what, StatusCode code) {
  if (!error_->ok()) return;
  const std::string full = path_.empty() ? key : path_ + "." + key;
  *error_ = Status(code, fmt::format("{}: {} {}", name_, quote(full), what));
}

int JsonReader::to_int(const char* key, const Json& value, int low, int high) {
  const bool fits =
      value.is_number_unsigned() ? value.get<std::uint64_t>() <= INT32_MAX : value.is_number_integer();
  const std::int64_t v = fits ? value.get<std::int64_t>() : 0;
  if (fits && v >= low && v <= high) return static_cast<int>(v);
  const char* article = value.is_number_integer() ? "" : "an integer from ";
  fail(key, fmt::format("is {}, expected {}{} to {}", describe(value), article, low, high));
  return low;
}

double JsonReader::to_double(const char* key, const Json& value, double low, double high) {
  const double v = value.is_number() ? value.get<double>() : 0;
  if (value.is_number() && v >= low && v <= high) return v;
  const char* article = value.is_number() ? "" : "a number from ";
  fail(key, fmt::format("is {}, expected {}{:g} to {:g}", describe(value), article, low, high));
  return low;
}

int JsonReader::require_int(const char* key, int low, int high) {
  const Json* value = require(key);
  return value == nullptr ? low : to_int(key, *value, low, high);
}

int JsonReader::int_or(const char* key, int fallback, int low, int high) {
  const Json* value = find(key);
  return value == nullptr ? fallback : to_int(key, *value, low, high);
}

double JsonReader::require_double(const char* key, double low, double high) {
  const Json* value = require(key);
  return value == nullptr ? low : to_double(key, *value, low, high);
}

double JsonReader::double_or(const char* key, double fallback, double low, double high) {
  const Json* value = find(key);
  return value == nullptr ? fallback : to_double(key, *value, low, high);
}

bool JsonReader::bool_or(const char* key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail(key, fmt::format("is {}, expected true or false", describe(*value)));
  return fallback;
}

std::string JsonReader::require_string(const char* key) {
  return require(key) == nullptr ? std::string() : string_or(key, "");
}

std::string JsonReader::string_or(const char* key, std::string fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  fail(key, fmt::format("is {}, expected a string", describe(*value)));
  return fallback;
}

std::vector<std::int32_t> JsonReader::int_list(const char* key, int low, int high) {
  const Json* value = find(key);
  std::vector<std::int32_t> list;
  if (value == nullptr) return list;
  if (!value->is_array()) return {to_int(key, *value, low, high)};
  for (const Json& item : *value) list.push_back(to_int(key, item, low, high));
  return list;
}

std::vector<double> JsonReader::double_list(const char* key, double low, double high) {
  const Json* value = find(key);
  std::vector<double> list;
  if (value == nullptr) return list;
  if (!value->is_array()) {
    fail(key, fmt::format("is {}, expected an array of numbers", describe(*value)));
    return list;
  }
  for (const Json& item : *value) list.push_back(to_double(key, item, low, high));
  return list;
}

std::vector<std::string> JsonReader::string_list(const char* key) {
  const Json* value = find(key);
  std::vector<std::string> list;
  if (value == nullptr) return list;
  if (!value->is_array()) {
    fail(key, fmt::format("is {}, expected an array of strings", describe(*value)));
    return list;
  }
  for (const Json& item : *value) {
    if (!item.is_string()) {
      fail(key, fmt::format("holds {}, expected strings", describe(item)));
      return {};
    }
    list.push_back(item.get<std::string>());
  }
  return list;
}

JsonReader JsonReader::object(const char* key) const {
  static const Json kEmpty = Json::object();
  const Json* value = find(key);
  return JsonReader(value == nullptr ? kEmpty : *value, name_, *error_,
                    path_.empty() ? key : path_ + "." + key);
}

}  // namespace windrow
