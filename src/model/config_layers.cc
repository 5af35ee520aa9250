// Which layers slide, which are linear, and what differs between layers.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "model/config_parts.h"

namespace windrow {
namespace {

constexpr struct {
  const char* name;
  LayerType type;
  unsigned kind;
} kLayerTypes[] = {{"full_attention", LayerType::kFull, kFullLayers},
                   {"sliding_attention", LayerType::kSliding, kSlidingLayers},
                   {"linear_attention", LayerType::kLinear, kLinearLayers}};

// `"full_attention" and "sliding_attention"`
std::string names_of(unsigned kinds) {
  std::string names;
  for (const auto& t : kLayerTypes) {
    if ((kinds & t.kind) != 0) names += fmt::format("{}{}", names.empty() ? "" : " and ", quote(t.name));
  }
  return names;
}

void unsupported(JsonReader& text, const char* key, const std::string& what) {
  text.fail(key, what, StatusCode::kUnsupported);
}

void read_listed_types(const ConfigPart& part) {
  std::vector<LayerType>& types = part.config.layer_types;
  for (const std::string& name : part.text.string_list("layer_types")) {
    const auto* found = std::find_if(std::begin(kLayerTypes), std::end(kLayerTypes), [&](const auto& t) {
      return name == t.name && (part.family.layer_kinds & t.kind) != 0;
    });
    if (found == std::end(kLayerTypes)) {
      const std::string names = names_of(part.family.layer_kinds);
      const char* verb = names.find(" and ") == names.npos ? "is" : "are";
      return unsupported(part.text, "layer_types",
                         fmt::format("holds {}, supported {} {}", quote(name), verb, names));
    }
    types.push_back(found->type);
  }
  if (types.size() != static_cast<std::size_t>(part.config.num_layers)) {
    part.text.fail("layer_types",
                   fmt::format("has {} entries for {} layers", types.size(), part.config.num_layers));
  }
}

// Layers without a list: full where (i + 1) % pattern == 0; without a pattern a window means that every layer
// slides (Mistral, Phi-3), or those from max_window_layers on (Qwen).
void derive_types(const ConfigPart& part, int window) {
  const FamilyDefaults& family = part.family;
  const char* key = part.text.has("_sliding_window_pattern") && !part.text.has(family.pattern_key)
                        ? "_sliding_window_pattern"
                        : family.pattern_key;
  const int pattern = part.text.int_or(key, family.pattern, 1, kMaxLayers);
  int first_sliding = 0;
  if (window != 0 && (family.max_window_layers >= 0 || part.text.has("use_sliding_window"))) {
    // Beyond the last layer: none slides.
    first_sliding = family.max_window_layers >= 0
                        ? part.text.int_or("max_window_layers", family.max_window_layers, 0, kMaxPositions)
                        : part.text.require_int("max_window_layers", 0, kMaxPositions);
  }
  for (int i = 0; i < part.config.num_layers; i++) {
    const bool full = (pattern != 0 && (i + 1) % pattern == 0) || i < first_sliding ||
                      (family.between == LayerType::kSliding && window == 0);
    part.config.layer_types.push_back(full ? LayerType::kFull : family.between);
  }
}

bool has_type(const ModelConfig& config, LayerType type) {
  return std::find(config.layer_types.begin(), config.layer_types.end(), type) != config.layer_types.end();
}

// The last layers attend over the keys and values of the last layer of their type before them.
void read_shared_layers(const ConfigPart& part) {
  ModelConfig& c = part.config;
  const char* key = "num_kv_shared_layers";
  if (!part.family.may_share_kv) {
    if (part.text.int_or(key, 0, 0, kMaxLayers) != 0 && !part.family.model_type.empty()) {
      unsupported(part.text, key, fmt::format("is not 0, {} shares no keys and values", c.model_type));
    }
    return;
  }
  if (!part.text.has(key) && part.family.num_kv_shared_layers >= c.num_layers) {
    return part.text.fail(key, fmt::format("is missing, and the default of {} exceeds {} layers",
                                           part.family.num_kv_shared_layers, c.num_layers));
  }
  c.num_kv_shared_layers = part.text.int_or(key, part.family.num_kv_shared_layers, 0, c.num_layers - 1);
  const auto first = c.layer_types.begin() + (c.num_layers - c.num_kv_shared_layers);
  for (const auto& t : kLayerTypes) {
    if (std::find(first, c.layer_types.end(), t.type) == c.layer_types.end()) continue;
    if (std::find(c.layer_types.begin(), first, t.type) != first) continue;
    part.text.fail(key, fmt::format("is {}, but no {} layer comes before the last {} to share with them",
                                    c.num_kv_shared_layers, quote(t.name), c.num_kv_shared_layers));
  }
}

void check_global_heads(const ConfigPart& part, const char* head_dim_key, const char* heads_key) {
  const ModelConfig& c = part.config;
  if (c.global_head_dim % 2 != 0) {
    part.text.fail(head_dim_key, fmt::format("is {}, expected an even number", c.global_head_dim));
  }
  if (c.num_global_kv_heads != 0 && c.num_heads % c.num_global_kv_heads != 0) {
    part.text.fail(heads_key,
                   fmt::format("is {}, {} heads are no multiple of it", c.num_global_kv_heads, c.num_heads));
  }
}

// transformers from 5.15 on: {"5": {"head_dim": 512, "num_key_value_heads": 2}, ...} in place of the global_*
// keys. Read where all full layers say the same and no other layer says anything.
void read_per_layer_config(const ConfigPart& part) {
  ModelConfig& c = part.config;
  JsonReader layers = part.text.object("per_layer_config");
  const std::size_t members = part.text.find("per_layer_config")->size();
  if (members == 0 || !part.text.ok()) return;
  const auto differ = [&] {
    unsupported(part.text, "per_layer_config", "differs between layers of one type, which is not supported");
  };
  std::size_t full = 0;
  for (int i = 0; i < c.num_layers; i++) {
    if (c.layer_types[static_cast<std::size_t>(i)] != LayerType::kFull) continue;
    JsonReader layer = layers.object(std::to_string(i).c_str());
    const int head_dim = layer.int_or("head_dim", c.head_dim, 2, kMaxHeadDim);
    const int kv_heads = layer.int_or("num_key_value_heads", c.num_kv_heads, 1, kMaxHeads);
    if (full++ == 0) c.global_head_dim = head_dim, c.num_global_kv_heads = kv_heads;
    if (head_dim != c.global_head_dim || kv_heads != c.num_global_kv_heads) return differ();
    if (!layers.has(std::to_string(i).c_str())) return differ();
  }
  if (members != full) return differ();
  check_global_heads(part, "per_layer_config", "per_layer_config");
}

// Gemma 4: heads of full layers that differ from those of sliding ones, and wide MLPs in the layers that have
// no keys and values of their own.
void read_gemma4_layers(const ConfigPart& part) {
  ModelConfig& c = part.config;
  c.attention_k_eq_v = part.text.bool_or("attention_k_eq_v", false);
  if (part.text.has("per_layer_config")) {
    read_per_layer_config(part);
  } else {
    c.global_head_dim = part.text.int_or("global_head_dim", part.family.global_head_dim, 2, kMaxHeadDim);
    const int kv_heads = part.text.int_or("num_global_key_value_heads", 0, 1, kMaxHeads);
    c.num_global_kv_heads = c.attention_k_eq_v ? kv_heads : 0;
    check_global_heads(part, "global_head_dim", "num_global_key_value_heads");
  }
  if (part.text.bool_or("use_double_wide_mlp", false) && c.num_kv_shared_layers > 0) {
    c.intermediate_sizes.assign(static_cast<std::size_t>(c.num_layers), c.intermediate_size);
    std::fill(c.intermediate_sizes.end() - c.num_kv_shared_layers, c.intermediate_sizes.end(),
              2 * c.intermediate_size);
  }
}

}  // namespace

void read_layer_types(const ConfigPart& part) {
  JsonReader& text = part.text;
  const FamilyDefaults& family = part.family;
  ModelConfig& c = part.config;
  // An explicit null switches the window off; an absent key means the family's.
  const int fallback = text.is_null("sliding_window") ? 0 : family.sliding_window;
  int window = text.int_or("sliding_window", fallback, 1, kMaxPositions);
  if (!text.bool_or("use_sliding_window", family.max_window_layers < 0)) window = 0;
  if (window != 0 && (family.layer_kinds & kSlidingLayers) == 0) {
    return unsupported(text, "sliding_window",
                       fmt::format("is {}, {} has no sliding layers", window, c.model_type));
  }
  if (text.has("layer_types")) {
    read_listed_types(part);
  } else {
    derive_types(part, window);
  }
  if (!text.ok()) return;
  if (family.last_layer_is_full) c.layer_types.back() = LayerType::kFull;
  const bool slides = has_type(c, LayerType::kSliding);
  if (slides && window == 0) text.fail("sliding_window", "is missing, but there are sliding layers");
  c.sliding_window = slides ? window : 0;
}

void read_layer_variants(const ConfigPart& part) {
  if (!part.text.ok()) return;
  read_shared_layers(part);
  if (part.family.global_head_dim != 0 && part.text.ok()) read_gemma4_layers(part);
}

}  // namespace windrow
