// The gated delta rule: the recurrent state of linear-attention layers (Qwen3-Next, Kimi Linear).
//
// Every value head has a matrix S [value_dim, key_dim]. A token with key k, query q [key_dim], value
// v [value_dim], decay g in (0, 1] (one number, or one a column) and write strength beta does
//
//   S     <- S diag(g)                  forget
//   delta  = beta (v - S k)             what the state does not say yet about k
//   S     <- S + delta k^T              write
//   y      = S q                        read
//
// (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024, https://arxiv.org/abs/2412.06464; columns
// of their own decay: Kimi Linear, 2025, https://arxiv.org/abs/2510.26692.)
//
// The arithmetic is fixed, in f32 without fused multiply-adds, and is the same on every instruction
// set, so a state may be replayed on another machine. Per row i of S:
//
//   kv      = sum16_j S[i][j] * (g[j] * k[j])       the sum of S diag(g) k, one rounding moved
//   d       = (v[i] - kv) * beta
//   S[i][j] = S[i][j] * g[j] + d * k[j]
//   y[i]    = sum16_j S[i][j] * q[j]
//
// where sum16 adds terms j = r mod 16 in order of j into accumulator r, from zero, and folds:
// a[r] += a[r + 8] (r < 8), a[r] += a[r + 4] (r < 4), then (a[0] + a[2]) + (a[1] + a[3]).
// Tokens go one after the other, so how they are cut into calls changes no bit, and rows of S do
// not know of each other, so neither does the split of heads over threads.
//
// Thread safety: pure functions; calls may run at once on the same inputs into different states,
// or on different heads of one state.
#pragma once

#include <cstddef>

#include "windrow/export.h"
#include "windrow/status.h"

namespace windrow {

enum class DecayGate {
  kScalar,  // g [value_heads]: one decay a head
  kVector,  // g [value_heads, key_dim]: one a column of S
};

struct WINDROW_API GatedDeltaShape {
  int key_heads = 1;    // of k and q; divides value_heads
  int value_heads = 1;  // of v, y, beta, g and the state; head h reads key head h / (value_heads / key_heads)
  int key_dim = 128;    // a multiple of 16
  int value_dim = 128;
  DecayGate gate = DecayGate::kScalar;

  // kInvalidArgument naming the numbers. Every function below wants a shape that passes.
  Status check() const;

  // Floats of the state [value_heads, value_dim, key_dim], and of one token of each input.
  std::size_t state_floats() const noexcept;
  std::size_t key_floats() const noexcept;    // k and q: [key_heads, key_dim]
  std::size_t value_floats() const noexcept;  // v and y: [value_heads, value_dim]
  std::size_t decay_floats() const noexcept;  // g
  std::size_t beta_floats() const noexcept;   // beta: [value_heads]

  friend bool operator==(const GatedDeltaShape&, const GatedDeltaShape&) = default;
};

// Tokens of one row in order, each array [tokens, ...] and packed. bf16 and f16 activations widen to
// f32 exactly; q and k come as the layer normalized and scaled them.
struct GatedDeltaTokens {
  std::size_t count = 0;
  const float* q = nullptr;  // may be null where no output is asked for
  const float* k = nullptr;
  const float* v = nullptr;
  const float* g = nullptr;
  const float* beta = nullptr;
};

struct HeadRange {
  int begin = 0;
  int end = 0;
};

// Advances the heads of a state by the tokens: reads it at `from`, leaves it at `to` (the same place,
// or one that does not overlap; then `from` keeps its bytes, and no token is a copy) and writes the
// outputs y [count, value_heads, value_dim] of those heads. y may be null: the state gets the same bits.
// `from` and `to` are whole states, [value_heads, value_dim, key_dim], at any address of a float. y overlaps
// nothing else.
WINDROW_API void gated_delta_advance(const GatedDeltaShape& shape, const GatedDeltaTokens& tokens,
                                     HeadRange heads, const float* from, float* to, float* y);
WINDROW_API void gated_delta_advance(const GatedDeltaShape& shape, const GatedDeltaTokens& tokens,
                                     const float* from, float* to, float* y);

// The definition above in plain loops: what the SIMD code equals, bit for bit.
WINDROW_API void gated_delta_advance_scalar(const GatedDeltaShape& shape, const GatedDeltaTokens& tokens,
                                            HeadRange heads, const float* from, float* to, float* y);

// The scalar decay of a head from the layer's projection `a` and its parameters:
// exp(-exp(A_log) softplus(a + dt_bias)), softplus(x) = log(1 + exp(x)).
WINDROW_API float gated_delta_decay(float a, float a_log, float dt_bias);

// The write strength of a head from the layer's projection: the logistic function of b.
WINDROW_API float gated_delta_beta(float b);

}  // namespace windrow
