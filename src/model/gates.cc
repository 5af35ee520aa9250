// The activations of gated layers, compiled once per instruction set.
#include "model/gates.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/gates.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "model/elementwise-inl.h"
#include "model/layers.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {
namespace {
// 1 + e^-x. Beyond 88 e^x leaves f32's range; what is divided by it has long become 0.
template <class D, class V>
HWY_INLINE V one_plus_exp_neg(D d, V x) {
  return hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f))));
}

void SiluMul(const float* gate, const float* up, std::size_t n, float* y) {
  for_each(n, [&](auto d, std::size_t i) {
    const auto g = hn::LoadU(d, gate + i);
    hn::StoreU(hn::Mul(hn::Div(g, one_plus_exp_neg(d, g)), hn::LoadU(d, up + i)), d, y + i);
  });
}

void ClampedMul(const float* gate, const float* up, std::size_t n, float limit, float* y) {
  constexpr float kAlpha = 1.702f;  // gpt-oss's approximation of GELU by a sigmoid
  for_each(n, [&](auto d, std::size_t i) {
    const auto most = hn::Set(d, limit);
    const auto gate_in = hn::LoadU(d, gate + i), up_in = hn::LoadU(d, up + i);
    const auto g = hn::Min(gate_in, most);
    const auto u = hn::Max(hn::Min(up_in, most), hn::Neg(most));
    const auto glu = hn::Div(g, one_plus_exp_neg(d, hn::Mul(g, hn::Set(d, kAlpha))));
    const auto result = hn::Mul(hn::Add(u, hn::Set(d, 1.0f)), glu);
    // Min and Max may drop a NaN.
    const auto sum = hn::Add(gate_in, up_in);
    hn::StoreU(hn::IfThenElse(hn::IsNaN(sum), sum, result), d, y + i);
  });
}

void SigmoidMul(const float* gate, std::size_t n, float* x) {
  for_each(n, [&](auto d, std::size_t i) {
    const auto g = hn::LoadU(d, gate + i);
    const auto result = hn::Div(hn::LoadU(d, x + i), one_plus_exp_neg(d, g));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(g), g, result), d, x + i);
  });
}

void AddScaled(const float* x, float factor, std::size_t n, float* y) {
  for_each(n, [&](auto d, std::size_t i) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor));
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), scaled), d, y + i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {
namespace {
HWY_EXPORT(SiluMul);
HWY_EXPORT(ClampedMul);
HWY_EXPORT(SigmoidMul);
HWY_EXPORT(AddScaled);
}  // namespace

void gate_mul(GateKind kind, const float* gate, const float* up, std::size_t n, float limit, float* y) {
  switch (kind) {
    case GateKind::kSilu: return HWY_DYNAMIC_DISPATCH(SiluMul)(gate, up, n, y);
    case GateKind::kGeluTanh: return gelu_tanh_mul(gate, up, n, y);
    case GateKind::kClamped: return HWY_DYNAMIC_DISPATCH(ClampedMul)(gate, up, n, limit, y);
  }
}
void sigmoid_mul(const float* gate, std::size_t n, float* x) { HWY_DYNAMIC_DISPATCH(SigmoidMul)(gate, n, x); }
void add_scaled(const float* x, float factor, std::size_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(x, factor, n, y);
}

}  // namespace windrow
#endif  // HWY_ONCE
