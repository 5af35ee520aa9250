// What every accepted configuration holds: the code behind it relies on this without looking again.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/rope.h"
#include "windrow/gated_delta.h"

namespace windrow {

// The first thing that does not hold, or "".
class ConfigInvariants {
 public:
  static std::string broken(const ModelConfig& config) {
    ConfigInvariants check(config);
    check.sizes();
    check.layers();
    check.parts();
    check.rope("rope_full", config.rope_full,
               config.global_head_dim != 0 ? config.global_head_dim : config.head_dim);
    check.rope("rope_sliding", config.rope_sliding, config.head_dim);
    return check.broken_;
  }

 private:
  explicit ConfigInvariants(const ModelConfig& config)
      : c_(config), layers_(static_cast<std::size_t>(config.num_layers)) {}

  void expect(bool holds, const std::string& what) {
    if (!holds && broken_.empty()) broken_ = what;
  }

  std::ptrdiff_t count(LayerType type) const {
    return std::count(c_.layer_types.begin(), c_.layer_types.end(), type);
  }

  void sizes() {
    expect(c_.hidden_size > 0 && c_.intermediate_size > 0 && c_.vocab_size > 0, "sizes");
    expect(c_.num_layers > 0 && c_.max_position_embeddings > 0, "counts");
    expect(c_.num_kv_heads > 0 && c_.num_heads % c_.num_kv_heads == 0, "heads");
    expect(c_.num_global_kv_heads >= 0, "global heads");
    if (c_.num_global_kv_heads > 0) expect(c_.num_heads % c_.num_global_kv_heads == 0, "global heads");
    expect(c_.head_dim > 0 && c_.head_dim % 2 == 0, "head_dim");
    expect(c_.global_head_dim >= 0 && c_.global_head_dim % 2 == 0, "global_head_dim");
    expect(c_.rms_norm_eps > 0 && c_.query_pre_attn_scalar > 0, "divisors");
    expect(c_.attn_logit_softcapping >= 0 && c_.final_logit_softcapping >= 0, "softcaps");
    for (const auto& ids : {c_.bos_token_ids, c_.eos_token_ids}) {
      for (const std::int32_t id : ids) expect(id >= 0 && id < c_.vocab_size, "token ids");
    }
  }

  void layers() {
    expect(c_.layer_types.size() == layers_, "layer_types");
    expect((count(LayerType::kSliding) > 0) == (c_.sliding_window > 0), "sliding_window");
    expect(c_.intermediate_sizes.empty() || c_.intermediate_sizes.size() == layers_, "intermediate_sizes");
    for (const int size : c_.intermediate_sizes) expect(size > 0, "intermediate_sizes");
    expect(c_.num_kv_shared_layers >= 0 && c_.num_kv_shared_layers < c_.num_layers, "num_kv_shared_layers");
    if (!broken_.empty()) return;
    const auto first = c_.layer_types.end() - c_.num_kv_shared_layers;
    for (auto layer = first; layer != c_.layer_types.end(); layer++) {
      expect(std::find(c_.layer_types.begin(), first, *layer) != first, "a donor of each shared layer");
    }
  }

  void parts() {
    const MoeConfig& moe = c_.moe;
    if (moe.experts > 0) {
      expect(moe.experts_per_token >= 1 && moe.experts_per_token <= moe.experts, "experts_per_token");
      expect(moe.intermediate_size > 0 && moe.shared_intermediate_size >= 0, "sizes of experts");
      expect(moe.layers.size() == layers_ && moe.swiglu_limit > 0, "layers of experts");
    }
    expect((count(LayerType::kLinear) > 0) == (c_.linear.key_heads > 0), "linear attention");
    if (c_.linear.key_heads > 0) {
      const GatedDeltaShape shape = {.key_heads = c_.linear.key_heads,
                                     .value_heads = c_.linear.value_heads,
                                     .key_dim = c_.linear.key_dim,
                                     .value_dim = c_.linear.value_dim};
      expect(shape.check().ok() && c_.linear.conv_taps >= 1, "the shape of linear attention");
    }
    if (c_.altup.inputs > 0) {
      expect(c_.altup.active >= 0 && c_.altup.active < c_.altup.inputs, "altup_active_idx");
      expect(c_.altup.sparsity.size() == layers_ && c_.altup.laurel_rank > 0, "altup");
      for (const double s : c_.altup.sparsity) expect(s >= 0 && s < 1, "sparsity");
    }
    expect((c_.hidden_size_per_layer_input > 0) == (c_.vocab_size_per_layer_input > 0), "per-layer inputs");
  }

  void rope(const std::string& name, const RopeConfig& rope, int head_dim) {
    if (!broken_.empty()) return;
    expect(rope.theta >= 1 && rope.factor >= 1, name);
    const int dim = rotary_dim(head_dim, rope);
    expect(dim >= 2 && dim <= head_dim && dim % 2 == 0, name + ": rotary_dim");
    const auto pairs = static_cast<std::size_t>(dim / 2);
    if (rope.type == RopeType::kLongRope) {
      expect(rope.short_factor.size() == pairs && rope.long_factor.size() == pairs, name + ": factors");
    }
    if (!broken_.empty()) return;
    const RopeFrequencies frequencies(head_dim, rope, c_.max_position_embeddings);
    expect(frequencies.size() == pairs, name + ": pairs");
    for (const float f : frequencies.frequencies())
      expect(std::isfinite(f) && f >= 0, name + ": frequencies");
    const float attention = frequencies.attention_factor();
    expect(std::isfinite(attention) && attention > 0, name + ": attention factor");
  }

  const ModelConfig& c_;
  const std::size_t layers_;
  std::string broken_;
};

}  // namespace windrow
