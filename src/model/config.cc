// Reads config.json and generation_config.json into a ModelConfig.
#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <utility>

#include "base/json.h"
#include "io/file.h"
#include "model/config_defaults.h"
#include "model/config_parts.h"
#include "model/config_rope.h"
#include "model/quantization.h"

namespace windrow {
namespace {

// A config.json is a few KB; one that maps every class of a classifier has been seen at 0.5 MB.
constexpr std::size_t kMaxConfigBytes = std::size_t{4} << 20;
constexpr double kMinEps = 1e-30;  // 1 / sqrt(eps) is finite in f32

int int_or_required(JsonReader& reader, const char* key, int fallback, int low, int high) {
  return fallback == 0 ? reader.require_int(key, low, high) : reader.int_or(key, fallback, low, high);
}

// Of the text model; `text` is `outer` where there is no text_config.
std::string read_model_type(JsonReader& outer, JsonReader& text, bool nested) {
  std::string type = text.string_or("model_type", "");
  if (!type.empty()) return type;
  type = outer.require_string("model_type");
  return nested ? type + "_text" : type;
}

class Parser {
 public:
  // `text` reads text_config where there is one, `outer` the whole file.
  Parser(JsonReader outer, JsonReader text, bool nested) : outer_(std::move(outer)), text_(std::move(text)) {
    config_.nested = nested;
  }

  ModelConfig parse() {
    config_.model_type = read_model_type(outer_, text_, config_.nested);
    family_ = &family_defaults(config_.model_type);
    refuse_what_changes_the_computation();
    read_quantized_modules();
    read_sizes();
    read_numerics();
    const ConfigPart part = {text_, *family_, config_};
    read_layer_types(part);
    read_layer_variants(part);
    read_experts(part);
    read_linear_attention(part);
    read_per_layer_inputs(part);
    if (text_.ok()) read_rope(part);
    read_outer_keys();
    return std::move(config_);
  }

 private:
  JsonReader& reader_of(const char* key) { return text_.has(key) ? text_ : outer_; }

  void refuse_what_changes_the_computation() {
    const Json* bidirectional = text_.find("use_bidirectional_attention");
    const bool of_images =
        bidirectional != nullptr && family_->may_see_vision_both_ways && *bidirectional == "vision";
    if (bidirectional != nullptr && *bidirectional != false && !of_images) {
      text_.fail("use_bidirectional_attention",
                 fmt::format("is {}, only causal attention is supported", describe(*bidirectional)),
                 StatusCode::kUnsupported);
    }
    config_.attention_bias =
        read_bias("attention_bias", family_->attention_bias, family_->may_have_attention_bias);
    config_.mlp_bias = read_bias("mlp_bias", false, family_->may_have_mlp_bias);
  }

  bool read_bias(const char* key, bool fallback, bool supported) {
    const bool bias = text_.bool_or(key, fallback);
    if (bias && !supported) {
      text_.fail(key, fmt::format("is true, which is not supported for {}", config_.model_type),
                 StatusCode::kUnsupported);
    }
    return bias;
  }

  void read_quantized_modules() {
    // mlx-lm writes both, the same; in other tools' files the second stands alone.
    for (const char* key : {"quantization", "quantization_config"}) {
      if (!reader_of(key).has(key)) continue;
      config_.quantization = read_quantization(reader_of(key), key);
      return;
    }
  }

  void read_sizes() {
    config_.hidden_size = text_.require_int("hidden_size", 1, kMaxWidth);
    config_.num_layers = text_.require_int("num_hidden_layers", 1, kMaxLayers);
    read_intermediate_size();
    config_.num_heads = int_or_required(text_, "num_attention_heads", family_->num_heads, 1, kMaxHeads);
    const int kv_heads = family_->num_kv_heads == 0 ? config_.num_heads : family_->num_kv_heads;
    config_.num_kv_heads = text_.int_or("num_key_value_heads", kv_heads, 1, kMaxHeads);
    if (config_.num_heads % config_.num_kv_heads != 0) {
      text_.fail("num_attention_heads", fmt::format("is {}, no multiple of the {} key-value heads",
                                                    config_.num_heads, config_.num_kv_heads));
    }
    read_head_dim();
    config_.vocab_size = int_or_required(text_, "vocab_size", family_->vocab_size, 1, kMaxVocab);
    config_.max_position_embeddings =
        int_or_required(text_, "max_position_embeddings", family_->max_position_embeddings, 1, kMaxPositions);
  }

