// A decoder of any family: what a family file says of its model, and the forward pass over it.
//
// A layer is  x += after_mixer(mixer(before_mixer(x))),  x +=
// after_feed_forward(mlp(before_feed_forward(x))), each norm where the family has it, and what Gemma 4 adds.
// Families that compute something else (Gemma 3n) are a Family of their own over the same parts.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/attention_block.h"
#include "model/config.h"
#include "model/family.h"
#include "model/gates.h"
#include "model/moe.h"

namespace windrow {

// Names of a layer's norms; null: the family has none there.
struct NormNames {
  const char* before_mixer = "input_layernorm";
  const char* after_mixer = nullptr;
  const char* before_feed_forward = "post_attention_layernorm";
  const char* after_feed_forward = nullptr;
};
// Norms before and after both halves (Gemma).
inline constexpr NormNames kSandwichNorms = {"input_layernorm", "post_attention_layernorm",
                                             "pre_feedforward_layernorm", "post_feedforward_layernorm"};

struct DecoderSpec {
  std::vector<LayerShape> layers;
  NormNames norms;
  float norm_plus = 0;  // added to all norms' weights
  float embedding_scale = 1;
  AttentionSpec attention;  // key_is_value holds for full layers only
  GateKind gate = GateKind::kSilu;
  bool mlp_bias = false;
  bool fused_gate_up = false;
  MoeSpec moe;
  bool per_layer_inputs = false;
  bool layer_scalar = false;  // x *= layers.N.layer_scalar at a layer's end
};

// Of a config whose layers differ in their window only.
std::vector<LayerShape> attention_shapes(const ModelConfig& config);
// The last num_kv_shared_layers attend over the last earlier layer of their own type.
void share_last_layers(const ModelConfig& config, std::vector<LayerShape>& layers);

Result<std::unique_ptr<Family>> load_decoder(const ModelConfig& config, const DecoderSpec& spec,
                                             WeightReader& weights);

}  // namespace windrow
