// OLMo 3: norms after attention and MLP only, norms over all query heads and over all key heads, windows in
// three of four layers. https://allenai.org/olmo
#include "model/families.h"

namespace windrow {

Result<DecoderSpec> describe_olmo3(const ModelConfig& config) {
  Result<DecoderSpec> spec = describe_llama_like(config);
  if (!spec.ok()) return spec;
  spec->norms = {nullptr, "post_attention_layernorm", nullptr, "post_feedforward_layernorm"};
  spec->attention.qk_norm = AttentionSpec::QkNorm::kAll;
  spec->attention.bias = spec->attention.output_bias = config.attention_bias;
  return spec;
}

}  // namespace windrow
