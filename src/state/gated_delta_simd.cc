// gated_delta_advance in SIMD, equal to the definition in gated_delta.cc bit for bit on every target.
//
// Lanes run along key_dim, which is contiguous: the 16 accumulators of a row's sum are 16, 4, 2 or 1
// vectors. A block of rows of S goes through a block of tokens while it is in L1, so that a long
// chunk moves the state through memory once every kTokenBlock tokens.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "state/gated_delta_simd.cc"  // NOLINT
#include <hwy/foreach_target.h>                         // IWYU pragma: keep
// After foreach_target.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>

#include "windrow/gated_delta.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kPartials = 16;
using D = hn::CappedTag<float, kPartials>;
using Vec = hn::Vec<D>;
constexpr std::size_t kLanes = hn::MaxLanes(D());
constexpr std::size_t kParts = kPartials / kLanes;

// Rows of S that share the loads of k, q and g: their accumulators stay in registers (8 of 16 on
// AVX2 and SSE4, 4 of 32 on AVX3, where one 4 x 4 transpose folds them).
constexpr std::size_t kRows = kLanes >= 8 ? 4 : kLanes == 4 ? 2 : 1;

// Keys, queries and vector decays of a token block in L1: 16 x 3 x 128 floats are 24 KiB.
constexpr std::size_t kTokenBlock = 16;

// The 16 accumulators of one row folded to four: a[r] += a[r + 8], a[r] += a[r + 4].
#if HWY_TARGET != HWY_SCALAR
using D4 = hn::CappedTag<float, 4>;
using Vec4 = hn::Vec<D4>;

HWY_INLINE Vec4 fold_to_four(const Vec (&a)[kParts]) {
#if HWY_MAX_BYTES >= 64
  const hn::Half<D> half;
  const auto eight = hn::Add(hn::LowerHalf(half, a[0]), hn::UpperHalf(half, a[0]));
  return hn::Add(hn::LowerHalf(D4(), eight), hn::UpperHalf(D4(), eight));
#elif HWY_MAX_BYTES >= 32
  const Vec eight = hn::Add(a[0], a[1]);
  return hn::Add(hn::LowerHalf(D4(), eight), hn::UpperHalf(D4(), eight));
#else
  return hn::Add(hn::Add(a[0], a[2]), hn::Add(a[1], a[3]));
#endif
}
#endif

template <std::size_t R>
HWY_INLINE void fold(const Vec (&a)[R][kParts], float* out) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t r = 0; r < R; r++) {
    float lane[kPartials];
    for (std::size_t i = 0; i < kPartials; i++) lane[i] = hn::GetLane(a[r][i]);
    for (std::size_t i = 0; i < 8; i++) lane[i] += lane[i + 8];
    for (std::size_t i = 0; i < 4; i++) lane[i] += lane[i + 4];
    out[r] = (lane[0] + lane[2]) + (lane[1] + lane[3]);
  }
#else
  const D4 d4;
  if constexpr (R == 4) {
    const Vec4 x = fold_to_four(a[0]), y = fold_to_four(a[1]), z = fold_to_four(a[2]), w = fold_to_four(a[3]);
    const Vec4 xz = hn::Add(hn::InterleaveLower(d4, x, z), hn::InterleaveUpper(d4, x, z));
    const Vec4 yw = hn::Add(hn::InterleaveLower(d4, y, w), hn::InterleaveUpper(d4, y, w));
    hn::StoreU(hn::Add(hn::InterleaveLower(d4, xz, yw), hn::InterleaveUpper(d4, xz, yw)), d4, out);
  } else {
    for (std::size_t r = 0; r < R; r++) {
      const Vec4 four = fold_to_four(a[r]);
      const Vec4 two = hn::Add(four, hn::Shuffle1032(four));
      out[r] = hn::GetLane(hn::Add(two, hn::Shuffle2301(two)));
    }
  }
#endif
}

// One token of one head, as its rows see it.
struct Token {
  const float* k;
  const float* q;  // null: no output
  const float* g;
  float beta;
};

template <std::size_t R>
HWY_INLINE void clear(Vec (&a)[R][kParts]) {
  for (std::size_t r = 0; r < R; r++) {
    for (std::size_t p = 0; p < kParts; p++) a[r][p] = hn::Zero(D());
  }
}

template <DecayGate gate>
HWY_INLINE Vec decay(Vec scalar, const float* g, std::size_t j) {
  if constexpr (gate == DecayGate::kScalar) return scalar;
  return hn::LoadU(D(), g + j);
}

// R rows of S, `dim` apart: from -> to. v and y point at the first row's number.
template <DecayGate gate, bool output, std::size_t R>
HWY_INLINE void advance_rows(const Token& token, std::size_t dim, const float* from, float* to,
                             const float* v, float* y) {
  const D d;
  Vec sum[R][kParts];
  float folded[R];
  const Vec g0 = hn::Set(d, token.g[0]);

  clear<R>(sum);
  for (std::size_t j = 0; j < dim; j += kPartials) {
    for (std::size_t p = 0; p < kParts; p++) {
      const std::size_t at = j + p * kLanes;
      const Vec gk = hn::Mul(decay<gate>(g0, token.g, at), hn::LoadU(d, token.k + at));
      for (std::size_t r = 0; r < R; r++) {
        sum[r][p] = hn::Add(sum[r][p], hn::Mul(hn::LoadU(d, from + r * dim + at), gk));
      }
    }
  }
  fold<R>(sum, folded);
  Vec delta[R];
  for (std::size_t r = 0; r < R; r++) delta[r] = hn::Set(d, (v[r] - folded[r]) * token.beta);

  clear<R>(sum);
  for (std::size_t j = 0; j < dim; j += kPartials) {
    for (std::size_t p = 0; p < kParts; p++) {
      const std::size_t at = j + p * kLanes;
      const Vec g = decay<gate>(g0, token.g, at), k = hn::LoadU(d, token.k + at);
      const Vec q = output ? hn::LoadU(d, token.q + at) : k;
      for (std::size_t r = 0; r < R; r++) {
        const Vec s = hn::Add(hn::Mul(hn::LoadU(d, from + r * dim + at), g), hn::Mul(delta[r], k));
        hn::StoreU(s, d, to + r * dim + at);
        if constexpr (output) sum[r][p] = hn::Add(sum[r][p], hn::Mul(s, q));
      }
    }
  }
  if constexpr (output) {
    fold<R>(sum, folded);
    for (std::size_t r = 0; r < R; r++) y[r] = folded[r];
  }
}

