// The elementwise layers, compiled once per instruction set.
#include "model/layers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/layers.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/elementwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {
namespace {
// Four chains hide the latency of the FMA; the tail joins last.
HWY_INLINE float sum_squares(const float* x, std::size_t n) {
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  auto a0 = hn::Zero(d), a1 = hn::Zero(d), a2 = hn::Zero(d), a3 = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + i + lanes);
    const auto x2 = hn::LoadU(d, x + i + 2 * lanes), x3 = hn::LoadU(d, x + i + 3 * lanes);
    a0 = hn::MulAdd(x0, x0, a0);
    a1 = hn::MulAdd(x1, x1, a1);
    a2 = hn::MulAdd(x2, x2, a2);
    a3 = hn::MulAdd(x3, x3, a3);
  }
  for (; i + lanes <= n; i += lanes) {
    const auto x0 = hn::LoadU(d, x + i);
    a0 = hn::MulAdd(x0, x0, a0);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a0, a1), hn::Add(a2, a3))));
  for (; i < n; i++) sum += x[i] * x[i];
  return sum;
}

HWY_INLINE float inverse_rms(const float* x, std::size_t n, float eps) {
  return 1.0f / std::sqrt(sum_squares(x, n) / static_cast<float>(n) + eps);
}

void RmsNorm(const float* x, const float* weight, std::size_t n, float eps, float* y) {
  const float r = inverse_rms(x, n, eps);
  for_each(n, [&](auto d, std::size_t i) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, r)), hn::LoadU(d, weight + i)), d, y + i);
  });
}

void AddRmsNorm(const float* y, const float* weight, std::size_t n, float eps, float* x) {
  const float r = inverse_rms(y, n, eps);
  for_each(n, [&](auto d, std::size_t i) {
    const auto normed = hn::Mul(hn::Mul(hn::LoadU(d, y + i), hn::Set(d, r)), hn::LoadU(d, weight + i));
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), normed), d, x + i);
  });
}

void NormRope(float* x, std::size_t heads, std::size_t head_dim, std::size_t rotary_dim, const float* weight,
              float eps, const float* cosine, const float* sine) {
  const std::size_t half = rotary_dim / 2;
  for (std::size_t h = 0; h < heads; h++, x += head_dim) {
    if (weight != nullptr) RmsNorm(x, weight, head_dim, eps, x);
    for_each(half, [&](auto d, std::size_t i) {
      const auto c = hn::LoadU(d, cosine + i), s = hn::LoadU(d, sine + i);
      const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
      hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, x + i);
      hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, x + half + i);
    });
  }
}

void SpreadNan(float* x, std::size_t heads, std::size_t head_dim) {
  for (std::size_t h = 0; h < heads; h++, x += head_dim) {
    const Wide d;
    auto sum = hn::Zero(d);  // of x - x: 0, or NaN where x is none or infinite
    float tail = 0;
    const std::size_t whole = head_dim - head_dim % hn::Lanes(d);
    for (std::size_t i = 0; i < whole; i += hn::Lanes(d)) {
      const auto v = hn::LoadU(d, x + i);
      sum = hn::Add(sum, hn::Sub(v, v));
    }
    for (std::size_t i = whole; i < head_dim; i++) tail += x[i] - x[i];
    if (hn::GetLane(hn::SumOfLanes(d, sum)) + tail == 0) continue;
    std::fill_n(x, head_dim, std::numeric_limits<float>::quiet_NaN());
  }
}

void GeluTanhMul(const float* gate, const float* up, std::size_t n, float* y) {
  // (1 + tanh(u)) / 2 = 1 / (1 + e^-2u), which keeps its relative precision where tanh nears -1.
  constexpr float kLinear = -1.5957691216057308f;  // -2 sqrt(2 / pi)
  constexpr float kCubic = kLinear * 0.044715f;
  constexpr float kMaxExponent = 88.0f;  // e^88 < FLT_MAX; the quotient has long become 0
  for_each(n, [&](auto d, std::size_t i) {
    const auto x = hn::LoadU(d, gate + i);
    const auto slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, kCubic), hn::Set(d, kLinear));
    const auto e = hn::Exp(d, hn::Min(hn::Mul(x, slope), hn::Set(d, kMaxExponent)));
    const auto gelu = hn::Div(x, hn::Add(hn::Set(d, 1.0f), e));
    hn::StoreU(hn::Mul(gelu, hn::LoadU(d, up + i)), d, y + i);
  });
}

void Softcap(float* x, std::size_t n, float cap) {
  // tanh(x) is 1 to f32 beyond 10; the clamp keeps the exponential inside its range. Min and Max
  // may drop a NaN, so it is put back.
  for_each(n, [&](auto d, std::size_t i) {
    const auto v = hn::LoadU(d, x + i);
    const auto ratio = hn::Div(v, hn::Set(d, cap));
    const auto clamped = hn::Max(hn::Min(ratio, hn::Set(d, 20.0f)), hn::Set(d, -20.0f));
    const auto capped = hn::Mul(hn::Set(d, cap), hn::Tanh(d, clamped));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(v), v, capped), d, x + i);
  });
}

void ExpScaled(const float* x, std::size_t n, float shift, float scale, float* y) {
  for_each(n, [&](auto d, std::size_t i) {
    const auto v = hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, shift)), hn::Set(d, scale));
    // Exp gives 0 below -104, but loses its way far below: the clamp is at a value it maps to 0.
    hn::StoreU(hn::Exp(d, hn::Max(v, hn::Set(d, -150.0f))), d, y + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {
namespace {
HWY_EXPORT(RmsNorm);
HWY_EXPORT(AddRmsNorm);
HWY_EXPORT(NormRope);
HWY_EXPORT(SpreadNan);
HWY_EXPORT(GeluTanhMul);
HWY_EXPORT(Softcap);
HWY_EXPORT(ExpScaled);
}  // namespace

void rms_norm(const float* x, const float* weight, std::size_t n, float eps, float* y) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, weight, n, eps, y);
}
void add_rms_norm(const float* y, const float* weight, std::size_t n, float eps, float* x) {
  HWY_DYNAMIC_DISPATCH(AddRmsNorm)(y, weight, n, eps, x);
}
void norm_rope(float* x, std::size_t heads, std::size_t head_dim, std::size_t rotary_dim, const float* weight,
               float eps, const float* cosine, const float* sine) {
  HWY_DYNAMIC_DISPATCH(NormRope)(x, heads, head_dim, rotary_dim, weight, eps, cosine, sine);
}
void spread_nan(float* x, std::size_t heads, std::size_t head_dim) {
  HWY_DYNAMIC_DISPATCH(SpreadNan)(x, heads, head_dim);
}
void gelu_tanh_mul(const float* gate, const float* up, std::size_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(GeluTanhMul)(gate, up, n, y);
}
void softcap(float* x, std::size_t n, float cap) { HWY_DYNAMIC_DISPATCH(Softcap)(x, n, cap); }
void exp_scaled(const float* x, std::size_t n, float shift, float scale, float* y) {
  HWY_DYNAMIC_DISPATCH(ExpScaled)(x, n, shift, scale, y);
}

}  // namespace windrow
#endif  // HWY_ONCE
