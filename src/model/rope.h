// Rotary position embedding: the angles of one RoPE configuration.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/config.h"

namespace windrow {

// Frequencies of the pairs (i, i + head_dim / 2):  theta^(-2 i / head_dim) / factor.
// They and the angles are f32, as in the frameworks the models were trained in: at position 4096
// an angle's f32 rounding moves it by up to 2.4e-4, so exact angles would be other angles. Cosine
// and sine are those of the f32 angle, correctly rounded but for libm's last bit.
class RopeFrequencies {
 public:
  RopeFrequencies() = default;
  RopeFrequencies(int head_dim, const RopeConfig& config) {
    for (int i = 0; i < head_dim / 2; i++) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
      const float power = static_cast<float>(std::pow(config.theta, static_cast<double>(exponent)));
      frequencies_.push_back(1.0f / power / static_cast<float>(config.factor));
    }
  }
  std::size_t size() const noexcept { return frequencies_.size(); }

  // cosine[size()], sine[size()] of one absolute position.
  void fill(std::int32_t position, float* cosine, float* sine) const {
    for (std::size_t i = 0; i < frequencies_.size(); i++) {
      const double angle = static_cast<double>(static_cast<float>(position) * frequencies_[i]);
      cosine[i] = static_cast<float>(std::cos(angle));
      sine[i] = static_cast<float>(std::sin(angle));
    }
  }

 private:
  std::vector<float> frequencies_;
};

}  // namespace windrow
