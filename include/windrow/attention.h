// Attention over a KvRead:  out[t, h] = sum_p softmax_p(s[t, h, p]) * V[p, h'],
//   s[t, h, p] = softcap(scale * q[t, h] . K[p, h']),   h' = h / (q_heads / kv_heads)  (GQA),
//   softcap(x) = c * tanh(x / c) when c > 0,
// over the positions p of the token's own row that the read says it sees (kv_read.h). With sink logits,
// exp(sink[h]) joins the denominator and nothing else (gpt-oss).
// K and V are the codec's values, scale * code + bias, unrounded.
//
// Row determinism: the output of a token depends on the bytes stored of what it sees, on where that begins
// and ends and on its q only, bit for bit, on one instruction set: not on the other tokens of the step, on
// pages, or on threads. A token of a tree has the bits of plain decoding along its path.
//
// Thread safety: const calls may run concurrently; a ThreadPool serves one call at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "windrow/export.h"
#include "windrow/kv_read.h"
#include "windrow/plan.h"
#include "windrow/status.h"
#include "windrow/threads.h"

namespace windrow {

struct AttentionParams {
  int q_heads = 1;                    // a multiple of kv_heads
  float scale = 1.0f;                 // explicit: models differ (1/sqrt(head_dim), query_pre_attn_scalar)
  float softcap = 0.0f;               // 0: none
  std::span<const float> sinks = {};  // logits, [q_heads], or empty; -inf: that head has none
};

// The scalar oracle of all kernels: any codec, sums in f64. Slow.
// q: [tokens, q_heads, head_dim]; out: [tokens, q_heads, value_dim], apart from q. kInvalidArgument for a
// read that contradicts itself (kv_read.h), wrong sizes, q_heads that are no multiple of kv_heads, a scale or
// softcap that is no number, a sink logit that is NaN or +inf.
WINDROW_API Status attend_reference(const KvRead& read, std::span<const float> q,
                                    const AttentionParams& params, std::span<float> out);

// How the tokens of a row stand in a step: one; a few that may be rejected (2 .. 64); a chunk; a tree; tokens
// that all see each other (C2).
enum class ReadKind { kDecode, kVerify, kPrefill, kTree, kBlock };
inline constexpr ReadKind kReadKinds[] = {ReadKind::kDecode, ReadKind::kVerify, ReadKind::kPrefill,
                                          ReadKind::kTree, ReadKind::kBlock};
WINDROW_API const char* to_string(ReadKind kind) noexcept;  // "decode", ...

// What serves a kind of read. Everything is served; what is not served at full speed says so.
struct AttentionKernel {
  std::string name;  // "AVX2, keys q4 by words, values q4 sliced over 8 words"
  std::string slow;  // why it is slower than it could be; empty: it is not
};

// The kernels for a plan's codecs and head dims on this machine, chosen once (C2): what can't be
// served is refused here, by name, never replaced silently.
class WINDROW_API AttentionKernels {
 public:
  static Result<AttentionKernels> select(const StatePlan& plan);

  // The capability table {instruction set, codecs, head dims, kind} -> kernel, for group 0 <= g <
  // plan.group_count(). The name is of the group's own codecs, `slow` also of those that it begins with.
  AttentionKernel kernel(int g, ReadKind kind) const;

  // As attend_reference, in f32, within 2e-5 of the largest |out| of a call (measured: 4e-7 .. 8e-6).
  // `pool` may be null: the caller's thread does all. kInvalidArgument also for a read of another
  // plan's shape. Each thread keeps a buffer for its working memory (some 100 KiB; reads of trees or of pages
  // under 16 positions take a second one, 128 positions), so that calls allocate nothing once warm;
  // kResourceExhausted when there is none, and out is unspecified then.
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
