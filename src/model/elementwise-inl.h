// The loop of elementwise layers. Compiled once per SIMD target.
#if defined(WINDROW_ELEMENTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_ELEMENTWISE_INL_H_
#undef WINDROW_ELEMENTWISE_INL_H_
#else
#define WINDROW_ELEMENTWISE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<float>;
using One = hn::CappedTag<float, 1>;  // the tail, element by element, through the same operations

// body(d, i) for i = 0 .. n in steps of the lanes of d: whole vectors, then single elements.
template <class Body>
HWY_INLINE void for_each(std::size_t n, const Body& body) {
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) body(d, i);
  for (; i < n; i++) body(One(), i);
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
