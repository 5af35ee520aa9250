// Gemma 4 (text): Gemma 3 with per-layer inputs, norms of values, last layers that attend over earlier ones'
// keys and values, and full layers with a head_dim and key heads of their own, whose values may be the keys'
// projection.
#include "model/families.h"

namespace windrow {

Result<DecoderSpec> describe_gemma4(const ModelConfig& config) {
  Result<DecoderSpec> spec = describe_gemma3(config);
  if (!spec.ok()) return spec;
  spec->norm_plus = spec->attention.norm_plus = 0;
  spec->attention.scale = 1;
  spec->attention.softcap = 0;
  spec->attention.value_norm = true;
  spec->attention.key_is_value = config.attention_k_eq_v;
  spec->attention.bias = spec->attention.output_bias = config.attention_bias;
  spec->per_layer_inputs = config.hidden_size_per_layer_input != 0;
  spec->layer_scalar = true;
  for (LayerShape& layer : spec->layers) {
    if (layer.window != kFullWindow) continue;
    if (config.global_head_dim != 0) layer.head_dim = config.global_head_dim;
    if (config.attention_k_eq_v && config.num_global_kv_heads != 0)
      layer.kv_heads = config.num_global_kv_heads;
  }
  share_last_layers(config, spec->layers);
  return spec;
}

}  // namespace windrow
