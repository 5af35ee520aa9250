#include "model/gated_delta_block.h"

#include <cmath>

#include "model/gates.h"
#include "model/layers.h"

namespace windrow {
namespace {

// Added to the sum of squares when queries and keys are brought to length 1.
constexpr float kL2Eps = 1e-6f;

class GatedDeltaBlock final : public Mixer {
 public:
  GatedDeltaBlock(int layer, const ModelConfig& config)
      : layer_(layer),
        shape_(gated_delta_shape(config.linear)),
        hidden_(static_cast<std::size_t>(config.hidden_size)),
        key_heads_(static_cast<std::size_t>(config.linear.key_heads)),
        value_heads_(static_cast<std::size_t>(config.linear.value_heads)),
        key_dim_(static_cast<std::size_t>(config.linear.key_dim)),
        value_dim_(static_cast<std::size_t>(config.linear.value_dim)),
        eps_(static_cast<float>(config.rms_norm_eps)) {
    // x / sqrt(sum x^2 + eps) is the RMS norm with eps / n and weights 1 / sqrt(n); the read is scaled by
    // 1 / sqrt(key_dim) once more.
    const float n = static_cast<float>(key_dim_);
    k_norm_.assign(key_dim_, 1.0f / std::sqrt(n));
    q_norm_.assign(key_dim_, 1.0f / n);
  }

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
    float *qkv, *z, *b, *a, *q, *k, *v, *g, *beta;
  };
  Buffers carve(Carver& scratch, std::size_t tokens) const;
  Status read_projections(WeightReader& weights, const std::string& prefix);
  void prepare(std::size_t t, const Buffers& b) const;

  std::size_t keys() const { return key_heads_ * key_dim_; }
  std::size_t values() const { return value_heads_ * value_dim_; }
  std::size_t channels() const { return 2 * keys() + values(); }

