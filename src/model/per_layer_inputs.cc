#include "model/per_layer_inputs.h"

#include <cmath>

#include "model/gates.h"
#include "model/layers.h"

namespace windrow {

Status PerLayerInputs::read(WeightReader& weights, const ModelConfig& config) {
  hidden_ = static_cast<std::size_t>(config.hidden_size);
  layers_ = static_cast<std::size_t>(config.num_layers);
  width_ = static_cast<std::size_t>(config.hidden_size_per_layer_input);
  eps_ = static_cast<float>(config.rms_norm_eps);
  vocab_ = static_cast<std::size_t>(config.vocab_size_per_layer_input);
  Status s = put(weights.row_table("embed_tokens_per_layer.weight", vocab_, token_floats()), embedding_);
  if (s.ok())
    s = read_linear(weights, "per_layer_model_projection", token_floats(), hidden_, false, projection_);
  if (s.ok()) s = put(weights.vector("per_layer_projection_norm.weight", width_, 0.0f), norm_);
  return s;
}

void PerLayerInputs::compute(const Pass& pass, const float* x, float* inputs, LapClock& clock) const {
  const std::size_t tokens = pass.ids.size(), n = token_floats();
  linear(projection_, x, tokens, inputs, pass.pool);
  clock.lap(&ForwardProfile::products);
  // rms_norm(x c, eps) = rms_norm(x, eps / c^2): the projection's 1 / sqrt(hidden) goes into the eps.
  const float eps = eps_ * static_cast<float>(hidden_);
  const float embedding_scale = std::sqrt(static_cast<float>(width_)), half = std::sqrt(0.5f);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    float* of_token = inputs + t * n;
    thread_local std::vector<float> row;
    row.resize(n);
    const auto id = static_cast<std::size_t>(pass.ids[t]);
    embedding_.row(id < vocab_ ? id : 0, embedding_scale, row.data());
    for (std::size_t l = 0; l < layers_; l++) {
      float* input = of_token + l * width_;
      rms_norm(input, norm_.data(), width_, eps, input);
    }
    for (std::size_t i = 0; i < n; i++) of_token[i] = (of_token[i] + row[i]) * half;
  });
  clock.lap(&ForwardProfile::layers);
}

Status PerLayerGate::read(WeightReader& weights, const std::string& prefix, std::size_t hidden,
                          std::size_t width) {
  Status s = read_linear(weights, prefix + ".per_layer_input_gate", width, hidden, false, gate_);
  if (s.ok()) s = read_linear(weights, prefix + ".per_layer_projection", hidden, width, false, projection_);
  if (s.ok()) s = put(weights.vector(prefix + ".post_per_layer_input_norm.weight", hidden, 0.0f), norm_);
  return s;
}

std::size_t PerLayerGate::scratch_floats(std::size_t tokens) const {
  Carver scratch;
  scratch.cut(tokens, gate_.outputs());
  return scratch.used();
}

void PerLayerGate::run(const Pass& pass, const float* h, const float* inputs, std::size_t stride,
                       std::size_t tokens, Carver scratch, float* y, LapClock& clock) const {
  const std::size_t width = gate_.outputs();
  float* gate = scratch.cut(tokens, width);
  linear(gate_, h, tokens, gate, pass.pool);
  clock.lap(&ForwardProfile::products);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    float* g = gate + t * width;
    gate_mul(GateKind::kGeluTanh, g, inputs + t * stride, width, 0.0f, g);
  });
  clock.lap(&ForwardProfile::layers);
  linear(projection_, gate, tokens, y, pass.pool);
  clock.lap(&ForwardProfile::products);
}

}  // namespace windrow
