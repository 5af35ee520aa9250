// The short causal convolution in front of a recurrent layer, and the tail it leaves in the state.
//
// Each channel is filtered by itself with `taps` weights over its own last `taps` inputs (depthwise):
//
//   out[t][c] = sum_j w[c][j] * window[t + j][c],   window = tail ++ inputs
//
// The tail holds the last taps - 1 inputs of the row, oldest first, zeros before its first token; it is
// the convolution's whole state. The sum runs in order of j from its first product, in f32 without
// fused multiply-adds, so the result is the same on every instruction set and however the tokens are
// cut into calls.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "windrow/export.h"
#include "windrow/status.h"

namespace windrow {

struct WINDROW_API CausalConvShape {
  int channels = 0;
  int taps = 4;  // K >= 1; 1 has no tail

  // kInvalidArgument naming the numbers. Every function below wants a shape that passes.
  Status check() const;
  std::size_t tail_floats() const noexcept;   // [taps - 1, channels]
  std::size_t input_floats() const noexcept;  // of one token: [channels]

  friend bool operator==(const CausalConvShape&, const CausalConvShape&) = default;
};

enum class Activation { kNone, kSilu };

// The weights of a checkpoint, [channels, taps] (a middle dimension of 1 changes nothing), in the order
// causal_conv reads them: [taps, channels].
WINDROW_API std::vector<float> conv_weights_by_tap(const CausalConvShape& shape, const float* weights);

// Outputs [count, channels] for the inputs x [count, channels]; out may be x. The tail is only read.
// silu(s) = s / (1 + exp(-s)), within 4 units in the last place; -inf gives NaN, as the formula does.
WINDROW_API void causal_conv(const CausalConvShape& shape, const float* tail, const float* x,
                             std::size_t count, const float* weights_by_tap, Activation activation,
                             float* out);

// The definition in plain loops: what causal_conv equals, bit for bit.
WINDROW_API void causal_conv_scalar(const CausalConvShape& shape, const float* tail, const float* x,
                                    std::size_t count, const float* weights_by_tap, Activation activation,
                                    float* out);

// The tail after `count` more inputs: the last taps - 1 rows of from ++ x. `to` may be `from`.
WINDROW_API void advance_conv_tail(const CausalConvShape& shape, const float* from, const float* x,
                                   std::size_t count, float* to);

}  // namespace windrow
