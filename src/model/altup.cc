#include "model/altup.h"

#include <algorithm>
#include <cmath>

#include "model/gates.h"
#include "model/layers.h"

namespace windrow {

Status Altup::read(WeightReader& weights, const std::string& prefix, const ModelConfig& config) {
  hidden_ = static_cast<std::size_t>(config.hidden_size);
  inputs_ = static_cast<std::size_t>(config.altup.inputs);
  active_ = static_cast<std::size_t>(config.altup.active);
  eps_ = static_cast<float>(config.rms_norm_eps);
  Status s = put(weights.vector(prefix + ".router_norm.weight", hidden_, 0.0f), router_norm_);
  if (s.ok()) s = read_linear(weights, prefix + ".modality_router", inputs_, hidden_, false, router_);
  if (s.ok())
    s = read_linear(weights, prefix + ".prediction_coefs", inputs_ * inputs_, inputs_, false, prediction_);
  if (s.ok()) s = read_linear(weights, prefix + ".correction_coefs", inputs_, inputs_, false, correction_);
  const std::string scale = prefix + ".correct_output_scale";
  if (!config.altup.correct_scale) {
    weights.ignore(scale);
    return s;
  }
  return s.ok() ? put(weights.vector(scale, hidden_, 0.0f), output_scale_) : s;
}

Altup::Buffers Altup::carve(Carver& scratch, std::size_t tokens) const {
  Buffers b{};
  b.normed = scratch.cut(tokens, hidden_);
  b.modalities = scratch.cut(tokens, inputs_);
  b.coefficients = scratch.cut(tokens, inputs_ * inputs_);
  return b;
}

std::size_t Altup::scratch_floats(std::size_t tokens) const {
  Carver scratch;
  carve(scratch, tokens);
  return scratch.used();
}

void Altup::coefficients(const Pass& pass, const Linear& to, const float* x, std::size_t tokens,
                         const Buffers& b, LapClock& clock) const {
  each_token(pass.pool, tokens, [&](std::size_t t) {
    rms_norm(x + t * hidden_, router_norm_.data(), hidden_, eps_, b.normed + t * hidden_);
  });
  clock.lap(&ForwardProfile::layers);
  linear(router_, b.normed, tokens, b.modalities, pass.pool);
  for (std::size_t i = 0; i < tokens * inputs_; i++) {
    b.modalities[i] = std::tanh(b.modalities[i] / static_cast<float>(hidden_));
  }
  linear(to, b.modalities, tokens, b.coefficients, pass.pool);
  clock.lap(&ForwardProfile::products);
}

void Altup::predict(const Pass& pass, const Streams& x, std::size_t tokens, Carver scratch,
                    const Streams& predicted, LapClock& clock) const {
  const Buffers b = carve(scratch, tokens);
  coefficients(pass, prediction_, x.at(active_), tokens, b, clock);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    const float* c = b.coefficients + t * inputs_ * inputs_;
    for (std::size_t j = 0; j < inputs_; j++) {
      float* to = predicted.at(j) + t * hidden_;
      std::copy_n(x.at(j) + t * hidden_, hidden_, to);
      for (std::size_t i = 0; i < inputs_; i++) {
        add_scaled(x.at(i) + t * hidden_, c[j * inputs_ + i], hidden_, to);
      }
    }
  });
  clock.lap(&ForwardProfile::layers);
}

void Altup::correct(const Pass& pass, const Streams& predicted, const float* activated, std::size_t tokens,
                    Carver scratch, const Streams& x, LapClock& clock) const {
  const Buffers b = carve(scratch, tokens);
  coefficients(pass, correction_, activated, tokens, b, clock);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    float* innovation = b.normed + t * hidden_;
    std::copy_n(activated + t * hidden_, hidden_, innovation);
    add_scaled(predicted.at(active_) + t * hidden_, -1.0f, hidden_, innovation);
    for (std::size_t i = 0; i < inputs_; i++) {
      float* to = x.at(i) + t * hidden_;
      std::copy_n(predicted.at(i) + t * hidden_, hidden_, to);
      add_scaled(innovation, b.coefficients[t * inputs_ + i] + 1.0f, hidden_, to);
    }
  });
  clock.lap(&ForwardProfile::layers);
}

Status Laurel::read(WeightReader& weights, const std::string& prefix, const ModelConfig& config) {
  hidden_ = static_cast<std::size_t>(config.hidden_size);
  eps_ = static_cast<float>(config.rms_norm_eps);
  const auto rank = static_cast<std::size_t>(config.altup.laurel_rank);
  Status s = read_linear(weights, prefix + ".linear_left", rank, hidden_, false, left_);
  if (s.ok()) s = read_linear(weights, prefix + ".linear_right", hidden_, rank, false, right_);
  if (s.ok()) s = put(weights.vector(prefix + ".post_laurel_norm.weight", hidden_, 0.0f), norm_);
  return s;
}

std::size_t Laurel::scratch_floats(std::size_t tokens) const {
  Carver scratch;
  scratch.cut(tokens, left_.outputs());
  scratch.cut(tokens, hidden_);
  return scratch.used();
}

void Laurel::run(const Pass& pass, const float* h, std::size_t tokens, Carver scratch, float* y,
                 LapClock& clock) const {
  float* low = scratch.cut(tokens, left_.outputs());
  float* wide = scratch.cut(tokens, hidden_);
  linear(left_, h, tokens, low, pass.pool);
  linear(right_, low, tokens, wide, pass.pool);
  clock.lap(&ForwardProfile::products);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    std::copy_n(h + t * hidden_, hidden_, y + t * hidden_);
    add_rms_norm(wide + t * hidden_, norm_.data(), hidden_, eps_, y + t * hidden_);
  });
  clock.lap(&ForwardProfile::layers);
}

}  // namespace windrow
