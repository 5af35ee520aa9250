// The choice of codecs for a model's layers, and its file.
#include "windrow/kv_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "base/json.h"
#include "io/file.h"
#include "windrow/model.h"

namespace windrow {
namespace {

constexpr int kVersion = 1;
// A layer in a list takes some bytes: this is room for a million layers.
constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;

// Why a layer's codecs can't be chosen; empty: they can.
std::string unchosen(int layer, std::span<const LayerShape> layers) {
  if (layer < 0 || static_cast<std::size_t>(layer) >= layers.size()) {
    return layers.empty() ? fmt::format("layer {}: the model has none", layer)
                          : fmt::format("layer {}: the model has 0 to {}", layer, layers.size() - 1);
  }
  const LayerShape& l = layers[static_cast<std::size_t>(layer)];
  if (l.recurrent) return fmt::format("layer {} is recurrent, it stores no keys and values", layer);
  if (l.donor >= 0) return fmt::format("layer {} attends over the state of layer {}", layer, l.donor);
  return "";
}

bool chosen(const LayerShape& l) { return !l.recurrent && l.donor < 0; }

// One object's "keys" and "values".
KvCodecs read_codecs(JsonReader& object, std::span<const LayerShape> layers) {
  KvCodecs codecs;
  for (const auto& [key, to] : {std::pair{"keys", &codecs.keys}, {"values", &codecs.values}}) {
    const std::string text = object.require_string(key);
    if (!object.ok()) break;
    const Result<Codec> codec = parse_kv_codec(text, layers);
    if (codec.ok()) {
      *to = *codec;
    } else {
      object.fail(key, "is " + codec.status().message());
    }
  }
  return codecs;
}

// The first member of an object that no one asks for is an error.
void refuse_others(JsonReader& reader, const Json& object, std::initializer_list<std::string_view> known) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    reader.fail(key.c_str(), "is not a key of this format");
  }
}

// Reads the file's parts; the first error is kept.
class FileReader {
 public:
  FileReader(const Json& json, const std::string& name, const ModelInfo& info)
      : json_(json), name_(name), info_(info), root_(json, name, error_) {}

  Result<KvChoice> read() {
    refuse_others(root_, json_, {"windrow_kv", "model_type", "num_layers", "default", "layers"});
    const int version = root_.require_int("windrow_kv", 1, 1 << 30);
    if (root_.ok() && version != kVersion) {
      root_.fail("windrow_kv", fmt::format("is {}, this program reads version {}", version, kVersion),
                 StatusCode::kUnsupported);
    }
    read_model();
    const bool has_default = root_.has("default");
    if (has_default) {
      JsonReader object = root_.object("default");
      refuse_others(object, *root_.find("default"), {"keys", "values"});
      kv_.sliding = kv_.full = read_codecs(object, info_.layers);
    }
    read_layers(has_default);
    if (!error_.ok()) return error_;
    if (Status s = check_kv_choice(kv_, info_.layers); !s.ok()) return s.with_context(name_);
    return std::move(kv_);
  }

 private:
  void read_model() {
    const std::string type = root_.string_or("model_type", info_.model_type);
    if (root_.ok() && type != info_.model_type) {
      root_.fail("model_type", fmt::format("is {}, the model is {}", quote(type), quote(info_.model_type)),
                 StatusCode::kInvalidArgument);
    }
    const int layers = static_cast<int>(info_.layers.size());
    const int stated = root_.int_or("num_layers", layers, 1, 1 << 30);
    if (root_.ok() && stated != layers) {
      root_.fail("num_layers", fmt::format("is {}, the model has {}", stated, layers),
                 StatusCode::kInvalidArgument);
    }
  }

  void read_layers(bool has_default) {
    const Json* list = root_.find("layers");
    if (list != nullptr && !list->is_array()) {
      return root_.fail("layers", fmt::format("is {}, expected an array", describe(*list)));
    }
    for (std::size_t i = 0; list != nullptr && i < list->size() && error_.ok(); i++)
      read_entry((*list)[i], i);
    for (std::size_t i = 0; i < info_.layers.size() && !has_default && error_.ok(); i++) {
      if (!chosen(info_.layers[i]) || kv_.layers.contains(static_cast<int>(i))) continue;
      error_ = Status(StatusCode::kInvalidArgument,
                      fmt::format("{}: layer {} is not named, and there is no \"default\"", name_, i));
    }
  }

