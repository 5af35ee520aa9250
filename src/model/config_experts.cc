// Experts, linear attention and per-layer inputs.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "model/config_parts.h"
#include "windrow/gated_delta.h"

namespace windrow {
namespace {

// The key that the file has, else the last of them.
const char* first_of(const JsonReader& text, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (text.has(key)) return key;
  }
  return *(keys.end() - 1);
}

void refuse_experts(const ConfigPart& part, const char* key) {
  const bool off = part.text.has("enable_moe_block") && !part.text.bool_or("enable_moe_block", false);
  if (part.family.model_type.empty() || off || !part.text.has(key)) return;
  part.text.fail(
      key, fmt::format("is {}, {} has no experts", describe(*part.text.find(key)), part.config.model_type),
      StatusCode::kUnsupported);
}

// Which layers have experts: every decoder_sparse_step-th, but for mlp_only_layers.
std::vector<bool> expert_layers(const ConfigPart& part) {
  const int layers = part.config.num_layers;
  const int step = part.text.int_or("decoder_sparse_step", 1, 1, kMaxLayers);
  std::vector<bool> has_experts(static_cast<std::size_t>(layers));
  for (int i = 0; i < layers; i++) has_experts[static_cast<std::size_t>(i)] = (i + 1) % step == 0;
  for (const int i : part.text.int_list("mlp_only_layers", 0, layers - 1)) {
    has_experts[static_cast<std::size_t>(i)] = false;
  }
  return has_experts;
}

void check_fixed(JsonReader& text, const char* key, double value) {
  if (text.double_or(key, value, 0, kMaxPositive) == value) return;
  text.fail(key, fmt::format("is {}, only {:g} is supported", describe(*text.find(key)), value),
            StatusCode::kUnsupported);
}

void read_altup(const ConfigPart& part) {
  const AltupConfig& family = part.family.altup;
  AltupConfig& altup = part.config.altup;
  JsonReader& text = part.text;
  constexpr int kMaxInputs = 64;  // published: 4
  altup.inputs = text.int_or("altup_num_inputs", family.inputs, 1, kMaxInputs);
  altup.active = text.int_or("altup_active_idx", family.active, 0, altup.inputs - 1);
  const double clip = text.is_null("altup_coef_clip") ? 0 : family.coef_clip;
  altup.coef_clip = text.double_or("altup_coef_clip", clip, kMinPositive, kMaxPositive);
  altup.correct_scale = text.bool_or("altup_correct_scale", family.correct_scale);
  altup.laurel_rank = text.int_or("laurel_rank", family.laurel_rank, 1, kMaxWidth);
  // The quantile of a normal distribution that an activation must exceed: 1 would keep none.
  constexpr double kMaxSparsity = 0.9999;
  altup.sparsity = text.double_list("activation_sparsity_pattern", 0, kMaxSparsity);
  const auto layers = static_cast<std::size_t>(part.config.num_layers);
  if (!text.has("activation_sparsity_pattern")) {
    constexpr std::size_t kSparseLayers = 10;
    altup.sparsity.assign(layers, 0.0);
    if (layers > kSparseLayers) std::fill_n(altup.sparsity.begin(), kSparseLayers, 0.95);
  }
  if (altup.sparsity.size() != layers) {
    text.fail("activation_sparsity_pattern",
              fmt::format("has {} entries for {} layers", altup.sparsity.size(), layers));
  }
}

}  // namespace

void read_experts(const ConfigPart& part) {
  const FamilyDefaults& family = part.family;
  JsonReader& text = part.text;
  const char* experts_key = first_of(text, {"num_local_experts", "num_experts"});
  if (text.bool_or("enable_moe_block", false)) {
    return text.fail("enable_moe_block",
                     fmt::format("is true, experts of {} are not supported", part.config.model_type),
                     StatusCode::kUnsupported);
  }
  if (family.experts == 0) return refuse_experts(part, experts_key);

  MoeConfig moe;
  moe.experts = text.int_or(experts_key, family.experts, 0, kMaxExperts);
  if (moe.experts == 0) return;
  const char* chosen_key = first_of(text, {"num_experts_per_tok", "experts_per_token"});
  const int chosen = std::min(family.experts_per_token, moe.experts);
  moe.experts_per_token = text.int_or(chosen_key, chosen, 1, moe.experts);
  // gpt_oss has no MLP but the experts': their width is intermediate_size.
  moe.intermediate_size =
      family.moe_intermediate_size == 0
          ? part.config.intermediate_size
          : text.int_or("moe_intermediate_size", family.moe_intermediate_size, 1, kMaxIntermediate);
  if (family.shared_expert_intermediate_size != 0) {
    moe.shared_intermediate_size = text.int_or("shared_expert_intermediate_size",
                                               family.shared_expert_intermediate_size, 1, kMaxIntermediate);
  }
  moe.norm_topk_prob = text.bool_or("norm_topk_prob", true);
  moe.swiglu_limit = text.double_or("swiglu_limit", moe.swiglu_limit, kMinPositive, kMaxPositive);
  check_fixed(text, "swiglu_alpha", 1.702);
  moe.layers = expert_layers(part);
  const bool any = std::find(moe.layers.begin(), moe.layers.end(), true) != moe.layers.end();
  if (any) part.config.moe = std::move(moe);
}

void read_linear_attention(const ConfigPart& part) {
  const std::vector<LayerType>& types = part.config.layer_types;
  if (std::find(types.begin(), types.end(), LayerType::kLinear) == types.end()) return;
  const LinearAttentionConfig& family = part.family.linear;
  JsonReader& text = part.text;
  LinearAttentionConfig& linear = part.config.linear;
  constexpr int kMaxTaps = 64;  // published: 4
  linear.key_heads = text.int_or("linear_num_key_heads", family.key_heads, 1, kMaxHeads);
  linear.value_heads = text.int_or("linear_num_value_heads", family.value_heads, 1, kMaxHeads);
  linear.key_dim = text.int_or("linear_key_head_dim", family.key_dim, 1, kMaxHeadDim);
  linear.value_dim = text.int_or("linear_value_head_dim", family.value_dim, 1, kMaxHeadDim);
  linear.conv_taps = text.int_or("linear_conv_kernel_dim", family.conv_taps, 1, kMaxTaps);
  if (linear.value_heads % linear.key_heads != 0) {
    text.fail("linear_num_value_heads",
              fmt::format("is {}, no multiple of the {} key heads", linear.value_heads, linear.key_heads));
  }
  if (linear.key_dim % 16 != 0) {  // GatedDeltaShape::check
    text.fail("linear_key_head_dim", fmt::format("is {}, expected a multiple of 16", linear.key_dim));
  }
}

void read_per_layer_inputs(const ConfigPart& part) {
  const FamilyDefaults& family = part.family;
  if (family.hidden_size_per_layer_input == 0) return;
  const char* key = "hidden_size_per_layer_input";
  ModelConfig& c = part.config;
  const bool optional = family.altup.inputs == 0;  // Gemma 4 has sizes without them
  const int fallback = optional && part.text.is_null(key) ? 0 : family.hidden_size_per_layer_input;
  c.hidden_size_per_layer_input = part.text.int_or(key, fallback, optional ? 0 : 1, kMaxWidth);
  if (c.hidden_size_per_layer_input > 0) {
    c.vocab_size_per_layer_input =
        part.text.int_or("vocab_size_per_layer_input", family.vocab_size_per_layer_input, 1, kMaxVocab);
  }
  if (family.altup.inputs != 0) read_altup(part);
}

}  // namespace windrow
