// gpt-oss: sliding and full layers by turns, a learned sink logit a head, biases everywhere, YaRN, and
// experts with clamped gates. "gpt-oss-120b & gpt-oss-20b Model Card", arXiv 2508.10925.
#include "model/families.h"

namespace windrow {

Result<DecoderSpec> describe_gpt_oss(const ModelConfig& config) {
  Result<DecoderSpec> spec = describe_llama_like(config);
  if (!spec.ok()) return spec;
  spec->attention.sinks = true;
  spec->attention.bias = spec->attention.output_bias = config.attention_bias;
  spec->moe = {.gate = GateKind::kClamped, .router = "router", .bias = true, .softmax_of_chosen = true};
  return spec;
}

}  // namespace windrow
