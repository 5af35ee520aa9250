// Shapes, gates and the scalar definition of the gated delta rule.
#include "windrow/gated_delta.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "base/checked.h"

namespace windrow {
namespace {

constexpr std::size_t kPartials = 16;  // accumulators of sum16, see the header

std::size_t size(int n) { return static_cast<std::size_t>(n); }

float fold(float (&a)[kPartials]) {
  for (std::size_t r = 0; r < 8; r++) a[r] += a[r + 8];
  for (std::size_t r = 0; r < 4; r++) a[r] += a[r + 4];
  return (a[0] + a[2]) + (a[1] + a[3]);
}

// One token on one row of S; `decay` of column j is g[j * stride].
float advance_row(const float* from, float* to, const float* k, const float* q, const float* g,
                  std::size_t stride, std::size_t dim, float v, float beta) {
  float partial[kPartials] = {};
  for (std::size_t j = 0; j < dim; j++) partial[j % kPartials] += from[j] * (g[j * stride] * k[j]);
  const float delta = (v - fold(partial)) * beta;
  for (std::size_t j = 0; j < dim; j++) to[j] = from[j] * g[j * stride] + delta * k[j];
  if (q == nullptr) return 0;
  std::fill_n(partial, kPartials, 0.0f);
  for (std::size_t j = 0; j < dim; j++) partial[j % kPartials] += to[j] * q[j];
  return fold(partial);
}

}  // namespace

Status GatedDeltaShape::check() const {
  const auto bad = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  };
  if (key_heads < 1 || value_heads < 1 || value_heads % key_heads != 0) {
    return bad(fmt::format("gated delta: {} value heads over {} key heads, expected a multiple", value_heads,
                           key_heads));
  }
  if (key_dim < 1 || size(key_dim) % kPartials != 0) {
    return bad(fmt::format("gated delta: key dim {}, expected a multiple of {}", key_dim, kPartials));
  }
  if (value_dim < 1) return bad(fmt::format("gated delta: value dim {}, expected 1 or more", value_dim));
  if (!checked_product({size(value_heads), size(value_dim), size(key_dim), sizeof(float)})) {
    return bad(fmt::format("gated delta: state [{}, {}, {}] exceeds the address space", value_heads,
                           value_dim, key_dim));
  }
  return {};
}

std::size_t GatedDeltaShape::state_floats() const noexcept { return value_floats() * size(key_dim); }
std::size_t GatedDeltaShape::key_floats() const noexcept { return size(key_heads) * size(key_dim); }
std::size_t GatedDeltaShape::value_floats() const noexcept { return size(value_heads) * size(value_dim); }
std::size_t GatedDeltaShape::beta_floats() const noexcept { return size(value_heads); }
std::size_t GatedDeltaShape::decay_floats() const noexcept {
  return size(value_heads) * (gate == DecayGate::kVector ? size(key_dim) : 1);
}

void gated_delta_advance_scalar(const GatedDeltaShape& shape, const GatedDeltaTokens& tokens, HeadRange heads,
                                const float* from, float* to, float* y) {
  assert(shape.check().ok() && 0 <= heads.begin && heads.end <= shape.value_heads);
  const std::size_t key_dim = size(shape.key_dim), value_dim = size(shape.value_dim);
  const bool vector = shape.gate == DecayGate::kVector;
  for (int head = heads.begin; head < heads.end; head++) {
    const std::size_t h = size(head), key = size(head / (shape.value_heads / shape.key_heads)) * key_dim;
    const std::size_t state = h * value_dim * key_dim;
    if (from != to) std::memcpy(to + state, from + state, value_dim * key_dim * sizeof(float));
    for (std::size_t t = 0; t < tokens.count; t++) {
      const float* k = tokens.k + t * shape.key_floats() + key;
      const float* q = y != nullptr ? tokens.q + t * shape.key_floats() + key : nullptr;
      const float* g = tokens.g + t * shape.decay_floats() + h * (vector ? key_dim : 1);
      const float beta = tokens.beta[t * shape.beta_floats() + h];
      for (std::size_t i = 0; i < value_dim; i++) {
        const std::size_t at = t * shape.value_floats() + h * value_dim + i;
        float* row = to + state + i * key_dim;
        const float out = advance_row(row, row, k, q, g, vector ? 1 : 0, key_dim, tokens.v[at], beta);
        if (y != nullptr) y[at] = out;
      }
    }
  }
}

void gated_delta_advance(const GatedDeltaShape& shape, const GatedDeltaTokens& tokens, const float* from,
                         float* to, float* y) {
  gated_delta_advance(shape, tokens, {0, shape.value_heads}, from, to, y);
}

float gated_delta_decay(float a, float a_log, float dt_bias) {
  const float x = a + dt_bias;
  const float softplus = std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
  return std::exp(-std::exp(a_log) * softplus);
}

float gated_delta_beta(float b) { return 1.0f / (1.0f + std::exp(-b)); }

}  // namespace windrow
