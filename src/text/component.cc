// Strict reading of tokenizer.json's typed objects.
#include "text/component.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace windrow::text {

Component::Component(const Json& value, std::string file, Status& error, std::string path)
    : JsonReader(value, std::move(file), error, path),
      json_(&value),
      path_(std::move(path)),
      status_(&error) {}

std::string Component::type(bool optional_type) {
  return optional_type ? string_or("type", "") : require_string("type");
}

void Component::allow(std::initializer_list<std::string_view> keys) {
  if (!json_->is_object()) return;
  for (const auto& [key, value] : json_->items()) {
    if (key == "type" || std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    fail_here(fmt::format("has a field {} that is not supported", quote(key)));
    return;
  }
}

void Component::refuse_type(const std::string& type) {
  fail_here(fmt::format("has type {}, which is not supported", quote(type)));
}

void Component::fail_here(const std::string& what, StatusCode code) {
  if (!status_->ok()) return;
  *status_ = Status(code, fmt::format("{}: {} {}", name(), path_.empty() ? "the file" : quote(path_), what));
}

void Component::each(const char* key, const std::function<void(Component&)>& f) {
  if (!ok()) return;
  const Json* list = find(key);
  if (list == nullptr) return fail(key, "is missing");
  if (!list->is_array()) return fail(key, fmt::format("is {}, expected an array", describe(*list)));
  for (std::size_t i = 0; i < list->size() && ok(); i++) {
    Component item((*list)[i], name(), *status_,
                   fmt::format("{}{}{}[{}]", path_, path_.empty() ? "" : ".", key, i));
    if (ok()) f(item);
  }
}

char32_t Component::require_char(const char* key) {
  const std::string text = require_string(key);
  if (!ok()) return U' ';
  std::size_t at = 0;
  const char32_t c = text.empty() ? U' ' : next_utf8(text, at);
  if (text.empty() || at != text.size()) fail(key, fmt::format("is {}, expected one character", quote(text)));
  return c;
}

}  // namespace windrow::text
