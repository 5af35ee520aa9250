// Per-layer inputs (Gemma 3n and 4): every token has, beside its embedding, a small vector for each layer,
// which the layer's hidden vector opens or shuts before it is added.
//
//   input[l] = (rms_norm(P x / sqrt(hidden))[l] + E[id][l] * sqrt(width)) / sqrt(2),   x the embedding
// (ids beyond the table, of media tokens, take row 0)
//   added in layer l:  rms_norm(W (gelu_tanh(G h) * input[l]))
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/family.h"
#include "model/linear.h"
#include "model/tokens.h"

namespace windrow {

class PerLayerInputs {
 public:
  Status read(WeightReader& weights, const ModelConfig& config);
  std::size_t width() const noexcept { return width_; }
  // Of all layers of one token.
  std::size_t token_floats() const noexcept { return layers_ * width_; }
  // inputs [tokens, layers, width] from the embeddings x [tokens, hidden].
  void compute(const Pass& pass, const float* x, float* inputs, LapClock& clock) const;

 private:
  std::size_t hidden_ = 0, layers_ = 0, width_ = 0, vocab_ = 0;
  float eps_ = 0;
  RowTable embedding_;
  Linear projection_;
  std::vector<float> norm_;
};

// One layer's part.
class PerLayerGate {
 public:
  // `prefix`: "layers.3".
  Status read(WeightReader& weights, const std::string& prefix, std::size_t hidden, std::size_t width);
  std::size_t scratch_floats(std::size_t tokens) const;
  // y [tokens, hidden] = the projection, whose norm() is still to be taken, from h [tokens, hidden] and the
  // tokens' inputs of this layer, `stride` floats apart.
  void run(const Pass& pass, const float* h, const float* inputs, std::size_t stride, std::size_t tokens,
           Carver scratch, float* y, LapClock& clock) const;
  const std::vector<float>& norm() const noexcept { return norm_; }

 private:
  Linear gate_, projection_;
  std::vector<float> norm_;
};

}  // namespace windrow
