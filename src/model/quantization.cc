#include "model/quantization.h"

#include <fmt/format.h>

namespace windrow {
namespace {

constexpr const char* kBits = "supported are 2, 3, 4, 5, 6 and 8";
constexpr const char* kGroups = "supported are 32, 64 and 128";
// What MLX takes for a key that the object of a module leaves out.
constexpr AffineFormat kModuleDefault{4, 64};

class Reader {
 public:
  Reader(JsonReader& reader, const char* key) : reader_(reader), key_(key) {}

  Quantization read() {
    Quantization q;
    const Json* json = reader_.find(key_);
    if (json == nullptr) return q;
    if (!json->is_object()) {
      reader_.fail(key_, fmt::format("is {}, expected an object", describe(*json)));
      return q;
    }
    // Another's: everything else in it has a meaning of its own.
    if (const auto method = json->find("quant_method"); method != json->end() && !method->is_null()) {
      fail("", "quant_method",
           fmt::format("is {}, only MLX's affine quantization is supported", describe(*method)),
           StatusCode::kUnsupported);
      return q;
    }
    q.format = read_format(*json, "", {});
    for (const auto& [name, value] : json->items()) {
      if (value.is_object()) {
        q.modules.emplace(name, read_format(value, name, kModuleDefault));
      } else if (value.is_boolean()) {
        q.modules.emplace(name, value.get<bool>() ? std::optional(q.format) : std::nullopt);
      } else if (name != "group_size" && name != "bits" && name != "mode" && !value.is_null()) {
        fail("", name, fmt::format("is {}, expected an object or a boolean for a module", describe(value)),
             StatusCode::kUnsupported);
      }
    }
    return q;
  }

 private:
  // `fallback` of a key that is absent; 0: the key is required.
  AffineFormat read_format(const Json& json, const std::string& module, const AffineFormat& fallback) {
    if (const auto mode = json.find("mode"); mode != json.end() && *mode != "affine") {
      fail(module, "mode", fmt::format("is {}, supported is \"affine\"", describe(*mode)),
           StatusCode::kUnsupported);
      return {};
    }
    AffineFormat format;
    format.group = read_number(json, module, "group_size", fallback.group);
    format.bits = read_number(json, module, "bits", fallback.bits);
    if (!reader_.ok()) return format;
    if (!Codec::affine(4, format.group).valid()) {
      fail(module, "group_size", fmt::format("is {}, {}", format.group, kGroups), StatusCode::kUnsupported);
    } else if (!Codec::affine(format.bits, format.group).valid()) {
      fail(module, "bits", fmt::format("is {}, {}", format.bits, kBits), StatusCode::kUnsupported);
    }
    return format;
  }

  int read_number(const Json& json, const std::string& module, const char* name, int fallback) {
    const auto it = json.find(name);
    if (it == json.end() || it->is_null()) {
      if (fallback == 0) fail(module, name, "is missing", StatusCode::kCorrupt);
      return fallback;
    }
    const std::optional<std::uint64_t> value = json_uint(*it);
    if (value && *value >= 1 && *value <= 1024) return static_cast<int>(*value);
    fail(module, name, fmt::format("is {}, expected an integer from 1 to 1024", describe(*it)),
         StatusCode::kCorrupt);
    return 0;
  }

  void fail(const std::string& module, const std::string& name, const std::string& what, StatusCode code) {
    const std::string path =
        module.empty() ? fmt::format("{}.{}", key_, name) : fmt::format("{}.{}.{}", key_, module, name);
    reader_.fail(path.c_str(), what, code);
  }

  JsonReader& reader_;
  const char* key_;
};

}  // namespace

Quantization read_quantization(JsonReader& reader, const char* key) { return Reader(reader, key).read(); }

Json quantization_json(const Quantization& quantization) {
  const auto object = [](const AffineFormat& f) { return Json{{"group_size", f.group}, {"bits", f.bits}}; };
  Json json = object(quantization.format);
  for (const auto& [module, format] : quantization.modules)
    json[module] = format ? object(*format) : Json(false);
  return json;
}

}  // namespace windrow