  // Gemma 3n states one size a layer.
  void read_intermediate_size() {
    const char* key = "intermediate_size";
    if (!text_.has(key)) return text_.fail(key, "is missing");
    std::vector<std::int32_t> sizes = text_.int_list(key, 1, kMaxIntermediate);
    if (sizes.empty()) return text_.fail(key, "is an empty array");
    config_.intermediate_size = sizes[0];
    if (text_.find(key)->is_array() && sizes.size() != static_cast<std::size_t>(config_.num_layers)) {
      return text_.fail(key, fmt::format("has {} entries for {} layers", sizes.size(), config_.num_layers));
    }
    if (std::all_of(sizes.begin(), sizes.end(), [&](int size) { return size == sizes[0]; })) return;
    if (!family_->may_vary_intermediate_size) {
      text_.fail(key,
                 fmt::format("differs between layers, which is not supported for {}", config_.model_type),
                 StatusCode::kUnsupported);
    }
    config_.intermediate_sizes = std::move(sizes);
  }

  void read_head_dim() {
    const bool derived = !text_.has("head_dim") && family_->head_dim == 0;
    if (derived && config_.hidden_size % config_.num_heads != 0) {
      return text_.fail("head_dim", fmt::format("is missing, and hidden_size {} is no multiple of {} heads",
                                                config_.hidden_size, config_.num_heads));
    }
    const int fallback = derived ? config_.hidden_size / config_.num_heads : family_->head_dim;
    config_.head_dim = text_.int_or("head_dim", fallback, 2, kMaxHeadDim);
    if (derived && config_.head_dim > kMaxHeadDim) {
      text_.fail("head_dim",
                 fmt::format("is {} (hidden_size / heads), expected 2 to {}", fallback, kMaxHeadDim));
    }
    // RoPE turns pairs.
    if (config_.head_dim % 2 != 0)
      text_.fail("head_dim", fmt::format("is {}, expected an even number", config_.head_dim));
  }

  void read_numerics() {
    config_.rms_norm_eps = text_.double_or("rms_norm_eps", family_->rms_norm_eps, kMinEps, 1);
    const double scalar =
        family_->query_pre_attn_scalar == 0 ? config_.head_dim : family_->query_pre_attn_scalar;
    config_.query_pre_attn_scalar =
        text_.double_or("query_pre_attn_scalar", scalar, kMinPositive, kMaxPositive);
    if (family_->fixed_attention_scale) config_.query_pre_attn_scalar = scalar;
    config_.attn_logit_softcapping = read_softcap("attn_logit_softcapping", family_->attn_logit_softcapping);
    config_.final_logit_softcapping =
        read_softcap("final_logit_softcapping", family_->final_logit_softcapping);
    read_activation();
  }

  // An explicit null switches the cap off; an absent key means the family's.
  double read_softcap(const char* key, double fallback) {
    return text_.double_or(key, text_.is_null(key) ? 0 : fallback, kMinPositive, kMaxPositive);
  }

  void read_activation() {
    // Gemma 1 and 2 state both; hidden_activation is the one that counts.
    const char* key = text_.has("hidden_activation") ? "hidden_activation" : "hidden_act";
    const std::string only = family_->hidden_activation;
    config_.hidden_activation = text_.string_or(key, only);
    if (config_.hidden_activation.empty()) return text_.fail("hidden_activation", "is missing");
    if (!only.empty() && config_.hidden_activation != only) {
      text_.fail(
          key,
          fmt::format("is {}, {} uses {}", quote(config_.hidden_activation), config_.model_type, quote(only)),
          StatusCode::kUnsupported);
    }
  }

  // Keys that files with a text_config state inside or outside of it.
  void read_outer_keys() {
    const char* tie = "tie_word_embeddings";
    config_.tie_word_embeddings = reader_of(tie).bool_or(tie, family_->tie_word_embeddings);
    read_dtype();
    config_.bos_token_ids = read_ids("bos_token_id", family_->bos_token_id);
    config_.eos_token_ids = read_ids("eos_token_id", family_->eos_token_id);
  }