  void read_entry(const Json& entry, std::size_t index) {
    JsonReader object(entry, name_, error_, fmt::format("layers[{}]", index));
    refuse_others(object, entry, {"layers", "keys", "values"});
    const KvCodecs codecs = read_codecs(object, info_.layers);
    if (object.ok() && !object.has("layers")) object.fail("layers", "is missing");
    for (const int layer : object.int_list("layers", 0, 1 << 30)) {
      if (!object.ok()) return;
      if (const std::string why = unchosen(layer, info_.layers); !why.empty()) {
        return object.fail("layers", "names " + why, StatusCode::kInvalidArgument);
      }
      if (!kv_.layers.emplace(layer, codecs).second) {
        return object.fail("layers", fmt::format("names layer {}, which has its codecs already", layer));
      }
    }
  }

  const Json& json_;
  const std::string& name_;
  const ModelInfo& info_;
  Status error_;
  JsonReader root_;
  KvChoice kv_;
};

}  // namespace

std::string to_string(const KvCodecs& codecs) {
  return codecs.keys == codecs.values ? codecs.keys.to_string()
                                      : codecs.keys.to_string() + "/" + codecs.values.to_string();
}

const KvCodecs& KvChoice::of(int layer, const LayerShape& shape) const {
  const auto own = layers.find(layer);
  if (own != layers.end()) return own->second;
  return shape.window == kFullWindow ? full : sliding;
}

Status check_kv_choice(const KvChoice& kv, std::span<const LayerShape> layers) {
  for (const auto& [layer, codecs] : kv.layers) {
    if (const std::string why = unchosen(layer, layers); !why.empty()) {
      return {StatusCode::kInvalidArgument, "kv choice: " + why};
    }
  }
  for (std::size_t i = 0; i < layers.size(); i++) {
    if (!chosen(layers[i])) continue;
    const KvCodecs& codecs = kv.of(static_cast<int>(i), layers[i]);
    for (const Codec* codec : {&codecs.keys, &codecs.values}) {
      if (Status s = codec->check(layers[i].head_dim); !s.ok()) {
        return s.with_context(fmt::format("kv choice: layer {}", i));
      }
    }
  }
  return {};
}

Result<Codec> parse_kv_codec(std::string_view text, std::span<const LayerShape> layers) {
  Result<Codec> codec = Codec::parse(text);
  if (!codec.ok() || !codec->is_affine() || text.find(':') != std::string_view::npos) return codec;
  for (const LayerShape& l : layers) {
    if (!l.recurrent && l.head_dim % codec->group() != 0)
      return Codec::affine(codec->bits(), 32, codec->input());
  }
  return codec;
}

Result<KvChoice> parse_kv_choice(std::string_view json, const std::string& name, const ModelInfo& info) try {
  const Result<Json> parsed = parse_json(json, name, {.max_bytes = kMaxFileBytes, .max_depth = 8});
  if (!parsed.ok()) return parsed.status();
  return FileReader(*parsed, name, info).read();
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("{}: {}", name, e.what()));
}

Result<KvChoice> read_kv_choice(const std::string& path, const ModelInfo& info) try {
  const Result<std::string> text = read_file(path, kMaxFileBytes);
  if (!text.ok()) return text.status();
  return parse_kv_choice(*text, path, info);
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("{}: {}", path, e.what()));
}

std::string kv_choice_json(const KvChoice& kv, const ModelInfo& info) {
  struct Entry {
    KvCodecs codecs;
    std::vector<int> layers;
  };
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < info.layers.size(); i++) {
    if (!chosen(info.layers[i])) continue;
    const KvCodecs& codecs = kv.of(static_cast<int>(i), info.layers[i]);
    auto entry =
        std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.codecs == codecs; });
    if (entry == entries.end()) entry = entries.insert(entries.end(), {codecs, {}});
    entry->layers.push_back(static_cast<int>(i));
  }
  using Ordered = nlohmann::ordered_json;
  std::string text =
      fmt::format("{{\"windrow_kv\": {},\n \"model_type\": {},\n \"num_layers\": {},\n \"layers\": [",
                  kVersion, Ordered(info.model_type).dump(), info.layers.size());
  const char* separator = "\n  ";
  for (const Entry& e : entries) {
    text += fmt::format("{}{{\"layers\": {}, \"keys\": \"{}\", \"values\": \"{}\"}}", separator,
                        Ordered(e.layers).dump(), e.codecs.keys.to_string(), e.codecs.values.to_string());
    separator = ",\n  ";
  }
  return text + "]}\n";
}

}  // namespace windrow
