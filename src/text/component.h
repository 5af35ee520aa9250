// One object of tokenizer.json that names its kind in "type", read strictly: a field that we don't
// know is refused, because ignoring it would change ids without a word.
//
// Thread safety: belongs to one thread.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/json.h"

namespace windrow::text {

class Component : public JsonReader {
 public:
  // `value`, `error` as in JsonReader. `path` is the key inside the file, e.g. "normalizer".
  Component(const Json& value, std::string file, Status& error, std::string path);

  // "type"; empty (and an error recorded, unless `optional_type`) where it is missing.
  std::string type(bool optional_type = false);
  const std::string& path() const noexcept { return path_; }
  const Json& json() const noexcept { return *json_; }
  Status& error() noexcept { return *status_; }

  // Refuses fields other than "type" and these.
  void allow(std::initializer_list<std::string_view> keys);
  // Refuses this component for its type.
  void refuse_type(const std::string& type);
  // Records `FILE: "PATH" WHAT`.
  void fail_here(const std::string& what, StatusCode code = StatusCode::kUnsupported);
  // Calls f for each object of the array at `key`, which must be there.
  void each(const char* key, const std::function<void(Component&)>& f);
  // A string of one character.
  char32_t require_char(const char* key);

 private:
  const Json* json_;
  std::string path_;
  Status* status_;
};

}  // namespace windrow::text
