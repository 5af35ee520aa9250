// JSON text from outside, read under limits: never throws, never recurses without bound, and
// refuses what other readers disagree about (duplicate keys, invalid UTF-8, NaN, trailing text).
//
//   Result<Json> json = parse_json(text, "config.json", {.max_bytes = 1 << 20});
//   Status error;
//   JsonReader root(*json, "config.json", error);
//   int hidden = root.require_int("hidden_size", 1, 1 << 20);
//   double eps = root.double_or("rms_norm_eps", 1e-6, 0, 1);
//   if (!error.ok()) return error;  // config.json: "hidden_size" is -3, expected 1 to 1048576
//
// Thread safety: free functions; a JsonReader belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/status.h"

namespace windrow {

using Json = nlohmann::json;

struct JsonLimits {
  std::size_t max_bytes = 0;  // of the text
  int max_depth = 64;         // containers inside each other; the deepest format we read needs 8
  // Values (scalars and containers). A parsed value takes about 20 times the memory of the shortest
  // text that spells it (`[],`), so this bounds the memory where max_bytes alone would allow 2 GB.
  // A tokenizer.json of 262,144 tokens has about 2 million.
  std::size_t max_values = std::size_t{1} << 24;
};

// `name` is what messages call the text: a file name. Errors: kCorrupt, with the byte and the reason;
// kResourceExhausted where memory runs out. A UTF-8 byte order mark is skipped.
Result<Json> parse_json(std::string_view text, const std::string& name, const JsonLimits& limits);

// `text` in double quotes for a one-line message: control characters, quotes and invalid UTF-8 escaped,
// cut after 80 bytes with "...".
std::string quote(std::string_view text);

// What a value is, for messages: `-3`, `"abc"`, `null`, `an array of 2`, `an object`.
std::string describe(const Json& value);

// The value as an unsigned integer; nullopt where it is anything else (also 3.0, -1, 1e3).
std::optional<std::uint64_t> json_uint(const Json& value) noexcept;

// Reads the members of one JSON object. Null counts as absent. The first thing that is wrong is
// written to `error` with the file and the full key; after that (and where the key is absent from a
// require_*) a getter returns its fallback, or the smallest legal value, so that a caller may read
// many keys and look at `error` once. Ranges are inclusive.
class JsonReader {
 public:
  // `value` and `error` must outlive the reader. `path` is the key of `value` inside the file, "" for
  // the whole file. Not an object: an error, and every member is absent.
  JsonReader(const Json& value, std::string name, Status& error, std::string path = "");

  const std::string& name() const noexcept { return name_; }
  bool ok() const noexcept { return error_->ok(); }

  // Present and not null.
  bool has(const char* key) const { return find(key) != nullptr; }
  // Present and null, where null says something else than an absent key.
  bool is_null(const char* key) const;
  // The member, or nullptr where it is absent or null.
  const Json* find(const char* key) const;

  int require_int(const char* key, int low, int high);
  int int_or(const char* key, int fallback, int low, int high);
  // Any finite number, integers included.
  double require_double(const char* key, double low, double high);
  double double_or(const char* key, double fallback, double low, double high);
  bool bool_or(const char* key, bool fallback);
  std::string require_string(const char* key);
  std::string string_or(const char* key, std::string fallback);
  // One integer or an array of integers; empty where absent.
  std::vector<std::int32_t> int_list(const char* key, int low, int high);
  // An array of numbers; empty where absent.
  std::vector<double> double_list(const char* key, double low, double high);
  // An array of strings; empty where absent.
  std::vector<std::string> string_list(const char* key);
  // The object at `key`; an absent one reads as an empty object.
  JsonReader object(const char* key) const;
  // Reads `value` as if it stood in this object's place: for defaults. It must outlive the reader.
  JsonReader with(const Json& value) const { return JsonReader(value, name_, *error_, path_); }

  // Records `NAME: "PATH.KEY" WHAT` unless there is an error already.
  void fail(const char* key, const std::string& what, StatusCode code = StatusCode::kCorrupt);

 private:
  int to_int(const char* key, const Json& value, int low, int high);
  double to_double(const char* key, const Json& value, double low, double high);
  const Json* require(const char* key);

  const Json* value_;
  std::string name_;
  std::string path_;
  Status* error_;
};

}  // namespace windrow
