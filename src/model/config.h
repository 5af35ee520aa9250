// config.json (and generation_config.json) of a model folder, in the key styles of transformers 5
// (rope_parameters per layer type, layer_types) and of older checkpoints (rope_theta,
// rope_local_base_freq, rope_scaling, sliding_window_pattern, text_config nesting).
//
// Which families can run is not decided here: any model_type is read. But what a reader would have to
// know to compute right is never skipped: unknown rope types and layer types, biases, activations and experts
// that a family has not, other quantization than MLX's and bidirectional attention are refused by name
// (kUnsupported). Keys that a checkpoint leaves to its family's defaults take them from a table
// (config_defaults.cc; Gemma 3 4B states six keys); where no default is known the key is required. A key of
// `text_config` wins over the same key outside of it, but for the token ids, of which the outer list is the
// complete one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/quantization.h"
#include "windrow/dtype.h"
#include "windrow/status.h"

namespace windrow {

enum class RopeType : std::uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope, kProportional };

// The keys of one rope; those that its type does not use keep their defaults. rope.h says what they do.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  double partial_rotary_factor = 1.0;                // of head_dim, the part that turns
  int original_max_positions = 0;                    // dynamic, llama3, yarn, longrope
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  double attention_factor = 0;                       // yarn, longrope; 0: from factor and the like
  double mscale = 0, mscale_all_dim = 0;             // yarn; 0: absent
  bool truncate = true;                              // yarn
  std::vector<double> short_factor, long_factor;     // longrope, one a pair

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

enum class LayerType : std::uint8_t { kFull, kSliding, kLinear };

// Mixture of experts. experts == 0: none.
struct MoeConfig {
  int experts = 0;                   // num_experts, num_local_experts
  int experts_per_token = 0;         // num_experts_per_tok
  int intermediate_size = 0;         // of one expert
  int shared_intermediate_size = 0;  // of the shared expert; 0: none
  bool norm_topk_prob = true;        // the weights of the chosen experts sum to 1
  std::vector<bool> layers;   // [num_layers]: which have experts (mlp_only_layers, decoder_sparse_step)
  double swiglu_limit = 7.0;  // gpt_oss
};

// The gated delta layers of Qwen3-Next. key_heads == 0: none.
struct LinearAttentionConfig {
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, conv_taps = 0;
};

// What Gemma 3n has beside a transformer: AltUp, Laurel and sparse activations.
struct AltupConfig {
  int inputs = 0;  // altup_num_inputs; 0: none
  int active = 0;
  double coef_clip = 0;  // 0: none
  bool correct_scale = true;
  int laurel_rank = 0;
  std::vector<double> sparsity = {};  // activation_sparsity_pattern, [num_layers]
};

struct ModelConfig {
  // Of the text model, as the file says, e.g. "gemma3_text". A text_config without one: the type
  // outside plus "_text".
  std::string model_type;
  // The text model stands inside a larger one (text_config): tensor names carry a prefix, and there are
  // tensors of other parts.
  bool nested = false;
  int hidden_size = 0;
  int intermediate_size = 0;            // of layer 0; of all of them where intermediate_sizes is empty
  std::vector<int> intermediate_sizes;  // [num_layers] where they differ (Gemma 3n; wide layers of Gemma 4)
  int num_layers = 0;
  int num_heads = 0;  // a multiple of num_kv_heads
  int num_kv_heads = 0;
  int head_dim = 0;  // even; default hidden_size / num_heads
  int vocab_size = 0;
  int max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double query_pre_attn_scalar =
      0;  // attention scale = 1 / sqrt of it; default head_dim; 1 in Gemma 3n and 4
  double attn_logit_softcapping = 0;    // 0: none
  double final_logit_softcapping = 0;   // 0: none
  int sliding_window = 0;               // 0 where no layer slides
  std::vector<LayerType> layer_types;   // [num_layers]
  int num_kv_shared_layers = 0;         // the last ones, which attend over earlier layers' keys and values
  int hidden_size_per_layer_input = 0;  // Gemma 3n and 4: 0: no per-layer inputs
  int vocab_size_per_layer_input = 0;
  int global_head_dim = 0;        // Gemma 4, of full layers; 0: head_dim
  int num_global_kv_heads = 0;    // Gemma 4, of full layers; 0: num_kv_heads
  bool attention_k_eq_v = false;  // Gemma 4, full layers: values are the keys' projection
  MoeConfig moe;
  LinearAttentionConfig linear;
  AltupConfig altup;
  RopeConfig rope_full;
  RopeConfig rope_sliding;        // as rope_full where the family has one rope
  std::string hidden_activation;  // "gelu_pytorch_tanh", ...
  bool attention_bias = false;    // of q, k, v and o; refused where it is not supported
  bool mlp_bias = false;          // llama
  bool tie_word_embeddings = true;
  DType dtype = DType::kBF16;  // what the file says; each tensor states its own
  std::optional<Quantization> quantization;
  std::vector<std::int32_t> bos_token_ids;
  std::vector<std::int32_t> eos_token_ids;  // generation_config.json wins over config.json
};

// Only the model_type, as ModelConfig has it, of a config.json that need not be complete: an unknown family
// should be named before what its config lacks.
Result<std::string> load_model_type(const std::string& folder);
// `folder` holds config.json and maybe generation_config.json.
Result<ModelConfig> load_config(const std::string& folder);
// From texts; `generation` may be empty. Every number is range checked; the message names the key.
// `prefix` stands before the file names in messages ("DIR/").
Result<ModelConfig> parse_config(std::string_view config, std::string_view generation,
                                 const std::string& prefix = "");

}  // namespace windrow