struct Job {
  const GatedDeltaShape* shape;
  const GatedDeltaTokens* tokens;
  std::size_t head;
  const float* from;  // the head's matrix
  float* to;
  float* y;          // as the caller's
  std::size_t left;  // floats from the head's first to the end of the state
};

// Brings the rows of the next block, or of the next head, while this one is worked on. Without it a
// token takes the time of memory plus the time of arithmetic (Zen 3: 1.8 times as long).
HWY_INLINE void prefetch(const float* next, std::size_t count) {
  constexpr std::size_t kLine = 64 / sizeof(float);
  for (std::size_t i = 0; i < count; i += kLine) hwy::Prefetch(next + i);
}

// Rows [row, row + R) of the head through tokens [begin, end).
template <DecayGate gate, bool output, std::size_t R>
HWY_NOINLINE void advance_block(const Job& job, std::size_t row, std::size_t begin, std::size_t end) {
  const GatedDeltaShape& shape = *job.shape;
  const std::size_t dim = static_cast<std::size_t>(shape.key_dim), h = job.head;
  const std::size_t key_head = h / static_cast<std::size_t>(shape.value_heads / shape.key_heads);
  const std::size_t first_value = h * static_cast<std::size_t>(shape.value_dim) + row;
  const std::size_t first_decay = gate == DecayGate::kVector ? h * dim : h;
  float* to = job.to + row * dim;
  const std::size_t next = (row + R) * dim;
  prefetch((begin == 0 ? job.from : job.to) + next, std::min(R * dim, job.left - next));
  for (std::size_t t = begin; t < end; t++) {
    const std::size_t key = t * shape.key_floats() + key_head * dim;
    const Token token = {job.tokens->k + key, output ? job.tokens->q + key : nullptr,
                         job.tokens->g + t * shape.decay_floats() + first_decay,
                         job.tokens->beta[t * shape.beta_floats() + h]};
    const std::size_t value = t * shape.value_floats() + first_value;
    const float* from = t == 0 ? job.from + row * dim : to;
    advance_rows<gate, output, R>(token, dim, from, to, job.tokens->v + value,
                                  output ? job.y + value : nullptr);
  }
}

template <DecayGate gate, bool output>
void advance_head(const Job& job) {
  const std::size_t rows = static_cast<std::size_t>(job.shape->value_dim), count = job.tokens->count;
  for (std::size_t begin = 0; begin < count; begin += kTokenBlock) {
    const std::size_t end = std::min(begin + kTokenBlock, count);
    std::size_t row = 0;
    for (; row + kRows <= rows; row += kRows) advance_block<gate, output, kRows>(job, row, begin, end);
    for (; row < rows; row++) advance_block<gate, output, 1>(job, row, begin, end);
  }
}

}  // namespace

void AdvanceHeads(const GatedDeltaShape& shape, const GatedDeltaTokens& tokens, HeadRange heads,
                  const float* from, float* to, float* y) {
  const auto head_function =
      shape.gate == DecayGate::kScalar
          ? (y != nullptr ? advance_head<DecayGate::kScalar, true> : advance_head<DecayGate::kScalar, false>)
          : (y != nullptr ? advance_head<DecayGate::kVector, true> : advance_head<DecayGate::kVector, false>);
  const std::size_t matrix =
      static_cast<std::size_t>(shape.value_dim) * static_cast<std::size_t>(shape.key_dim);
  for (std::size_t h = static_cast<std::size_t>(heads.begin); h < static_cast<std::size_t>(heads.end); h++) {
    head_function(
        {&shape, &tokens, h, from + h * matrix, to + h * matrix, y, shape.state_floats() - h * matrix});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

HWY_EXPORT(AdvanceHeads);

void gated_delta_advance(const GatedDeltaShape& shape, const GatedDeltaTokens& tokens, HeadRange heads,
                         const float* from, float* to, float* y) {
  assert(shape.check().ok() && 0 <= heads.begin && heads.end <= shape.value_heads);
  assert(y == nullptr || tokens.count == 0 || tokens.q != nullptr);
  if (tokens.count != 0) {
    HWY_DYNAMIC_DISPATCH(AdvanceHeads)(shape, tokens, heads, from, to, y);
  } else if (from != to && heads.begin < heads.end) {
    const std::size_t matrix =
        static_cast<std::size_t>(shape.value_dim) * static_cast<std::size_t>(shape.key_dim);
    const std::size_t first = static_cast<std::size_t>(heads.begin) * matrix;
    std::memcpy(to + first, from + first,
                static_cast<std::size_t>(heads.end - heads.begin) * matrix * sizeof(float));
  }
}

}  // namespace windrow
#endif  // HWY_ONCE
