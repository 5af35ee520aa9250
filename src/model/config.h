// config.json (and generation_config.json) of a model folder, in the key styles of transformers 5
// (rope_parameters per layer type, layer_types) and of older checkpoints (rope_theta,
// rope_local_base_freq, rope_scaling, sliding_window_pattern, text_config nesting).
//
// Which families can run is not decided here: any model_type is read. But what a reader would have to
// know to compute right is never skipped: unknown rope types and layer types, partial rotation,
// quantized checkpoints and bidirectional attention are refused by name (kUnsupported). Keys that a
// checkpoint leaves to its family's defaults take them from a table (gemma3_text so far; Gemma 3 4B
// states six keys); where no default is known the key is required. A key of
// `text_config` wins over the same key outside of it, but for the token ids, of which the outer list is the
// complete one.
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
  // Of the text model, as the file says, e.g. "gemma3_text". A text_config without one: the type
  // outside plus "_text".
  std::string model_type;
  // The text model stands inside a larger one (text_config): tensor names carry a prefix, and there are
  // tensors of other parts.
  bool nested = false;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;  // a multiple of num_kv_heads
  int num_kv_heads = 0;
  int head_dim = 0;  // even; default hidden_size / num_heads
  int vocab_size = 0;
  int max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double query_pre_attn_scalar = 0;    // attention scale = 1 / sqrt of it; default head_dim
  double attn_logit_softcapping = 0;   // 0: none
  double final_logit_softcapping = 0;  // 0: none
  int sliding_window = 0;              // 0 where no layer slides
  std::vector<LayerType> layer_types;  // [num_layers]
  RopeConfig rope_full;
  RopeConfig rope_sliding;        // as rope_full where the family has one rope
  std::string hidden_activation;  // "gelu_pytorch_tanh", ...
  bool attention_bias = false;    // refused where the family has none
  bool tie_word_embeddings = true;
  DType dtype = DType::kBF16;  // what the file says; each tensor states its own
  std::vector<std::int32_t> bos_token_ids;
  std::vector<std::int32_t> eos_token_ids;  // generation_config.json wins over config.json
};

// `folder` holds config.json and maybe generation_config.json.
Result<ModelConfig> load_config(const std::string& folder);
// From texts; `generation` may be empty. Every number is range checked; the message names the key.
// `prefix` stands before the file names in messages ("DIR/").
Result<ModelConfig> parse_config(std::string_view config, std::string_view generation,
                                 const std::string& prefix = "");

}  // namespace windrow