  void read_dtype() {
    const bool is_new = text_.has("dtype") || outer_.has("dtype");
    const char* key = is_new ? "dtype" : "torch_dtype";
    JsonReader& reader = reader_of(key);
    const std::string name = reader.string_or(key, "bfloat16");
    if (name == "bfloat16") {
      config_.dtype = DType::kBF16;
    } else if (name == "float16") {
      config_.dtype = DType::kF16;
    } else if (name == "float32") {
      config_.dtype = DType::kF32;
    } else {
      reader.fail(key, fmt::format("is {}, supported are bfloat16, float16 and float32", quote(name)),
                  StatusCode::kUnsupported);
    }
  }

  std::vector<std::int32_t> read_ids(const char* key, int fallback) {
    // A multimodal file states every stop token outside; the text_config repeats one at most.
    JsonReader& reader = outer_.has(key) ? outer_ : text_;
    std::vector<std::int32_t> ids = reader.int_list(key, 0, config_.vocab_size - 1);
    if (!reader.has(key) && fallback >= 0 && fallback < config_.vocab_size) ids.push_back(fallback);
    return ids;
  }

  ModelConfig config_;
  const FamilyDefaults* family_ = nullptr;
  JsonReader outer_;
  JsonReader text_;
};

Status read_generation(std::string_view text, const std::string& name, ModelConfig& config) {
  const Result<Json> json = parse_json(text, name, {.max_bytes = kMaxConfigBytes});
  if (!json.ok()) return json.status();
  Status error;
  JsonReader reader(*json, name, error);
  const auto override_ids = [&](const char* key, std::vector<std::int32_t>& ids) {
    if (reader.has(key)) ids = reader.int_list(key, 0, config.vocab_size - 1);
  };
  override_ids("bos_token_id", config.bos_token_ids);
  override_ids("eos_token_id", config.eos_token_ids);
  return error;
}

}  // namespace

Result<ModelConfig> parse_config(std::string_view config, std::string_view generation,
                                 const std::string& prefix) {
  try {
    const std::string name = prefix + "config.json";
    const Result<Json> json = parse_json(config, name, {.max_bytes = kMaxConfigBytes});
    if (!json.ok()) return json.status();
    Status error;
    const JsonReader outer(*json, name, error);
    const bool nested = outer.has("text_config");
    ModelConfig result = Parser(outer, nested ? outer.object("text_config") : outer, nested).parse();
    if (!error.ok()) return error;
    if (!generation.empty()) error = read_generation(generation, prefix + "generation_config.json", result);
    if (!error.ok()) return error;
    return result;
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, prefix + "config.json: out of memory while reading it");
  }
}

Result<std::string> load_model_type(const std::string& folder) try {
  const std::string name = folder + "/config.json";
  const Result<std::string> text = read_file(name, kMaxConfigBytes);
  if (!text.ok()) return text.status();
  const Result<Json> json = parse_json(*text, name, {.max_bytes = kMaxConfigBytes});
  if (!json.ok()) return json.status();
  Status error;
  JsonReader outer(*json, name, error);
  const bool nested = outer.has("text_config");
  JsonReader inner = nested ? outer.object("text_config") : outer;
  std::string type = read_model_type(outer, inner, nested);
  if (!error.ok()) return error;
  return type;
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kResourceExhausted, folder + "/config.json: out of memory while reading it");
}

Result<ModelConfig> load_config(const std::string& folder) {
  const std::string prefix = folder + "/";
  const Result<std::string> config = read_file(prefix + "config.json", kMaxConfigBytes);
  if (!config.ok()) return config.status();
  std::string generation_text;
  if (path_exists(prefix + "generation_config.json")) {
    Result<std::string> generation = read_file(prefix + "generation_config.json", kMaxConfigBytes);
    if (!generation.ok()) return generation.status();
    generation_text = std::move(*generation);
  }
  return parse_config(*config, generation_text, prefix);
}

}  // namespace windrow
