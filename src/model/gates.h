// The activations of gated layers, elementwise over n floats, SIMD by run-time dispatch. Each element's
// result depends on its inputs and the instruction set only. A NaN comes through.
#pragma once

#include <cstddef>

namespace windrow {

// How an MLP joins its two projections.
enum class GateKind {
  kSilu,      // silu(gate) * up,  silu(x) = x / (1 + e^-x)
  kGeluTanh,  // gelu_tanh_mul (layers.h)
  kClamped,   // gpt-oss: g = min(gate, limit), u = clamp(up, -limit, limit): g / (1 + e^(-1.702 g)) * (u + 1)
};

// y[i] of the kind; y may be gate or up. `limit` is kClamped's.
void gate_mul(GateKind kind, const float* gate, const float* up, std::size_t n, float limit, float* y);

// x[i] /= 1 + e^-gate[i].
void sigmoid_mul(const float* gate, std::size_t n, float* x);

// y[i] += factor * x[i], a product and a sum, each rounded.
void add_scaled(const float* x, float factor, std::size_t n, float* y);

}  // namespace windrow
