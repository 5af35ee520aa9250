// Reading tokenizer_config.json.
#include "text/tokenizer_config.h"

#include <fmt/format.h>

#include <charconv>

#include "io/file.h"
#include "text/template.h"
#include "text/vocabulary.h"

namespace windrow::text {
namespace {

// Files with an added_tokens_decoder of 6,000 entries have 1.2 MB.
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

// A token as a string, or as an object (AddedToken) with "content".
std::string token_text(JsonReader& reader, const char* key) {
  const Json* value = reader.find(key);
  if (value == nullptr || !value->is_object()) return reader.string_or(key, "");
  return reader.object(key).require_string("content");
}

void read_special_tokens(JsonReader& root, TokenizerConfig& config) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token",
                          "mask_token", "eot_token", "eom_token", "boi_token", "eoi_token", "image_token"}) {
    if (!root.has(key)) continue;
    if (std::string text = token_text(root, key); root.ok())
      config.special_tokens.emplace_back(key, std::move(text));
  }
}

void read_added_tokens(JsonReader& root, Status& error, TokenizerConfig& config) {
  const Json* added = root.find("added_tokens_decoder");
  if (added == nullptr) return;
  if (!added->is_object())
    return root.fail("added_tokens_decoder", fmt::format("is {}, expected an object", describe(*added)));
  for (const auto& [key, value] : added->items()) {
    std::int32_t id = -1;
    const auto [stop, wrong] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (wrong != std::errc() || stop != key.data() + key.size() || id < 0 || id >= kMaxIds) {
      return root.fail("added_tokens_decoder",
                       fmt::format("has the key {}, expected an id from 0 to {}", quote(key), kMaxIds - 1));
    }
    JsonReader token(value, root.name(), error, "added_tokens_decoder." + key);
    TokenizerConfig::Added entry{id, token.require_string("content"), token.bool_or("special", false)};
    if (!root.ok()) return;
    config.added.push_back(std::move(entry));
  }
}

void add_template(JsonReader& reader, const char* key, std::string name, std::string source,
                  TokenizerConfig& config) {
  if (!config.templates.emplace(std::move(name), std::move(source)).second)
    reader.fail("chat_template", fmt::format("has two templates named {}", quote(reader.string_or(key, ""))));
}

// "chat_template": a string, a list of {"name", "template"}, or an object of name to template.
void read_templates(JsonReader& root, Status& error, const std::string& file, TokenizerConfig& config) {
  const Json* value = root.find("chat_template");
  if (value == nullptr) return;
  config.templates.clear();
  config.templates_from = file;
  if (value->is_string()) {
    config.templates["default"] = value->get<std::string>();
  } else if (value->is_array()) {
    for (std::size_t i = 0; i < value->size() && root.ok(); i++) {
      JsonReader entry((*value)[i], file, error, fmt::format("chat_template[{}]", i));
      std::string name = entry.require_string("name"), source = entry.require_string("template");
      if (root.ok()) add_template(entry, "name", std::move(name), std::move(source), config);
    }
  } else if (value->is_object()) {
    JsonReader entries = root.object("chat_template");
    for (const auto& [name, unused] : value->items()) {
      std::string source = entries.require_string(name.c_str());
      if (root.ok()) config.templates[name] = std::move(source);
    }
  } else {
    root.fail("chat_template",
              fmt::format("is {}, expected a template, or several by name", describe(*value)));
  }
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(std::string_view json, const std::string& file) {
  const Result<Json> parsed = parse_json(json, file, {.max_bytes = kMaxConfigBytes});
  if (!parsed.ok()) return parsed.status();
  Status error;
  TokenizerConfig config;
  JsonReader root(*parsed, file, error);
  read_special_tokens(root, config);
  read_added_tokens(root, error, config);
  // Of what encodes only tokenizer.json is followed; these are looked at for their types.
  root.bool_or("add_bos_token", false);
  root.bool_or("add_eos_token", false);
  read_templates(root, error, file, config);
  if (!error.ok()) return error;
  return config;
}

Result<TokenizerConfig> load_tokenizer_config(const std::string& folder) {
  TokenizerConfig config;
  const std::string main = folder + "/tokenizer_config.json", side = folder + "/chat_template.json",
                    own = folder + "/chat_template.jinja";
  if (path_exists(main)) {
    const Result<std::string> text = read_file(main, kMaxConfigBytes);
    if (!text.ok()) return text.status();
    Result<TokenizerConfig> read = parse_tokenizer_config(*text, main);
    if (!read.ok()) return read.status();
    config = std::move(*read);
  }
  if (path_exists(side)) {
    const Result<std::string> text = read_file(side, kMaxConfigBytes);
    if (!text.ok()) return text.status();
    Result<TokenizerConfig> read = parse_tokenizer_config(*text, side);
    if (!read.ok()) return read.status();
    if (!read->templates.empty()) {
      config.templates = std::move(read->templates);
      config.templates_from = side;
    }
  }
  if (path_exists(own)) {
    const Result<std::string> text = read_file(own, Template::kMaxBytes);
    if (!text.ok()) return text.status();
    config.templates["default"] = *text;
    config.templates_from = own;
  }
  return config;
}

}  // namespace windrow::text
