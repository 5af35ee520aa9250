// Gemma 3n (text): AltUp's streams, Laurel, per-layer inputs, sparse gates, norms of values, last layers that
// attend over earlier ones' keys and values. https://ai.google.dev/gemma/docs/gemma-3n
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/altup.h"
#include "model/families.h"
#include "model/layers.h"
#include "model/mlp.h"
#include "model/per_layer_inputs.h"
#include "model/ropes.h"
#include "model/vocabulary.h"

namespace windrow {
namespace {

// Below this mean square a stream is not brought to the first one's size: it would be noise.
constexpr float kLeastMeanSquare = 1e-5f;

struct Layer {
  std::vector<float> input_norm, post_attention_norm, pre_feedforward_norm, post_feedforward_norm;
  std::unique_ptr<Mixer> attention;
  std::unique_ptr<FeedForward> mlp;
  Altup altup;
  Laurel laurel;
  PerLayerGate per_layer;
};

// The x with erf(x / sqrt 2) = 2 p - 1, by bisection: erfc is monotonic and 8 is far beyond any p in f64.
double normal_quantile(double p) {
  double low = -8, high = 8;
  for (int i = 0; i < 200; i++) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return low;
}

// Brings y to the root mean square of `like`.
void match_magnitude(const float* like, std::size_t n, float* y) {
  double wanted = 0, present = 0;
  for (std::size_t i = 0; i < n; i++) {
    wanted += static_cast<double>(like[i]) * static_cast<double>(like[i]);
    present += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  const double count = static_cast<double>(n);
  const double least = static_cast<double>(kLeastMeanSquare);
  const double mean = present / count < least ? least : present / count;  // a NaN stays
  const float factor = static_cast<float>(std::sqrt(wanted / count / mean));
  for (std::size_t i = 0; i < n; i++) y[i] *= factor;
}

class Gemma3n final : public Family {
 public:
  Gemma3n(const ModelConfig& config, const DecoderSpec& spec)
      : config_(config),
        spec_(spec),
        hidden_(static_cast<std::size_t>(config.hidden_size)),
        inputs_(static_cast<std::size_t>(config.altup.inputs)),
        active_(static_cast<std::size_t>(config.altup.active)),
        mixed_width_(static_cast<std::size_t>(config.num_heads * config.head_dim)),
        eps_(static_cast<float>(config.rms_norm_eps)),
        ropes_(config) {}

  Status read(WeightReader& weights);
  std::size_t scratch_floats(std::size_t max_tokens) const override;
  Status forward(const Pass& pass) const override;

 private:
  struct Buffers {
    Streams x, predicted;
    float *h, *y, *laurel, *activated, *mixed, *per_layer;
    Ropes::Buffers ropes;
  };
  Buffers carve(Carver& scratch, std::size_t tokens) const;
  Status read_layer(WeightReader& weights, std::size_t index);
  void embed(const Pass& pass, const Buffers& b, LapClock& clock) const;
  void finish_layer(const Pass& pass, std::size_t index, std::size_t tokens, const Buffers& b, Carver scratch,
                    LapClock& clock) const;
  void add_per_layer(const Pass& pass, std::size_t index, std::size_t tokens, const Buffers& b,
                     Carver scratch, LapClock& clock) const;
  void unite(const Pass& pass, std::size_t tokens, const Buffers& b, LapClock& clock) const;

  ModelConfig config_;
  DecoderSpec spec_;
  std::size_t hidden_, inputs_, active_, mixed_width_;
  float eps_;
  Ropes ropes_;
  VocabularyLayers vocabulary_;
  PerLayerInputs per_layer_;
  std::vector<Layer> layers_;
  std::vector<Linear> projections_, unembed_projections_;  // [inputs - 1]
};

Status Gemma3n::read_layer(WeightReader& weights, std::size_t index) {
  Layer& l = layers_[index];
  const std::string prefix = fmt::format("layers.{}", index);
  const struct {
    const char* name;
    std::vector<float>* to;
  } norms[] = {{".input_layernorm.weight", &l.input_norm},
               {".post_attention_layernorm.weight", &l.post_attention_norm},
               {".pre_feedforward_layernorm.weight", &l.pre_feedforward_norm},
               {".post_feedforward_layernorm.weight", &l.post_feedforward_norm}};
  for (const auto& n : norms) {
    if (Status s = put(weights.vector(prefix + n.name, hidden_, 0.0f), *n.to); !s.ok()) return s;
  }
  MlpSpec mlp;
  mlp.gate = GateKind::kGeluTanh;
  const double sparsity = config_.altup.sparsity.empty() ? 0 : config_.altup.sparsity[index];
  mlp.sparse = sparsity > 0;
  mlp.sparsity_z = mlp.sparse ? static_cast<float>(normal_quantile(sparsity)) : 0.0f;
  const int inner =
      config_.intermediate_sizes.empty() ? config_.intermediate_size : config_.intermediate_sizes[index];
  Status s = put(read_attention(weights, prefix + ".self_attn", static_cast<int>(index), spec_.layers[index],
                                spec_.attention, config_),
                 l.attention);
  if (s.ok())
    s = put(read_mlp(weights, prefix + ".mlp", hidden_, static_cast<std::size_t>(inner), mlp), l.mlp);
  if (s.ok()) s = l.altup.read(weights, prefix + ".altup", config_);
  if (s.ok()) s = l.laurel.read(weights, prefix + ".laurel", config_);
  if (s.ok()) s = l.per_layer.read(weights, prefix, hidden_, per_layer_.width());
  return s;
}

Status Gemma3n::read(WeightReader& weights) {
  if (Status s = per_layer_.read(weights, config_); !s.ok()) return s;
  projections_.resize(inputs_ - 1);
  unembed_projections_.resize(inputs_ - 1);
  for (std::size_t i = 0; i + 1 < inputs_; i++) {
    const std::string in = fmt::format("altup_projections.{}", i);
    const std::string out = fmt::format("altup_unembed_projections.{}", i);
    Status s = read_linear(weights, in, hidden_, hidden_, false, projections_[i]);
    if (s.ok()) s = read_linear(weights, out, hidden_, hidden_, false, unembed_projections_[i]);
    if (!s.ok()) return s;
  }
  layers_.resize(spec_.layers.size());
  for (std::size_t i = 0; i < layers_.size(); i++) {
    if (Status s = read_layer(weights, i); !s.ok()) return s;
  }
  return vocabulary_.read(weights, config_, spec_.embedding_scale, 0.0f);
}

Gemma3n::Buffers Gemma3n::carve(Carver& scratch, std::size_t tokens) const {
  Buffers b{};
  b.x.stride = b.predicted.stride = tokens * hidden_;
  b.x.first = scratch.cut(tokens * inputs_, hidden_);
  b.predicted.first = scratch.cut(tokens * inputs_, hidden_);
  for (float** to : {&b.h, &b.y, &b.laurel, &b.activated}) *to = scratch.cut(tokens, hidden_);
  b.mixed = scratch.cut(tokens, mixed_width_);
  b.per_layer = scratch.cut(tokens, per_layer_.token_floats());
  b.ropes = ropes_.carve(scratch, tokens);
  return b;
}

std::size_t Gemma3n::scratch_floats(std::size_t max_tokens) const {
  std::size_t of_layer = 0;
  for (const Layer& l : layers_) {
    of_layer = std::max({of_layer, l.attention->scratch_floats(max_tokens), l.mlp->scratch_floats(max_tokens),
                         l.altup.scratch_floats(max_tokens), l.laurel.scratch_floats(max_tokens),
                         l.per_layer.scratch_floats(max_tokens)});
  }
  Carver scratch;
  carve(scratch, max_tokens);
  return scratch.used() + of_layer;
}

// Stream 0 is the embedding, the others are projections of it of equal size.
void Gemma3n::embed(const Pass& pass, const Buffers& b, LapClock& clock) const {
  const std::span<const std::int32_t> positions = pass.step.positions();
  const std::size_t tokens = pass.ids.size();
  float* x = b.x.at(0);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    vocabulary_.embed(pass.ids[t], x + t * hidden_);
    ropes_.fill(positions[t], t, b.ropes);
  });
  clock.lap(&ForwardProfile::layers);
  per_layer_.compute(pass, x, b.per_layer, clock);
  for (std::size_t i = 1; i < inputs_; i++) {
    linear(projections_[i - 1], x, tokens, b.x.at(i), pass.pool);
    clock.lap(&ForwardProfile::products);
    each_token(pass.pool, tokens,
               [&](std::size_t t) { match_magnitude(x + t * hidden_, hidden_, b.x.at(i) + t * hidden_); });
    clock.lap(&ForwardProfile::layers);
  }
}

// streams[1 ...] += the layer's part of the per-layer inputs, as the active stream lets it through.
void Gemma3n::add_per_layer(const Pass& pass, std::size_t index, std::size_t tokens, const Buffers& b,
                            Carver scratch, LapClock& clock) const {
  const Layer& l = layers_[index];
  const std::vector<float>& scale = l.altup.output_scale();
  each_token(pass.pool, tokens, [&](std::size_t t) {
    const float* from = b.x.at(active_) + t * hidden_;
    float* to = b.h + t * hidden_;
    for (std::size_t i = 0; i < hidden_; i++) to[i] = scale.empty() ? from[i] : from[i] * scale[i];
  });
  clock.lap(&ForwardProfile::layers);
  l.per_layer.run(pass, b.h, b.per_layer + index * per_layer_.width(), per_layer_.token_floats(), tokens,
                  scratch, b.y, clock);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    for (std::size_t i = 1; i < inputs_; i++) {
      add_rms_norm(b.y + t * hidden_, l.per_layer.norm().data(), hidden_, eps_, b.x.at(i) + t * hidden_);
    }
  });
  clock.lap(&ForwardProfile::layers);
}

