// Random tokens, states and their slices for the tests of recurrent layers.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "windrow/causal_conv.h"
#include "windrow/gated_delta.h"

namespace windrow::testing {

inline std::vector<float> random_floats(std::size_t n, std::mt19937& random, float low = -1, float high = 1) {
  std::uniform_real_distribution<float> of(low, high);
  std::vector<float> out(n);
  for (float& x : out) x = of(random);
  return out;
}

inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> out;
  for (const float f : values) out.push_back(std::bit_cast<std::uint32_t>(f));
  return out;
}

// Owned inputs of `count` tokens, of the size that layers give: unit keys would be the rule, here |k|^2 is
// about key_dim / 3 x 4 / key_dim, decays lie in (0.5, 1), strengths in (0, 1).
struct TokenInputs {
  TokenInputs(const GatedDeltaShape& shape_of, std::size_t tokens, std::mt19937& random)
      : shape(shape_of), count(tokens) {
    const float unit = 2.0f / std::sqrt(static_cast<float>(shape.key_dim));
    q = random_floats(count * shape.key_floats(), random, -unit, unit);
    k = random_floats(count * shape.key_floats(), random, -unit, unit);
    v = random_floats(count * shape.value_floats(), random);
    g = random_floats(count * shape.decay_floats(), random, 0.5f, 1.0f);
    beta = random_floats(count * shape.beta_floats(), random, 0.0f, 1.0f);
  }

  GatedDeltaTokens slice(std::size_t begin, std::size_t n) const {
    return {n,
            q.data() + begin * shape.key_floats(),
            k.data() + begin * shape.key_floats(),
            v.data() + begin * shape.value_floats(),
            g.data() + begin * shape.decay_floats(),
            beta.data() + begin * shape.beta_floats()};
  }
  GatedDeltaTokens all() const { return slice(0, count); }

  GatedDeltaShape shape;
  std::size_t count;
  std::vector<float> q, k, v, g, beta;
};

}  // namespace windrow::testing
