// What a checkpoint leaves out of config.json, and which options it may state, by family.
#pragma once

#include <string_view>

#include "model/config.h"

namespace windrow {

// Kinds of layers, as a set.
enum LayerKinds : unsigned { kFullLayers = 1, kSlidingLayers = 2, kLinearLayers = 4 };

// What a family's configuration class supplies for a key that the file leaves out; 0, -1 and ""
// mean that it has no default of its own. Facts of transformers' configuration classes.
struct FamilyDefaults {
  std::string_view model_type = "";
  int vocab_size = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  // 0: as many as heads
  int head_dim = 0;      // 0: hidden_size / heads
  int max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double query_pre_attn_scalar = 0;    // 0: head_dim
  bool fixed_attention_scale = false;  // query_pre_attn_scalar is the above whatever the file says
  double attn_logit_softcapping = 0;
  double final_logit_softcapping = 0;

  unsigned layer_kinds = kFullLayers | kSlidingLayers;  // that it may have
  int sliding_window = 0;
  // use_sliding_window must be true for a window to count (Qwen); then the layers from this one on slide.
  int max_window_layers = -1;
  const char* pattern_key = "sliding_window_pattern";
  int pattern = 0;  // layer i is full where (i + 1) % pattern == 0; 0: a window means that all layers slide
  LayerType between = LayerType::kSliding;  // the layers that the pattern leaves
  bool last_layer_is_full = false;          // whatever the file says
  bool may_vary_intermediate_size = false;  // between layers
  bool may_share_kv = false;
  int num_kv_shared_layers = 0;
  int hidden_size_per_layer_input = 0;
  int vocab_size_per_layer_input = 0;
  int global_head_dim = 0;

  double rope_theta = 10000;
  double rope_local_theta = 0;  // of sliding layers; 0: rope_theta
  bool rope_per_layer_type =
      false;  // rope_scaling is of full layers only; rope_parameters has one object a type
  double partial_rotary_factor = 1;
  const char* rope = "";             // JSON: the rope of full layers where the file states none
  bool yarn_means_longrope = false;  // an early name of it (Phi-3)

  int experts = 0;
  int experts_per_token = 0;
  int moe_intermediate_size = 0;
  int shared_expert_intermediate_size = 0;
  LinearAttentionConfig linear = {};  // key_heads 0: none
  AltupConfig altup = {};             // inputs 0: none

  const char* hidden_activation = "";  // the only one that it may have
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool may_have_attention_bias = true;
  bool may_have_mlp_bias = false;
  bool may_see_vision_both_ways = false;  // use_bidirectional_attention "vision": text stays causal
  int bos_token_id = -1;
  int eos_token_id = -1;
};

// Of a family that is not known: model_type "", generic rules, and more keys are required.
const FamilyDefaults& family_defaults(std::string_view model_type);

}  // namespace windrow
