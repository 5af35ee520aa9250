#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace windrow {
namespace {

using Floats = std::vector<float>;

float to_float(double x) { return static_cast<float>(x); }

// theta^(2 i / dim) for `pairs` pairs: f32 base and exponent, the power rounded once.
Floats powers(double theta, int dim, int pairs) {
  Floats out;
  for (int i = 0; i < pairs; i++) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    out.push_back(to_float(std::pow(static_cast<double>(to_float(theta)), static_cast<double>(exponent))));
  }
  return out;
}

Floats inverse(Floats x) {
  for (float& f : x) f = 1.0f / f;
  return x;
}

Floats divided(Floats x, double factor) {
  for (float& f : x) f /= to_float(factor);
  return x;
}

Floats dynamic(const RopeConfig& c, int dim, int max_positions) {
  const double original = c.original_max_positions;
  const double length = std::max(original, static_cast<double>(max_positions));
  const double stretch = c.factor * length / original - (c.factor - 1);
  const double exponent = static_cast<double>(dim) / (dim - 2);
  return inverse(powers(c.theta * std::pow(stretch, exponent), dim, dim / 2));
}

Floats llama3(const RopeConfig& c, int dim) {
  const float low = to_float(c.low_freq_factor), factor = to_float(c.factor);
  const float original = static_cast<float>(c.original_max_positions);
  const float longest = to_float(c.original_max_positions / c.low_freq_factor);
  const float shortest = to_float(c.original_max_positions / c.high_freq_factor);
  const float range = to_float(c.high_freq_factor - c.low_freq_factor);
  Floats out = inverse(powers(c.theta, dim, dim / 2));
  for (float& f : out) {
    const float wavelength = 1.0f / f * to_float(2 * std::numbers::pi);
    if (wavelength > longest) {
      f /= factor;
    } else if (wavelength >= shortest) {
      const float share = (1.0f / wavelength * original - low) / range;
      f = (1.0f - share) * f / factor + share * f;
    }
  }
  return out;
}

// The (fractional) pair that turns `turns` times within the original positions.
double yarn_pair(const RopeConfig& c, int dim, double turns) {
  return dim * std::log(c.original_max_positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(c.theta));
}

Floats yarn(const RopeConfig& c, int dim) {
  double low = yarn_pair(c, dim, c.beta_fast), high = yarn_pair(c, dim, c.beta_slow);
  if (c.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;  // a ramp of no length would divide by zero
  const Floats power = powers(c.theta, dim, dim / 2);
  Floats out;
  for (std::size_t i = 0; i < power.size(); i++) {
    const float ramp = (static_cast<float>(i) - to_float(low)) / to_float(high - low);
    const float plain = 1.0f - std::clamp(ramp, 0.0f, 1.0f);  // the share of the unscaled frequency
    const float stretched = 1.0f / (to_float(c.factor) * power[i]);
    out.push_back(stretched * (1.0f - plain) + 1.0f / power[i] * plain);
  }
  return out;
}

Floats longrope(const RopeConfig& c, int dim, int max_positions) {
  const std::vector<double>& factors =
      max_positions > c.original_max_positions ? c.long_factor : c.short_factor;
  Floats out = powers(c.theta, dim, dim / 2);
  for (std::size_t i = 0; i < out.size(); i++) out[i] *= to_float(factors[i]);
  return inverse(std::move(out));
}

Floats proportional(const RopeConfig& c, int head_dim) {
  const int turning = static_cast<int>(std::floor(c.partial_rotary_factor * head_dim / 2));
  Floats out = divided(inverse(powers(c.theta, head_dim, turning)), c.factor);
  out.resize(static_cast<std::size_t>(head_dim / 2), 0.0f);
  return out;
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double attention_factor_of(const RopeConfig& c) {
  if (c.type != RopeType::kYarn && c.type != RopeType::kLongRope) return 1;
  if (c.attention_factor != 0) return c.attention_factor;
  if (c.type == RopeType::kLongRope) {
    return c.factor <= 1 ? 1 : std::sqrt(1 + std::log(c.factor) / std::log(c.original_max_positions));
  }
  if (c.mscale == 0 || c.mscale_all_dim == 0) return yarn_scale(c.factor, 1);
  return yarn_scale(c.factor, c.mscale) / yarn_scale(c.factor, c.mscale_all_dim);
}

}  // namespace

int rotary_dim(int head_dim, const RopeConfig& config) {
  if (config.type == RopeType::kProportional) return head_dim;
  return static_cast<int>(head_dim * config.partial_rotary_factor);
}

RopeFrequencies::RopeFrequencies(int head_dim, const RopeConfig& config, int max_positions)
    : attention_factor_(to_float(attention_factor_of(config))) {
  const int dim = windrow::rotary_dim(head_dim, config);
  switch (config.type) {
    case RopeType::kDefault: frequencies_ = inverse(powers(config.theta, dim, dim / 2)); break;
    case RopeType::kLinear:
      frequencies_ = divided(inverse(powers(config.theta, dim, dim / 2)), config.factor);
      break;
    case RopeType::kDynamic: frequencies_ = dynamic(config, dim, max_positions); break;
    case RopeType::kLlama3: frequencies_ = llama3(config, dim); break;
    case RopeType::kYarn: frequencies_ = yarn(config, dim); break;
    case RopeType::kLongRope: frequencies_ = longrope(config, dim, max_positions); break;
    case RopeType::kProportional: frequencies_ = proportional(config, head_dim); break;
  }
}

void RopeFrequencies::fill(std::int32_t position, float* cosine, float* sine) const {
  for (std::size_t i = 0; i < frequencies_.size(); i++) {
    const double angle = static_cast<double>(static_cast<float>(position) * frequencies_[i]);
    cosine[i] = static_cast<float>(std::cos(angle)) * attention_factor_;
    sine[i] = static_cast<float>(std::sin(angle)) * attention_factor_;
  }
}

}  // namespace windrow
