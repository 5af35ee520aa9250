// causal_conv in SIMD over channels, equal to the definition in causal_conv.cc bit for bit on every
// target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "state/causal_conv_simd.cc"  // NOLINT
#include <hwy/foreach_target.h>                         // IWYU pragma: keep
// After foreach_target.
#include <hwy/highway.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "state/silu.h"
#include "windrow/causal_conv.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> silu(D d, hn::Vec<D> s) {
  using namespace silu_constants;
  const hn::RebindToUnsigned<D> u;
  const auto low = hn::Set(d, kLow), high = hn::Set(d, kHigh), round = hn::Set(d, kRound);
  auto z = hn::Neg(s);
  z = hn::IfThenElse(hn::Gt(z, low), z, low);  // NaN too: s itself brings it back
  z = hn::IfThenElse(hn::Gt(z, high), high, z);
  const auto shifted = hn::Add(hn::Mul(z, hn::Set(d, kLog2E)), round);
  const auto n = hn::Sub(shifted, round);
  const auto r = hn::Sub(hn::Sub(z, hn::Mul(n, hn::Set(d, kLn2High))), hn::Mul(n, hn::Set(d, kLn2Low)));
  auto p = hn::Set(d, kTaylor[0]);
  for (std::size_t i = 1; i < std::size(kTaylor); i++) p = hn::Add(hn::Mul(p, r), hn::Set(d, kTaylor[i]));
  const auto half_power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(u, shifted)), hn::Set(u, 126u << 23));
  const auto e = hn::Mul(hn::Mul(p, hn::BitCast(d, half_power)), hn::Set(d, 2.0f));
  return hn::Div(s, hn::Add(hn::Set(d, 1.0f), e));
}

struct Job {
  std::size_t channels, taps;
  const float *tail, *x, *weights;
  float* out;
  bool silu;
};

// Channels c .. of token t.
template <class D>
HWY_INLINE void filter(D d, const Job& job, std::size_t t, std::size_t c) {
  auto sum = hn::Zero(d);
  for (std::size_t j = 0; j < job.taps; j++) {
    const std::size_t row = t + j;
    const float* in =
        row + 1 < job.taps ? job.tail + row * job.channels : job.x + (row + 1 - job.taps) * job.channels;
    const auto term = hn::Mul(hn::LoadU(d, job.weights + j * job.channels + c), hn::LoadU(d, in + c));
    sum = j == 0 ? term : hn::Add(sum, term);
  }
  hn::StoreU(job.silu ? silu(d, sum) : sum, d, job.out + t * job.channels + c);
}

}  // namespace

void Convolve(const CausalConvShape& shape, const float* tail, const float* x, std::size_t count,
              const float* weights, bool with_silu, float* out) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  const Job job = {static_cast<std::size_t>(shape.channels),
                   static_cast<std::size_t>(shape.taps),
                   tail,
                   x,
                   weights,
                   out,
                   with_silu};
  // The newest token first: an output may lie where its input lay, which older ones don't need.
  for (std::size_t t = count; t-- > 0;) {
    std::size_t c = 0;
    for (; c + lanes <= job.channels; c += lanes) filter(d, job, t, c);
    for (; c < job.channels; c++) filter(one, job, t, c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

HWY_EXPORT(Convolve);

void causal_conv(const CausalConvShape& shape, const float* tail, const float* x, std::size_t count,
                 const float* weights_by_tap, Activation activation, float* out) {
  assert(shape.check().ok());
  HWY_DYNAMIC_DISPATCH(Convolve)(shape, tail, x, count, weights_by_tap, activation == Activation::kSilu, out);
}

}  // namespace windrow
#endif  // HWY_ONCE
