#include "model/mlp.h"

#include <algorithm>
#include <cmath>

namespace windrow {
namespace {

class GatedMlp final : public FeedForward {
 public:
  GatedMlp(std::size_t hidden, std::size_t inner, const MlpSpec& spec)
      : hidden_(hidden), inner_(inner), spec_(spec) {}

  Status read(WeightReader& weights, const std::string& prefix);
  std::size_t scratch_floats(std::size_t tokens) const override {
    Carver scratch;
    scratch.cut(tokens, inner_);
    scratch.cut(tokens, inner_);
    return scratch.used();
  }
  void run(const Pass& pass, const float* h, std::size_t tokens, Carver scratch, float* y,
           LapClock& clock) const override;

 private:
  void sparsify(float* gate) const;

  std::size_t hidden_, inner_;
  MlpSpec spec_;
  Linear gate_, up_, down_;
};

Status GatedMlp::read(WeightReader& weights, const std::string& prefix) {
  if (spec_.fused) {
    const std::string name = prefix + ".gate_up_proj.weight";
    const RowRange gate{0, inner_}, up{inner_, inner_};
    if (Status s = put(weights.rows(name, 2 * inner_, hidden_, {&gate, 1}), gate_.weight); !s.ok()) return s;
    if (Status s = put(weights.rows(name, 2 * inner_, hidden_, {&up, 1}), up_.weight); !s.ok()) return s;
  } else {
    if (Status s = read_linear(weights, prefix + ".gate_proj", inner_, hidden_, spec_.bias, gate_); !s.ok())
      return s;
    if (Status s = read_linear(weights, prefix + ".up_proj", inner_, hidden_, spec_.bias, up_); !s.ok())
      return s;
  }
  return read_linear(weights, prefix + ".down_proj", hidden_, inner_, spec_.bias, down_);
}

void GatedMlp::sparsify(float* gate) const {
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < inner_; i++) sum += static_cast<double>(gate[i]);
  const double mean = sum / static_cast<double>(inner_);
  for (std::size_t i = 0; i < inner_; i++) {
    const double d = static_cast<double>(gate[i]) - mean;
    squares += d * d;
  }
  const double deviation = std::sqrt(squares / static_cast<double>(inner_));
  const float cutoff = static_cast<float>(mean + static_cast<double>(spec_.sparsity_z) * deviation);
  for (std::size_t i = 0; i < inner_; i++) {
    const float above = gate[i] - cutoff;
    gate[i] = above < 0 ? 0.0f : above;  // a NaN stays
  }
}

void GatedMlp::run(const Pass& pass, const float* h, std::size_t tokens, Carver scratch, float* y,
                   LapClock& clock) const {
  float* gate = scratch.cut(tokens, inner_);
  float* up = scratch.cut(tokens, inner_);
  const LinearOutput gate_up[] = {{&gate_, gate}, {&up_, up}};
  linear(gate_up, h, tokens, pass.pool);
  clock.lap(&ForwardProfile::products);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    if (spec_.sparse) sparsify(gate + t * inner_);
    gate_mul(spec_.gate, gate + t * inner_, up + t * inner_, inner_, 0.0f, gate + t * inner_);
  });
  clock.lap(&ForwardProfile::layers);
  linear(down_, gate, tokens, y, pass.pool);
  clock.lap(&ForwardProfile::products);
}

}  // namespace

Result<std::unique_ptr<FeedForward>> read_mlp(WeightReader& weights, const std::string& prefix,
                                              std::size_t hidden, std::size_t inner, const MlpSpec& spec) {
  auto mlp = std::make_unique<GatedMlp>(hidden, inner, spec);
  if (Status s = mlp->read(weights, prefix); !s.ok()) return s;
  return std::unique_ptr<FeedForward>(std::move(mlp));
}

}  // namespace windrow
