// Qwen3-Next: three gated DeltaNet layers to a full attention layer with an output gate and partial RoPE;
// experts with a shared one. "Gated Delta Networks", arXiv 2412.06464, and the model card of
// Qwen3-Next-80B-A3B.
#include <fmt/format.h>

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

// mlx-lm turns the convolution's weights, [channels, 1, taps], to [channels, taps, 1], and adds the 1 to the
// norms in the same go.
Result<std::unique_ptr<Family>> load_qwen3_next(const ModelConfig& config, const DecoderSpec& spec,
                                                WeightReader& weights) {
  DecoderSpec as_stored = spec;
  for (int i = 0; i < config.num_layers; i++) {
    const std::vector<std::size_t> shape =
        weights.shape(fmt::format("layers.{}.linear_attn.conv1d.weight", i));
    if (shape.size() == 3 && shape[2] == 1 && config.linear.conv_taps != 1) {
      as_stored.norm_plus = as_stored.attention.norm_plus = 0;
    }
  }
  return load_decoder(config, as_stored, weights);
}

}  // namespace windrow
