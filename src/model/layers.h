// The elementwise layers of a transformer on one token's vector, f32, SIMD by run-time dispatch.
//
// Each call handles one vector in an order that depends on its length and the instruction set only,
// so a token's result never depends on its batch mates. Sizes are arbitrary; no alignment is needed.
#pragma once

#include <cstddef>

namespace windrow {

// y[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]. y may be x.
// (Gemma's norm multiplies by 1 + w: the 1 is added when the weights are read.)
void rms_norm(const float* x, const float* weight, std::size_t n, float eps, float* y);

// x += rms_norm(y): the residual connection of a "sandwich" block.
void add_rms_norm(const float* y, const float* weight, std::size_t n, float eps, float* x);

// For each of `heads` packed vectors [heads, head_dim]: rms_norm with `weight` [head_dim] (skipped when
// null), then the rotation of the pairs (i, i + rotary_dim / 2), i < rotary_dim / 2, by the angles of
// cosine/sine [rotary_dim / 2]; what lies behind rotary_dim does not turn. REQUIRES an even rotary_dim <=
// head_dim.
void norm_rope(float* x, std::size_t heads, std::size_t head_dim, std::size_t rotary_dim, const float* weight,
               float eps, const float* cosine, const float* sine);

// Of `heads` packed vectors [heads, head_dim], one that holds a NaN or an infinity becomes NaN throughout.
// Keys and values go through this before they are stored: affine codecs pass over a NaN among numbers
// (as MLX does), and a broken model would write fluent text.
void spread_nan(float* x, std::size_t heads, std::size_t head_dim);

// y[i] = gelu_tanh(gate[i]) * up[i],  gelu_tanh(x) = x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
// y may be gate or up.
void gelu_tanh_mul(const float* gate, const float* up, std::size_t n, float* y);

// x[i] = cap * tanh(x[i] / cap). REQUIRES cap > 0.
void softcap(float* x, std::size_t n, float cap);

// y[i] = exp((x[i] - shift) * scale), 0 below exp's range: softmax weights. REQUIRES results <= e^88.
void exp_scaled(const float* x, std::size_t n, float shift, float scale, float* y);

}  // namespace windrow
