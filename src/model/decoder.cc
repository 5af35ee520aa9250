#include "model/decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/gated_delta_block.h"
#include "model/layers.h"
#include "model/mlp.h"
#include "model/per_layer_inputs.h"
#include "model/ropes.h"
#include "model/vocabulary.h"

namespace windrow {
namespace {

struct Layer {
  std::vector<float> before_mixer, after_mixer, before_feed_forward, after_feed_forward;  // empty: none
  std::unique_ptr<Mixer> mixer;
  std::unique_ptr<FeedForward> feed_forward;
  std::optional<PerLayerGate> per_layer;
  float scalar = 1;
};

class Decoder final : public Family {
 public:
  Decoder(const ModelConfig& config, const DecoderSpec& spec)
      : config_(config),
        spec_(spec),
        hidden_(static_cast<std::size_t>(config.hidden_size)),
        eps_(static_cast<float>(config.rms_norm_eps)),
        ropes_(config) {}

  Status read(WeightReader& weights);
  std::size_t scratch_floats(std::size_t max_tokens) const override;
  Status forward(const Pass& pass) const override;

 private:
  struct Buffers {
    float *x, *h, *y, *mixed, *per_layer;  // [tokens, ...]
    Ropes::Buffers ropes;
  };
  Buffers carve(Carver& scratch, std::size_t tokens) const;
  Status read_layer(WeightReader& weights, std::size_t index);
  Result<std::unique_ptr<Mixer>> read_mixer(WeightReader& weights, std::size_t index) const;
  Result<std::unique_ptr<FeedForward>> read_feed_forward(WeightReader& weights, std::size_t index) const;
  void embed(const Pass& pass, const Buffers& b) const;
  void add(const float* y, const std::vector<float>& after, float scalar, const std::vector<float>& next,
           float* x, float* h) const;
  const float* add_all(const Pass& pass, const std::vector<float>& after, float scalar,
                       const std::vector<float>& next, std::size_t tokens, const Buffers& b,
                       LapClock& clock) const;
  const float* finish_layer(const Pass& pass, std::size_t index, std::size_t tokens, const Buffers& b,
                            Carver scratch, LapClock& clock) const;