// All of a layer that follows attention.
void Gemma3n::finish_layer(const Pass& pass, std::size_t index, std::size_t tokens, const Buffers& b,
                           Carver scratch, LapClock& clock) const {
  const Layer& l = layers_[index];
  const float half = std::sqrt(0.5f);
  linear(l.attention->output(), b.mixed, tokens, b.y, pass.pool);
  clock.lap(&ForwardProfile::products);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    const std::size_t at = t * hidden_;
    float* a = b.activated + at;
    std::copy_n(b.predicted.at(active_) + at, hidden_, a);
    add_rms_norm(b.y + at, l.post_attention_norm.data(), hidden_, eps_, a);
    for (std::size_t i = 0; i < hidden_; i++) a[i] = (a[i] + b.laurel[at + i]) * half;
    rms_norm(a, l.pre_feedforward_norm.data(), hidden_, eps_, b.h + at);
  });
  clock.lap(&ForwardProfile::layers);
  l.mlp->run(pass, b.h, tokens, scratch, b.y, clock);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    add_rms_norm(b.y + t * hidden_, l.post_feedforward_norm.data(), hidden_, eps_, b.activated + t * hidden_);
  });
  clock.lap(&ForwardProfile::layers);
  l.altup.correct(pass, b.predicted, b.activated, tokens, scratch, b.x, clock);
  add_per_layer(pass, index, tokens, b, scratch, clock);
}

