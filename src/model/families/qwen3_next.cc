// Qwen3-Next: three gated DeltaNet layers to a full attention layer with an output gate and partial RoPE;
// experts with a shared one. "Gated Delta Networks", arXiv 2412.06464, and the model card of
// Qwen3-Next-80B-A3B.
#include "model/families.h"
#include "model/gated_delta_block.h"

namespace windrow {

Result<DecoderSpec> describe_qwen3_next(const ModelConfig& config) {
  Result<DecoderSpec> spec = describe_llama_like(config);
  if (!spec.ok()) return spec;
  spec->norm_plus = spec->attention.norm_plus = 1;
  spec->attention.qk_norm = AttentionSpec::QkNorm::kHead;
  spec->attention.output_gate = true;
  spec->attention.bias = spec->attention.output_bias = config.attention_bias;
  for (std::size_t i = 0; i < spec->layers.size(); i++) {
    if (config.layer_types[i] == LayerType::kLinear)
      spec->layers[i].recurrent = gated_delta_shape(config.linear);
  }
  return spec;
}

}  // namespace windrow
