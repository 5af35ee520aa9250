// Gemma 3 (text): Gemma 2 with norms of queries and keys, five sliding layers to a full one, each kind with a
// RoPE of its own. "Gemma 3 Technical Report", arXiv 2503.19786.
#include "model/families.h"

namespace windrow {

Result<DecoderSpec> describe_gemma3(const ModelConfig& config) {
  Result<DecoderSpec> spec = describe_gemma2(config);
  if (spec.ok()) spec->attention.qk_norm = AttentionSpec::QkNorm::kHead;
  return spec;
}

}  // namespace windrow