// b.h = the final norm of the mean of all streams, each but the first unembedded to the first one's size.
void Gemma3n::unite(const Pass& pass, std::size_t tokens, const Buffers& b, LapClock& clock) const {
  for (std::size_t i = 1; i < inputs_; i++) {
    linear(unembed_projections_[i - 1], b.x.at(i), tokens, b.predicted.at(i), pass.pool);
  }
  clock.lap(&ForwardProfile::products);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    const std::size_t at = t * hidden_;
    float* sum = b.y + at;
    std::copy_n(b.x.at(0) + at, hidden_, sum);
    for (std::size_t i = 1; i < inputs_; i++) {
      match_magnitude(b.x.at(0) + at, hidden_, b.predicted.at(i) + at);
      add_scaled(b.predicted.at(i) + at, 1.0f, hidden_, sum);
    }
    for (std::size_t i = 0; i < hidden_; i++) sum[i] /= static_cast<float>(inputs_);
    rms_norm(sum, vocabulary_.final_norm().data(), hidden_, eps_, b.h + at);
  });
  clock.lap(&ForwardProfile::layers);
}

Status Gemma3n::forward(const Pass& pass) const {
  LapClock clock(pass.profile);
  Carver scratch(pass.scratch.data());
  const Buffers b = carve(scratch, pass.max_tokens);
  const RopeAngles angles = ropes_.angles(b.ropes);
  embed(pass, b, clock);
  std::size_t tokens = pass.ids.size();
  for (std::size_t i = 0; i < layers_.size(); i++) {
    const Layer& l = layers_[i];
    l.altup.predict(pass, b.x, tokens, scratch, b.predicted, clock);
    each_token(pass.pool, tokens, [&](std::size_t t) {
      rms_norm(b.predicted.at(active_) + t * hidden_, l.input_norm.data(), hidden_, eps_, b.h + t * hidden_);
    });
    clock.lap(&ForwardProfile::layers);
    l.laurel.run(pass, b.h, tokens, scratch, b.laurel, clock);
    if (Status s = l.attention->mix(pass, b.h, angles, scratch, b.mixed, clock); !s.ok()) return s;
    if (i + 1 == layers_.size()) {  // what follows serves the logits only
      for (std::size_t j = 0; j < inputs_; j++) keep_rows(b.predicted.at(j), hidden_, pass.wanted);
      keep_rows(b.laurel, hidden_, pass.wanted);
      keep_rows(b.mixed, mixed_width_, pass.wanted);
      keep_rows(b.per_layer, per_layer_.token_floats(), pass.wanted);
      tokens = pass.wanted.size();
    }
    finish_layer(pass, i, tokens, b, scratch, clock);
  }
  unite(pass, tokens, b, clock);
  vocabulary_.logits(pass, b.h, tokens, clock);
  return {};
}

}  // namespace

Result<DecoderSpec> describe_gemma3n(const ModelConfig& config) {
  Result<DecoderSpec> spec = describe_gemma3(config);
  if (!spec.ok()) return spec;
  spec->norm_plus = spec->attention.norm_plus = 0;
  spec->attention.scale = 1;
  spec->attention.softcap = 0;
  spec->attention.value_norm = true;
  spec->attention.bias = spec->attention.output_bias = config.attention_bias;
  share_last_layers(config, spec->layers);
  return spec;
}

Result<std::unique_ptr<Family>> load_gemma3n(const ModelConfig& config, const DecoderSpec& spec,
                                             WeightReader& weights) {
  auto model = std::make_unique<Gemma3n>(config, spec);
  if (Status s = model->read(weights); !s.ok()) return s;
  return std::unique_ptr<Family>(std::move(model));
}

}  // namespace windrow
