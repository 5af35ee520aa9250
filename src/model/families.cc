#include "model/families.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "base/json.h"

namespace windrow {
namespace {

constexpr FamilyEntry kFamilies[] = {
    {"gemma2", describe_gemma2},
    {"gemma3_text", describe_gemma3},
    {"gemma3n_text", describe_gemma3n, load_gemma3n},
    {"gemma4_text", describe_gemma4},
    {"gpt_oss", describe_gpt_oss},
    {"llama", describe_llama},
    {"ministral", describe_mistral},
    {"mistral", describe_mistral},
    {"olmo3", describe_olmo3},
    {"phi3", describe_phi3},
    {"qwen3", describe_qwen3},
    {"qwen3_next", describe_qwen3_next, load_qwen3_next},
};

}  // namespace

Result<const FamilyEntry*> find_family(std::string_view model_type) {
  std::string known;
  for (const FamilyEntry& e : kFamilies) {
    if (e.model_type == model_type) return &e;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", e.model_type);
  }
  return Status(StatusCode::kUnsupported,
                fmt::format("model_type {} is not supported (supported: {})", quote(model_type), known));
}

Result<DecoderSpec> describe_llama_like(const ModelConfig& config) {
  DecoderSpec spec;
  spec.layers = attention_shapes(config);
  spec.attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  return spec;
}

}  // namespace windrow
