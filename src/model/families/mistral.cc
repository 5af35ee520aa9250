// Mistral: Llama with a sliding window in every layer (7B v0.1) or none (later ones).
// Jiang et al., "Mistral 7B", arXiv 2310.06825.
#include "model/families.h"

namespace windrow {

Result<DecoderSpec> describe_mistral(const ModelConfig& config) { return describe_llama_like(config); }

}  // namespace windrow
