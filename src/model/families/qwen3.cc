// Qwen3 (dense): Llama with norms of each query and key head. "Qwen3 Technical Report", arXiv 2505.09388.
#include "model/families.h"

namespace windrow {

Result<DecoderSpec> describe_qwen3(const ModelConfig& config) {
  Result<DecoderSpec> spec = describe_llama_like(config);
  if (!spec.ok()) return spec;
  spec->attention.qk_norm = AttentionSpec::QkNorm::kHead;
  spec->attention.bias = spec->attention.output_bias = config.attention_bias;
  return spec;
}

}  // namespace windrow
