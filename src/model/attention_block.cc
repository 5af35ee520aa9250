#include "model/attention_block.h"

#include <algorithm>
#include <cstring>

#include "model/gates.h"
#include "model/layers.h"

namespace windrow {
namespace {

using QkNorm = AttentionSpec::QkNorm;

class AttentionBlock final : public Mixer {
 public:
  AttentionBlock(int layer, const LayerShape& shape, const AttentionSpec& spec, const ModelConfig& config)
      : layer_(layer),
        owner_(shape.donor < 0),
        rope_(shape.window == kFullWindow ? kRopeFull : kRopeSliding),
        hidden_(static_cast<std::size_t>(config.hidden_size)),
        heads_(static_cast<std::size_t>(config.num_heads)),
        kv_heads_(static_cast<std::size_t>(shape.kv_heads)),
        head_dim_(static_cast<std::size_t>(shape.head_dim)),
        eps_(static_cast<float>(config.rms_norm_eps)),
        spec_(spec) {}

  Status read(WeightReader& weights, const std::string& prefix);
  const Linear& output() const override { return output_; }
  std::size_t scratch_floats(std::size_t tokens) const override {
    Carver scratch;
    carve(scratch, tokens);
    return scratch.used();
  }
  Status mix(const Pass& pass, const float* h, const RopeAngles& angles, Carver scratch, float* mixed,
             LapClock& clock) const override;

 private:
  struct Buffers {
    float *q, *k, *v, *gate;
  };
  Buffers carve(Carver& scratch, std::size_t tokens) const {
    Buffers b{};
    b.q = scratch.cut(tokens, q_width());
    if (owner_) b.k = scratch.cut(tokens, kv_width());
    if (owner_) b.v = scratch.cut(tokens, kv_width());
    if (spec_.output_gate) b.gate = scratch.cut(tokens, q_width());
    return b;
  }
  std::size_t q_width() const { return heads_ * head_dim_; }
  std::size_t kv_width() const { return kv_heads_ * head_dim_; }
  Status read_projections(WeightReader& weights, const std::string& prefix);
  Status read_gated_queries(WeightReader& weights, const std::string& name);
  void project(const Pass& pass, const float* h, const Buffers& b) const;
  void turn(float* x, std::size_t heads, const std::vector<float>& norm, const float* cosine,
            const float* sine, std::size_t pairs) const;

