// Phi-3: Llama with fused projections. "Phi-3 Technical Report", arXiv 2404.14219.
#include "model/families.h"

namespace windrow {

Result<DecoderSpec> describe_phi3(const ModelConfig& config) {
  Result<DecoderSpec> spec = describe_llama_like(config);
  if (!spec.ok()) return spec;
  spec->attention.fused = spec->fused_gate_up = true;
  return spec;
}

}  // namespace windrow
