// Llama 2 and 3: norms before attention and MLP, GQA, silu gates.
// "The Llama 3 Herd of Models", arXiv 2407.21783.
#include "model/families.h"

namespace windrow {

Result<DecoderSpec> describe_llama(const ModelConfig& config) {
  Result<DecoderSpec> spec = describe_llama_like(config);
  if (!spec.ok()) return spec;
  spec->attention.bias = spec->attention.output_bias = config.attention_bias;
  spec->mlp_bias = config.mlp_bias;
  return spec;
}

}  // namespace windrow
