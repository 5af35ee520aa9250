// What a checkpoint leaves out of config.json, by family.
#pragma once

#include <string_view>

namespace windrow {

// What a family's configuration class supplies for a key that the file leaves out; 0, -1 and ""
// mean that it has no default of its own. Facts of transformers' configuration classes.
struct FamilyDefaults {
  std::string_view model_type;
  int vocab_size = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int max_position_embeddings = 0;
  double query_pre_attn_scalar = 0;
  int sliding_window = 0;
  int sliding_window_pattern = 0;  // layer i is full where (i + 1) % pattern == 0
  double rope_theta = 10000;
  double rope_local_theta = 0;  // 0: sliding layers turn as full ones do
  const char* hidden_activation = "";
  bool tie_word_embeddings = false;
  bool may_have_attention_bias = true;
  int bos_token_id = -1;
  int eos_token_id = -1;
};

// hidden_size, intermediate_size and num_hidden_layers have defaults in transformers too, but no published
// model equals them; a file without them is broken.
inline constexpr FamilyDefaults kFamilyDefaults[] = {
    {.model_type = "gemma3_text",
     .vocab_size = 262208,
     .num_heads = 8,
     .num_kv_heads = 4,
     .head_dim = 256,
     .max_position_embeddings = 131072,
     .query_pre_attn_scalar = 256,
     .sliding_window = 4096,
     .sliding_window_pattern = 6,
     .rope_theta = 1e6,
     .rope_local_theta = 1e4,
     .hidden_activation = "gelu_pytorch_tanh",
     .tie_word_embeddings = true,
     .may_have_attention_bias = false,
     .bos_token_id = 2,
     .eos_token_id = 1},
};

// All zeros (and the generic bases) for a family that is not in the table.
inline FamilyDefaults family_defaults(std::string_view model_type) {
  for (const FamilyDefaults& family : kFamilyDefaults) {
    if (family.model_type == model_type) return family;
  }
  return {};
}

}  // namespace windrow
