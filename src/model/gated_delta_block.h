// A gated DeltaNet layer (Qwen3-Next): projections, causal convolution, the gated delta rule, a gated norm.
#pragma once

#include <memory>
#include <string>

#include "model/block.h"
#include "model/config.h"
#include "windrow/recurrent.h"

namespace windrow {

// The state that such a layer needs; config.linear must be one.
RecurrentShape gated_delta_shape(const LinearAttentionConfig& config);

// `prefix`: "layers.3.linear_attn".
Result<std::unique_ptr<Mixer>> read_gated_delta(WeightReader& weights, const std::string& prefix, int layer,
                                                const ModelConfig& config);

}  // namespace windrow
