// Mixture of experts: a router picks experts for each token, whose gated MLPs are weighed and added.
//
// The sum of a token's experts runs in order of their scores (of equal ones, the lower number first), so it
// does not depend on the token's neighbours.
#pragma once

#include <memory>
#include <string>

#include "model/block.h"
#include "model/config.h"
#include "model/gates.h"

namespace windrow {

struct MoeSpec {
  GateKind gate = GateKind::kSilu;
  const char* router = "gate";  // the router's name, "router" in gpt-oss
  bool bias = false;            // of the router and the experts
  // Weights: softmax over all experts (then of the chosen ones, to sum 1, if norm_topk_prob says so), or over
  // the chosen ones alone.
  bool softmax_of_chosen = false;
};

// `prefix`: "layers.3.mlp". Experts stand one by one ("experts.0.gate_proj.weight"), stacked
// ("switch_mlp.gate_proj.weight" or "experts.gate_proj.weight", [experts, inner, hidden], as mlx-lm writes
// them) or, in gpt-oss, stacked, transposed and gate and up alternating ("experts.gate_up_proj").
Result<std::unique_ptr<FeedForward>> read_moe(WeightReader& weights, const std::string& prefix,
                                              std::size_t hidden, const MoeConfig& config,
                                              const MoeSpec& spec);

}  // namespace windrow
