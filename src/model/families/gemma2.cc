// Gemma 2: sliding and full layers by turns, norms before and after each half, softcaps of attention and
// final logits, embeddings scaled by sqrt(hidden). "Gemma 2", arXiv 2408.00118.
#include <cmath>

#include "model/families.h"

namespace windrow {

Result<DecoderSpec> describe_gemma2(const ModelConfig& config) {
  DecoderSpec spec;
  spec.layers = attention_shapes(config);
  spec.norms = kSandwichNorms;
  spec.norm_plus = spec.attention.norm_plus = 1;
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  spec.gate = GateKind::kGeluTanh;
  spec.attention.scale = static_cast<float>(1.0 / std::sqrt(config.query_pre_attn_scalar));
  spec.attention.softcap = static_cast<float>(config.attn_logit_softcapping);
  return spec;
}

}  // namespace windrow
