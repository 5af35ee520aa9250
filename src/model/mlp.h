// The gated MLP: down(gate_kind(gate(h), up(h))).
#pragma once

#include <memory>
#include <string>

#include "model/block.h"
#include "model/gates.h"

namespace windrow {

struct MlpSpec {
  GateKind gate = GateKind::kSilu;
  bool fused = false;  // "gate_up_proj" holds the rows of gate and up (Phi-3)
  bool bias = false;
  // Gemma 3n: only gates above the quantile are kept: mean + z * deviation of the token's gates is taken off
  // and what is negative becomes 0. z is the normal distribution's quantile of the sparsity.
  bool sparse = false;
  float sparsity_z = 0;
};

// `prefix`: "layers.3.mlp".
Result<std::unique_ptr<FeedForward>> read_mlp(WeightReader& weights, const std::string& prefix,
                                              std::size_t hidden, std::size_t inner, const MlpSpec& spec);

}  // namespace windrow
