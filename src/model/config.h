// config.json (and generation_config.json) of a model folder, in the key styles of transformers 5
// (rope_parameters per layer type, layer_types) and of older checkpoints (rope_theta,
// rope_local_base_freq, rope_scaling, sliding_window_pattern, text_config nesting).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/dtype.h"
#include "windrow/status.h"

namespace windrow {

struct RopeConfig {
  double theta = 10000.0;
  double factor = 1.0;  // linear scaling: positions are divided by it. Other rope types are refused by name.
};

enum class LayerType : std::uint8_t { kFull, kSliding };

struct ModelConfig {
  std::string model_type;        // as the file says, e.g. "gemma3_text"
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int vocab_size = 0;
  int max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double query_pre_attn_scalar = 0;     // attention scale = 1 / sqrt of it
  double attn_logit_softcapping = 0;    // 0: none
  double final_logit_softcapping = 0;   // 0: none
  int sliding_window = 0;               // 0 where no layer slides
  std::vector<LayerType> layer_types;   // [num_layers]
  RopeConfig rope_full;
  RopeConfig rope_sliding;
  std::string hidden_activation;        // "gelu_pytorch_tanh", ...
  bool tie_word_embeddings = true;
  DType dtype = DType::kBF16;
  std::vector<std::int32_t> bos_token_ids;
  std::vector<std::int32_t> eos_token_ids;  // generation_config.json wins over config.json
};

// `folder` holds config.json and maybe generation_config.json.
Result<ModelConfig> load_config(const std::string& folder);
// From texts; `generation` may be empty. Every number is range checked; the message names the key.
Result<ModelConfig> parse_config(std::string_view config, std::string_view generation);

}  // namespace windrow
