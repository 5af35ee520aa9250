// What Gemma 3n has around a transformer layer: AltUp keeps n hidden vectors a token, of which one goes
// through the layer while the others are predicted and then corrected (Baykal et al., "Alternating Updates
// for Efficient Transformers", arXiv 2301.13310), and Laurel adds a low-rank path (arXiv 2411.07501).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/family.h"
#include "model/linear.h"
#include "model/tokens.h"

namespace windrow {

// n arrays [tokens, hidden].
struct Streams {
  float* first = nullptr;
  std::size_t stride = 0;  // floats from one array to the next
  float* at(std::size_t i) const { return first + i * stride; }
};

class Altup {
 public:
  // `prefix`: "layers.3.altup".
  Status read(WeightReader& weights, const std::string& prefix, const ModelConfig& config);
  std::size_t scratch_floats(std::size_t tokens) const;

  // predicted[j] = x[j] + sum_i c[j][i] x[i], c from the active stream.
  void predict(const Pass& pass, const Streams& x, std::size_t tokens, Carver scratch,
               const Streams& predicted, LapClock& clock) const;
  // x[i] = predicted[i] + (1 + c[i]) (activated - predicted[active]), c from `activated`.
  void correct(const Pass& pass, const Streams& predicted, const float* activated, std::size_t tokens,
               Carver scratch, const Streams& x, LapClock& clock) const;
  // Scales what per-layer inputs see of the active stream; empty: not at all.
  const std::vector<float>& output_scale() const noexcept { return output_scale_; }

 private:
  struct Buffers {
    float *normed, *modalities, *coefficients;
  };
  Buffers carve(Carver& scratch, std::size_t tokens) const;
  // coefficients [tokens, to.outputs()] = to(tanh(router(norm(x)) / hidden)).
  void coefficients(const Pass& pass, const Linear& to, const float* x, std::size_t tokens, const Buffers& b,
                    LapClock& clock) const;

  std::size_t hidden_ = 0, inputs_ = 0, active_ = 0;
  float eps_ = 0;
  std::vector<float> router_norm_, output_scale_;
  Linear router_, prediction_, correction_;
};

class Laurel {
 public:
  // `prefix`: "layers.3.laurel".
  Status read(WeightReader& weights, const std::string& prefix, const ModelConfig& config);
  std::size_t scratch_floats(std::size_t tokens) const;
  // y = h + norm(right(left(h))), all [tokens, hidden].
  void run(const Pass& pass, const float* h, std::size_t tokens, Carver scratch, float* y,
           LapClock& clock) const;

 private:
  std::size_t hidden_ = 0;
  float eps_ = 0;
  Linear left_, right_;
  std::vector<float> norm_;
};

}  // namespace windrow
