// The families: model_type to what describes and loads it. One file each under families/.
#pragma once

#include <memory>
#include <string_view>

#include "model/config.h"
#include "model/decoder.h"
#include "model/family.h"
#include "model/weights.h"

namespace windrow {

struct FamilyEntry {
  std::string_view model_type;
  // What the config says in the decoder's terms; kUnsupported, naming the key, for what the family lacks.
  Result<DecoderSpec> (*describe)(const ModelConfig& config);
  Result<std::unique_ptr<Family>> (*load)(const ModelConfig& config, const DecoderSpec& spec,
                                          WeightReader& weights) = load_decoder;
};

// kUnsupported, naming the model type and what there is, for an unknown one.
Result<const FamilyEntry*> find_family(std::string_view model_type);

Result<DecoderSpec> describe_gemma2(const ModelConfig& config);
Result<DecoderSpec> describe_gemma3(const ModelConfig& config);
Result<DecoderSpec> describe_gemma3n(const ModelConfig& config);
Result<DecoderSpec> describe_gemma4(const ModelConfig& config);
Result<DecoderSpec> describe_gpt_oss(const ModelConfig& config);
Result<DecoderSpec> describe_llama(const ModelConfig& config);
Result<DecoderSpec> describe_mistral(const ModelConfig& config);
Result<DecoderSpec> describe_olmo3(const ModelConfig& config);
Result<DecoderSpec> describe_phi3(const ModelConfig& config);
Result<DecoderSpec> describe_qwen3(const ModelConfig& config);
Result<DecoderSpec> describe_qwen3_next(const ModelConfig& config);

Result<std::unique_ptr<Family>> load_gemma3n(const ModelConfig& config, const DecoderSpec& spec,
                                             WeightReader& weights);
Result<std::unique_ptr<Family>> load_qwen3_next(const ModelConfig& config, const DecoderSpec& spec,
                                                WeightReader& weights);

// A decoder with norms before its halves, silu gates and scale 1 / sqrt(head_dim): where Llama and its
// relatives begin.
Result<DecoderSpec> describe_llama_like(const ModelConfig& config);

}  // namespace windrow
