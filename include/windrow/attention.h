// Attention over a KvRead:  out[t, h] = sum_p softmax_p(s[t, h, p]) * V[p, h'],
//   s[t, h, p] = softcap(scale * q[t, h] . K[p, h']),   h' = h / (q_heads / kv_heads)  (GQA),
//   softcap(x) = c * tanh(x / c) when c > 0,
// over the positions p = max(0, pos(t) - W + 1) .. pos(t) of the token's own row. With sinks,
// exp(sink[h]) joins the denominator and nothing else (gpt-oss).
// K and V are the codec's values, scale * code + bias, unrounded.
//
// Row determinism: the output of a token depends on its row's stored bytes and its q only, bit
// for bit, on one instruction set: not on the other tokens of the step, on pages, or on threads.
//
// Thread safety: const calls may run concurrently; a ThreadPool serves one call at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "windrow/export.h"
#include "windrow/plan.h"
#include "windrow/status.h"
#include "windrow/store.h"
#include "windrow/threads.h"

namespace windrow {

struct AttentionParams {
  int q_heads = 1;                // a multiple of kv_heads
  float scale = 1.0f;             // explicit: models differ (1/sqrt(head_dim), query_pre_attn_scalar)
  float softcap = 0.0f;           // 0: none
  std::span<const float> sinks = {};  // [q_heads], or empty; -inf: that head has none
};

// The scalar oracle of all kernels: any codec, sums in f64. Slow.
// q: [tokens, q_heads, head_dim]; out: [tokens, q_heads, value_dim].
WINDROW_API Status attend_reference(const KvRead& read, std::span<const float> q, const AttentionParams& params,
                                    std::span<float> out);

// The kernels for a plan's codecs and head dims on this machine, chosen once (C2): what can't be
// served is refused here, by name, never replaced silently.
class WINDROW_API AttentionKernels {
 public:
  static Result<AttentionKernels> select(const StatePlan& plan);

  // As attend_reference, in f32. `pool` may be null: the caller's thread does all.
  // kInvalidArgument for wrong sizes or a read of another plan's shape.
  Status attend(const KvRead& read, std::span<const float> q, const AttentionParams& params,
                std::span<float> out, ThreadPool* pool) const;

  // The instruction set in use: "AVX2", "AVX3", ...
  const std::string& target() const noexcept;

 private:
  struct Impl;
  explicit AttentionKernels(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace windrow