  int layer_;
  bool owner_;  // of keys and values; else it attends over its donor's
  std::size_t rope_, hidden_, heads_, kv_heads_, head_dim_;
  float eps_;
  AttentionSpec spec_;
  Linear q_, k_, v_, gate_, output_;
  std::vector<float> q_norm_, k_norm_, ones_, sinks_;
};

// q_proj's rows go by head: head_dim of the query, head_dim of its gate.
Status AttentionBlock::read_gated_queries(WeightReader& weights, const std::string& name) {
  for (std::size_t part = 0; part < 2; part++) {
    std::vector<RowRange> rows;
    for (std::size_t h = 0; h < heads_; h++) rows.push_back({(2 * h + part) * head_dim_, head_dim_});
    Linear& to = part == 0 ? q_ : gate_;
    if (Status s = put(weights.rows(name + ".weight", 2 * q_width(), hidden_, rows), to.weight); !s.ok())
      return s;
  }
  return {};
}

Status AttentionBlock::read_projections(WeightReader& weights, const std::string& prefix) {
  const std::size_t q = q_width(), kv = kv_width();
  if (spec_.fused) {
    const std::string name = prefix + ".qkv_proj.weight";
    const struct {
      Linear* to;
      RowRange rows;
    } parts[] = {{&q_, {0, q}}, {&k_, {q, kv}}, {&v_, {q + kv, kv}}};
    for (const auto& p : parts) {
      if (Status s = put(weights.rows(name, q + 2 * kv, hidden_, {&p.rows, 1}), p.to->weight); !s.ok())
        return s;
    }
    return {};
  }
  Status s = spec_.output_gate ? read_gated_queries(weights, prefix + ".q_proj")
                               : read_linear(weights, prefix + ".q_proj", q, hidden_, spec_.bias, q_);
  if (!s.ok()) return s;
  if (!owner_) {  // published checkpoints carry them all the same
    for (const char* part : {".k_proj.weight", ".v_proj.weight", ".k_norm.weight"})
      weights.ignore(prefix + part);
    return {};
  }
  if (s = read_linear(weights, prefix + ".k_proj", kv, hidden_, spec_.bias, k_); !s.ok()) return s;
  if (spec_.key_is_value) return {};
  return read_linear(weights, prefix + ".v_proj", kv, hidden_, spec_.bias, v_);
}

Status AttentionBlock::read(WeightReader& weights, const std::string& prefix) {
  if (Status s = read_projections(weights, prefix); !s.ok()) return s;
  if (Status s = read_linear(weights, prefix + ".o_proj", hidden_, q_width(), spec_.output_bias, output_);
      !s.ok()) {
    return s;
  }
  if (spec_.qk_norm != QkNorm::kNone) {
    const bool all = spec_.qk_norm == QkNorm::kAll;
    const auto norm = [&](const char* part, std::size_t heads, std::vector<float>& to) {
      return put(weights.vector(prefix + part, all ? heads * head_dim_ : head_dim_, spec_.norm_plus), to);
    };
    if (Status s = norm(".q_norm.weight", heads_, q_norm_); !s.ok()) return s;
    if (owner_) {
      if (Status s = norm(".k_norm.weight", kv_heads_, k_norm_); !s.ok()) return s;
    }
  }
  if (spec_.value_norm) ones_.assign(head_dim_, 1.0f);
  return spec_.sinks ? put(weights.vector(prefix + ".sinks", heads_, 0.0f), sinks_) : Status();
}

void AttentionBlock::project(const Pass& pass, const float* h, const Buffers& b) const {
  LinearOutput outputs[4];
  std::size_t count = 0;
  outputs[count++] = {&q_, b.q};
  if (owner_) outputs[count++] = {&k_, b.k};
  if (owner_ && !spec_.key_is_value) outputs[count++] = {&v_, b.v};
  if (spec_.output_gate) outputs[count++] = {&gate_, b.gate};
  linear({outputs, count}, h, pass.ids.size(), pass.pool);
}

// The norm and the rotation of one token's queries or keys.
void AttentionBlock::turn(float* x, std::size_t heads, const std::vector<float>& norm, const float* cosine,
                          const float* sine, std::size_t pairs) const {
  if (spec_.qk_norm == QkNorm::kAll) rms_norm(x, norm.data(), heads * head_dim_, eps_, x);
  const float* of_head = spec_.qk_norm == QkNorm::kHead ? norm.data() : nullptr;
  norm_rope(x, heads, head_dim_, 2 * pairs, of_head, eps_, cosine, sine);
}

Status AttentionBlock::mix(const Pass& pass, const float* h, const RopeAngles& angles, Carver scratch,
                           float* mixed, LapClock& clock) const {
  const std::size_t tokens = pass.ids.size(), q = q_width(), kv = kv_width(), pairs = angles.pairs[rope_];
  const Buffers b = carve(scratch, pass.max_tokens);
  project(pass, h, b);
  clock.lap(&ForwardProfile::products);

  each_token(pass.pool, tokens, [&](std::size_t t) {
    const float* cosine = angles.cosine[rope_] + t * pairs;
    const float* sine = angles.sine[rope_] + t * pairs;
    turn(b.q + t * q, heads_, q_norm_, cosine, sine, pairs);
    if (!owner_) return;
    float *k = b.k + t * kv, *v = b.v + t * kv;
    if (spec_.key_is_value) std::copy_n(k, kv, v);
    turn(k, kv_heads_, k_norm_, cosine, sine, pairs);
    if (spec_.value_norm) {
      for (std::size_t i = 0; i < kv; i += head_dim_) rms_norm(v + i, ones_.data(), head_dim_, eps_, v + i);
    }
    spread_nan(k, kv_heads_, head_dim_);
    spread_nan(v, kv_heads_, head_dim_);
  });
  clock.lap(&ForwardProfile::layers);

  if (owner_) {
    const std::span<const float> keys(b.k, tokens * kv), values(b.v, tokens * kv);
    if (Status s = pass.step.append(layer_, keys, values); !s.ok()) return s;
  }
  Result<KvRead> read = pass.step.read(layer_);
  if (!read.ok()) return read.status();
  clock.lap(&ForwardProfile::state);

  AttentionParams params;
  params.q_heads = static_cast<int>(heads_);
  params.scale = spec_.scale;
  params.softcap = spec_.softcap;
  params.sinks = sinks_;
  Status s = pass.kernels.attend(*read, {b.q, tokens * q}, params, {mixed, tokens * q}, &pass.pool);
  clock.lap(&ForwardProfile::attention);
  if (s.ok()) {
    const std::size_t stored = owner_ ? tokens * kv : 0;
    s = pass.observe({layer_, {b.q, tokens * q}, {b.k, stored}, {b.v, stored}, params, {mixed, tokens * q}});
  }
  if (!s.ok() || !spec_.output_gate) return s;
  each_token(pass.pool, tokens, [&](std::size_t t) { sigmoid_mul(b.gate + t * q, q, mixed + t * q); });
  clock.lap(&ForwardProfile::layers);
  return {};
}

}  // namespace

Result<std::unique_ptr<Mixer>> read_attention(WeightReader& weights, const std::string& prefix, int layer,
                                              const LayerShape& shape, const AttentionSpec& spec,
                                              const ModelConfig& config) {
  auto block = std::make_unique<AttentionBlock>(layer, shape, spec, config);
  if (Status s = block->read(weights, prefix); !s.ok()) return s;
  return std::unique_ptr<Mixer>(std::move(block));
}

}  // namespace windrow