  int layer_;
  RecurrentShape shape_;
  std::size_t hidden_, key_heads_, value_heads_, key_dim_, value_dim_;
  float eps_;
  Linear qkv_, z_, b_, a_, output_;
  std::vector<float> conv_, a_log_, dt_bias_, norm_, q_norm_, k_norm_;
};

// Rows of "in_proj_qkvz" go by key head: its q, k, values and gates z of its value heads; those of
// "in_proj_ba" its b and a. The convolution's channels go by kind: all q, all k, all v.
Status GatedDeltaBlock::read_projections(WeightReader& weights, const std::string& prefix) {
  const std::size_t group = value_heads_ / key_heads_, v = group * value_dim_;
  const std::size_t block = 2 * key_dim_ + 2 * v;
  const auto gather = [&](const char* name, std::size_t per_head, std::initializer_list<RowRange> parts,
                          Linear& to) {
    std::vector<RowRange> rows;
    for (const RowRange& part : parts) {
      for (std::size_t h = 0; h < key_heads_; h++) rows.push_back({h * per_head + part.first, part.count});
    }
    return put(weights.rows(prefix + name, key_heads_ * per_head, hidden_, rows), to.weight);
  };
  const char *qkvz = ".in_proj_qkvz.weight", *ba = ".in_proj_ba.weight";
  Status s = gather(qkvz, block, {{0, key_dim_}, {key_dim_, key_dim_}, {2 * key_dim_, v}}, qkv_);
  if (s.ok()) s = gather(qkvz, block, {{2 * key_dim_ + v, v}}, z_);
  if (s.ok()) s = gather(ba, 2 * group, {{0, group}}, b_);
  if (s.ok()) s = gather(ba, 2 * group, {{group, group}}, a_);
  return s;
}

Status GatedDeltaBlock::read(WeightReader& weights, const std::string& prefix) {
  if (Status s = read_projections(weights, prefix); !s.ok()) return s;
  const std::size_t taps = static_cast<std::size_t>(shape_.conv.taps);
  const std::string conv = prefix + ".conv1d.weight";
  Result<std::vector<float>> by_channel = weights.floats(conv, {channels(), 1, taps}, 0.0f);
  if (!by_channel.ok())
    by_channel = weights.floats(conv, {channels(), taps, 1}, 0.0f);  // mlx-lm's order of dims
  if (!by_channel.ok()) return by_channel.status();
  conv_ = conv_weights_by_tap(shape_.conv, by_channel->data());
  if (Status s = put(weights.vector(prefix + ".A_log", value_heads_, 0.0f), a_log_); !s.ok()) return s;
  if (Status s = put(weights.vector(prefix + ".dt_bias", value_heads_, 0.0f), dt_bias_); !s.ok()) return s;
  if (Status s = put(weights.vector(prefix + ".norm.weight", value_dim_, 0.0f), norm_); !s.ok()) return s;
  return read_linear(weights, prefix + ".out_proj", hidden_, values(), false, output_);
}

GatedDeltaBlock::Buffers GatedDeltaBlock::carve(Carver& scratch, std::size_t tokens) const {
  Buffers b{};
  b.qkv = scratch.cut(tokens, channels());
  b.z = scratch.cut(tokens, values());
  b.b = scratch.cut(tokens, value_heads_);
  b.a = scratch.cut(tokens, value_heads_);
  b.q = scratch.cut(tokens, keys());
  b.k = scratch.cut(tokens, keys());
  b.v = scratch.cut(tokens, values());
  b.g = scratch.cut(tokens, value_heads_);
  b.beta = scratch.cut(tokens, value_heads_);
  return b;
}

// One token's inputs of the gated delta rule from what the convolution left.
void GatedDeltaBlock::prepare(std::size_t t, const Buffers& b) const {
  const float* qkv = b.qkv + t * channels();
  const float eps = kL2Eps / static_cast<float>(key_dim_);
  for (std::size_t i = 0; i < keys(); i += key_dim_) {
    rms_norm(qkv + i, q_norm_.data(), key_dim_, eps, b.q + t * keys() + i);
    rms_norm(qkv + keys() + i, k_norm_.data(), key_dim_, eps, b.k + t * keys() + i);
  }
  std::copy_n(qkv + 2 * keys(), values(), b.v + t * values());
  for (std::size_t h = t * value_heads_; h < (t + 1) * value_heads_; h++) {
    const std::size_t head = h - t * value_heads_;
    b.g[h] = gated_delta_decay(b.a[h], a_log_[head], dt_bias_[head]);
    b.beta[h] = gated_delta_beta(b.b[h]);
  }
}

Status GatedDeltaBlock::mix(const Pass& pass, const float* h, const RopeAngles&, Carver scratch, float* mixed,
                            LapClock& clock) const {
  const std::size_t tokens = pass.ids.size();
  const Buffers b = carve(scratch, pass.max_tokens);
  const LinearOutput outputs[] = {{&qkv_, b.qkv}, {&z_, b.z}, {&b_, b.b}, {&a_, b.a}};
  linear(outputs, h, tokens, pass.pool);
  clock.lap(&ForwardProfile::products);

  const std::span<float> qkv(b.qkv, tokens * channels());
  if (Status s = pass.step.convolve(layer_, qkv, conv_, Activation::kSilu, qkv); !s.ok()) return s;
  clock.lap(&ForwardProfile::state);
  each_token(pass.pool, tokens, [&](std::size_t t) { prepare(t, b); });
  clock.lap(&ForwardProfile::layers);

  const RecurrentInputs inputs{.q = {b.q, tokens * keys()},
                               .k = {b.k, tokens * keys()},
                               .v = {b.v, tokens * values()},
                               .g = {b.g, tokens * value_heads_},
                               .beta = {b.beta, tokens * value_heads_}};
  if (Status s = pass.step.advance(layer_, inputs, {mixed, tokens * values()}); !s.ok()) return s;
  clock.lap(&ForwardProfile::state);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    float* y = mixed + t * values();
    for (std::size_t i = 0; i < values(); i += value_dim_)
      rms_norm(y + i, norm_.data(), value_dim_, eps_, y + i);
    gate_mul(GateKind::kSilu, b.z + t * values(), y, values(), 0.0f, y);
  });
  clock.lap(&ForwardProfile::layers);
  return {};
}

}  // namespace

RecurrentShape gated_delta_shape(const LinearAttentionConfig& config) {
  RecurrentShape shape;
  shape.delta = {config.key_heads, config.value_heads, config.key_dim, config.value_dim, DecayGate::kScalar};
  shape.conv = {2 * config.key_heads * config.key_dim + config.value_heads * config.value_dim,
                config.conv_taps};
  return shape;
}

Result<std::unique_ptr<Mixer>> read_gated_delta(WeightReader& weights, const std::string& prefix, int layer,
                                                const ModelConfig& config) {
  auto block = std::make_unique<GatedDeltaBlock>(layer, config);
  if (Status s = block->read(weights, prefix); !s.ok()) return s;
  return std::unique_ptr<Mixer>(std::move(block));
}

}  // namespace windrow