  ModelConfig config_;
  DecoderSpec spec_;
  std::size_t hidden_;
  float eps_;
  Ropes ropes_;
  VocabularyLayers vocabulary_;
  PerLayerInputs per_layer_;
  std::vector<Layer> layers_;
  std::size_t mixed_width_ = 0;
};

Result<std::unique_ptr<Mixer>> Decoder::read_mixer(WeightReader& weights, std::size_t index) const {
  const LayerShape& shape = spec_.layers[index];
  const int layer = static_cast<int>(index);
  if (shape.recurrent) {
    return read_gated_delta(weights, fmt::format("layers.{}.linear_attn", index), layer, config_);
  }
  AttentionSpec attention = spec_.attention;
  attention.key_is_value = attention.key_is_value && shape.window == kFullWindow;
  return read_attention(weights, fmt::format("layers.{}.self_attn", index), layer, shape, attention, config_);
}

Result<std::unique_ptr<FeedForward>> Decoder::read_feed_forward(WeightReader& weights,
                                                                std::size_t index) const {
  const std::string prefix = fmt::format("layers.{}.mlp", index);
  if (config_.moe.experts != 0 && config_.moe.layers[index]) {
    return read_moe(weights, prefix, hidden_, config_.moe, spec_.moe);
  }
  const int inner =
      config_.intermediate_sizes.empty() ? config_.intermediate_size : config_.intermediate_sizes[index];
  MlpSpec mlp;
  mlp.gate = spec_.gate;
  mlp.fused = spec_.fused_gate_up;
  mlp.bias = spec_.mlp_bias;
  return read_mlp(weights, prefix, hidden_, static_cast<std::size_t>(inner), mlp);
}

Status Decoder::read_layer(WeightReader& weights, std::size_t index) {
  Layer& layer = layers_[index];
  const std::string prefix = fmt::format("layers.{}", index);
  const struct {
    const char* name;
    std::vector<float>* to;
  } norms[] = {{spec_.norms.before_mixer, &layer.before_mixer},
               {spec_.norms.after_mixer, &layer.after_mixer},
               {spec_.norms.before_feed_forward, &layer.before_feed_forward},
               {spec_.norms.after_feed_forward, &layer.after_feed_forward}};
  for (const auto& n : norms) {
    if (n.name == nullptr) continue;
    const std::string name = fmt::format("{}.{}.weight", prefix, n.name);
    if (Status s = put(weights.vector(name, hidden_, spec_.norm_plus), *n.to); !s.ok()) return s;
  }
  if (Status s = put(read_mixer(weights, index), layer.mixer); !s.ok()) return s;
  if (Status s = put(read_feed_forward(weights, index), layer.feed_forward); !s.ok()) return s;
  mixed_width_ = std::max(mixed_width_, layer.mixer->output().weight.cols());
  if (spec_.per_layer_inputs) {
    layer.per_layer.emplace();
    if (Status s = layer.per_layer->read(weights, prefix, hidden_, per_layer_.width()); !s.ok()) return s;
  }
  if (!spec_.layer_scalar) return {};
  Result<std::vector<float>> scalar = weights.vector(prefix + ".layer_scalar", 1, 0.0f);
  if (scalar.ok()) layer.scalar = scalar->front();
  return scalar.status();
}

Status Decoder::read(WeightReader& weights) {
  if (spec_.per_layer_inputs) {
    if (Status s = per_layer_.read(weights, config_); !s.ok()) return s;
  }
  layers_.resize(spec_.layers.size());
  for (std::size_t i = 0; i < layers_.size(); i++) {
    if (Status s = read_layer(weights, i); !s.ok()) return s;
  }
  return vocabulary_.read(weights, config_, spec_.embedding_scale, spec_.norm_plus);
}

Decoder::Buffers Decoder::carve(Carver& scratch, std::size_t tokens) const {
  Buffers b{};
  b.x = scratch.cut(tokens, hidden_);
  b.h = scratch.cut(tokens, hidden_);
  b.y = scratch.cut(tokens, hidden_);
  b.mixed = scratch.cut(tokens, mixed_width_);
  if (spec_.per_layer_inputs) b.per_layer = scratch.cut(tokens, per_layer_.token_floats());
  b.ropes = ropes_.carve(scratch, tokens);
  return b;
}

std::size_t Decoder::scratch_floats(std::size_t max_tokens) const {
  std::size_t of_layer = 0;
  for (const Layer& l : layers_) {
    of_layer =
        std::max({of_layer, l.mixer->scratch_floats(max_tokens), l.feed_forward->scratch_floats(max_tokens),
                  l.per_layer ? l.per_layer->scratch_floats(max_tokens) : 0});
  }
  Carver scratch;
  carve(scratch, max_tokens);
  return scratch.used() + of_layer;
}

void Decoder::embed(const Pass& pass, const Buffers& b) const {
  const std::span<const std::int32_t> positions = pass.step.positions();
  const std::vector<float>& norm = layers_[0].before_mixer;
  each_token(pass.pool, pass.ids.size(), [&](std::size_t t) {
    float* x = b.x + t * hidden_;
    vocabulary_.embed(pass.ids[t], x);
    if (!norm.empty()) rms_norm(x, norm.data(), hidden_, eps_, b.h + t * hidden_);
    ropes_.fill(positions[t], t, b.ropes);
  });
}

// One token's x = (x + after(y)) * scalar; then h = next(x). Absent norms change nothing, and no h is made.
void Decoder::add(const float* y, const std::vector<float>& after, float scalar,
                  const std::vector<float>& next, float* x, float* h) const {
  if (after.empty()) {
    add_scaled(y, 1.0f, hidden_, x);
  } else {
    add_rms_norm(y, after.data(), hidden_, eps_, x);
  }
  if (scalar != 1) {
    for (std::size_t i = 0; i < hidden_; i++) x[i] *= scalar;
  }
  if (!next.empty()) rms_norm(x, next.data(), hidden_, eps_, h);
}

// add() of all tokens from b.y. The result is where the next part reads: b.h, or b.x where it has no norm.
const float* Decoder::add_all(const Pass& pass, const std::vector<float>& after, float scalar,
                              const std::vector<float>& next, std::size_t tokens, const Buffers& b,
                              LapClock& clock) const {
  each_token(pass.pool, tokens, [&](std::size_t t) {
    const std::size_t at = t * hidden_;
    add(b.y + at, after, scalar, next, b.x + at, b.h + at);
  });
  clock.lap(&ForwardProfile::layers);
  return next.empty() ? b.x : b.h;
}

// All of a layer that follows the mixer. The result is what the next layer's mixer, or the head, reads.
const float* Decoder::finish_layer(const Pass& pass, std::size_t index, std::size_t tokens, const Buffers& b,
                                   Carver scratch, LapClock& clock) const {
  static const std::vector<float> kNoNorm;
  const Layer& layer = layers_[index];
  const std::vector<float>& next =
      index + 1 < layers_.size() ? layers_[index + 1].before_mixer : vocabulary_.final_norm();
  linear(layer.mixer->output(), b.mixed, tokens, b.y, pass.pool);
  clock.lap(&ForwardProfile::products);
  const float* h = add_all(pass, layer.after_mixer, 1.0f, layer.before_feed_forward, tokens, b, clock);
  layer.feed_forward->run(pass, h, tokens, scratch, b.y, clock);
  if (!layer.per_layer) return add_all(pass, layer.after_feed_forward, layer.scalar, next, tokens, b, clock);

  add_all(pass, layer.after_feed_forward, 1.0f, kNoNorm, tokens, b, clock);
  const float* inputs = b.per_layer + index * per_layer_.width();
  layer.per_layer->run(pass, b.x, inputs, per_layer_.token_floats(), tokens, scratch, b.y, clock);
  return add_all(pass, layer.per_layer->norm(), layer.scalar, next, tokens, b, clock);
}

Status Decoder::forward(const Pass& pass) const {
  LapClock clock(pass.profile);
  Carver scratch(pass.scratch.data());
  const Buffers b = carve(scratch, pass.max_tokens);
  const RopeAngles angles = ropes_.angles(b.ropes);
  embed(pass, b);
  clock.lap(&ForwardProfile::layers);
  if (spec_.per_layer_inputs) per_layer_.compute(pass, b.x, b.per_layer, clock);

  std::size_t tokens = pass.ids.size();
  const float* h = layers_[0].before_mixer.empty() ? b.x : b.h;
  for (std::size_t i = 0; i < layers_.size(); i++) {
    const Mixer& mixer = *layers_[i].mixer;
    if (Status s = mixer.mix(pass, h, angles, scratch, b.mixed, clock); !s.ok()) return s;
    if (i + 1 == layers_.size()) {  // what follows serves the logits only
      keep_rows(b.x, hidden_, pass.wanted);
      keep_rows(b.mixed, mixer.output().weight.cols(), pass.wanted);
      if (spec_.per_layer_inputs) keep_rows(b.per_layer, per_layer_.token_floats(), pass.wanted);
      tokens = pass.wanted.size();
    }
    h = finish_layer(pass, i, tokens, b, scratch, clock);
  }
  vocabulary_.logits(pass, h, tokens, clock);
  return {};
}

}  // namespace

std::vector<LayerShape> attention_shapes(const ModelConfig& config) {
  std::vector<LayerShape> layers;
  for (const LayerType type : config.layer_types) {
    LayerShape shape;
    shape.window = type == LayerType::kSliding ? config.sliding_window : kFullWindow;
    shape.kv_heads = config.num_kv_heads;
    shape.head_dim = config.head_dim;
    layers.push_back(shape);
  }
  return layers;
}

void share_last_layers(const ModelConfig& config, std::vector<LayerShape>& layers) {
  const int first = config.num_layers - config.num_kv_shared_layers;
  for (int i = first; i < config.num_layers; i++) {
    for (int donor = first - 1; donor >= 0 && layers[static_cast<std::size_t>(i)].donor < 0; donor--) {
      const auto type = [&](int layer) { return config.layer_types[static_cast<std::size_t>(layer)]; };
      if (type(donor) == type(i)) layers[static_cast<std::size_t>(i)].donor = donor;
    }
  }
}

Result<std::unique_ptr<Family>> load_decoder(const ModelConfig& config, const DecoderSpec& spec,
                                             WeightReader& weights) {
  auto decoder = std::make_unique<Decoder>(config, spec);
  if (Status s = decoder->read(weights); !s.ok()) return s;
  return std::unique_ptr<Family>(std::move(decoder));
}

}  // namespace windrow
