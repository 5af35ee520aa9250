// Vectors of the products' kernels and how they load weights of each plain type. Compiled once per SIMD
// target.
#if defined(WINDROW_PRODUCT_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_PRODUCT_FORMATS_INL_H_
#undef WINDROW_PRODUCT_FORMATS_INL_H_
#else
#define WINDROW_PRODUCT_FORMATS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "model/product_layout.h"

// Register arrays must be indexed by constants; each compiler has its own word for it. Not where there
// are no vector registers, nor under sanitizers, which take minutes to compile the unrolled checks.
#undef WINDROW_UNROLL
#if HWY_TARGET == HWY_SCALAR || defined(WINDROW_SANITIZED)
#define WINDROW_UNROLL
#elif defined(__clang__)
#define WINDROW_UNROLL _Pragma("unroll")
#else
#define WINDROW_UNROLL _Pragma("GCC unroll 32")
#endif

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, kTileRows>;
using U = hn::RebindToUnsigned<F>;
using Vec = hn::Vec<F>;
inline constexpr std::size_t kLanes = hn::MaxLanes(F());
inline constexpr std::size_t kParts = kTileRows / kLanes;  // vectors of one column of a tile

// ---- formats: vector `part` of column `odd` of the pair at p, as f32

struct F32Format {
  static constexpr std::size_t kPairBytes = pair_bytes(DType::kF32);
  template <std::size_t odd>
  static HWY_INLINE Vec load(const std::byte* p, std::size_t part) {
    return hn::Load(F(), reinterpret_cast<const float*>(p) + odd * kTileRows + part * kLanes);
  }
};

struct BF16Format {
  static constexpr std::size_t kPairBytes = pair_bytes(DType::kBF16);
  template <std::size_t odd>
  static HWY_INLINE Vec load(const std::byte* p, std::size_t part) {
    const auto both = hn::Load(U(), reinterpret_cast<const std::uint32_t*>(p) + part * kLanes);
    if constexpr (odd == 0) return hn::BitCast(F(), hn::ShiftLeft<16>(both));
    return hn::BitCast(F(), hn::And(both, hn::Load(U(), high_half)));
  }
};

struct F16Format {
  static constexpr std::size_t kPairBytes = pair_bytes(DType::kF16);
  template <std::size_t odd>
  static HWY_INLINE Vec load(const std::byte* p, std::size_t part) {
    const auto* h = reinterpret_cast<const std::uint16_t*>(p) + odd * kTileRows + part * kLanes;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    const hn::Rebind<hwy::float16_t, F> dh;
    return hn::PromoteTo(F(), hn::Load(dh, reinterpret_cast<const hwy::float16_t*>(h)));
#else
    // No conversion instruction (or one that Highway 1.0.3 does not make exact for infinities).
    const F f;
    const U u;
    const auto bits = hn::PromoteTo(u, hn::Load(hn::Rebind<std::uint16_t, F>(), h));
    const auto magnitude = hn::And(bits, hn::Set(u, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(u, (127u - 15u) << 23));
    const auto denormal =
        hn::Mul(hn::ConvertTo(f, hn::BitCast(hn::RebindToSigned<F>(), magnitude)), hn::Set(f, 0x1p-24f));
    const auto small =
        hn::Lt(hn::BitCast(f, hn::ShiftLeft<13>(magnitude)), hn::BitCast(f, hn::Set(u, 0x400u << 13)));
    const auto special =
        hn::Ge(hn::BitCast(f, hn::ShiftLeft<13>(magnitude)), hn::BitCast(f, hn::Set(u, 0x7c00u << 13)));
    const auto infinite = hn::IfThenElseZero(special, hn::BitCast(f, hn::Set(u, 0x7f800000u)));
    const auto value = hn::IfThenElse(small, denormal, hn::BitCast(f, normal));
    return hn::Or(hn::Or(value, infinite), hn::BitCast(f, sign));
#endif
  }
};

// acc = w * x + acc. Told by name to work in place, gcc needs no copies and so spills nothing (a fifth).
HWY_INLINE void fma_in_place(Vec& acc, Vec w, Vec x) {
#if HWY_TARGET == HWY_AVX2
  asm("vfmadd231ps %2, %1, %0" : "+x"(acc.raw) : "x"(w.raw), "x"(x.raw));
#elif HWY_TARGET == HWY_AVX3
  asm("vfmadd231ps %2, %1, %0" : "+v"(acc.raw) : "v"(w.raw), "v"(x.raw));
#else
  acc = hn::MulAdd(w, x, acc);
#endif
}

}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
