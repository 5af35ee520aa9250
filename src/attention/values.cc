// The mix: sums of weight * V, straight from the codes. Lanes run over the dims of one position,
// whose weight is a broadcast; positions are taken in ascending order, one chain per (query, dim).
#include "attention/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/values.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "attention/unpack-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {
namespace {

// Vector kVector and those after it of one unit.
template <class Values, int kQueries, int kUnits, int kVector>
HWY_INLINE void MixUnit(const std::byte* unit, const VF* weights, int u,
                        VF (&sums)[kQueries][kUnits * kVectors]) {
  const VF code = Values::template Get<kVector>(unit);
  WINDROW_UNROLL
  for (int i = 0; i < kQueries; i++) {
    VF& sum = sums[i][u * kVectors + kVector];
    sum = hn::MulAdd(code, weights[i], sum);
  }
  if constexpr (kVector + 1 < kVectors)
    MixUnit<Values, kQueries, kUnits, kVector + 1>(unit, weights, u, sums);
}

// Share `chunk` of `chunks` of the lines to prefetch, those that go with position p.
HWY_INLINE void FetchFor(const Prefetch& prefetch, int p, int chunk, int per_chunk) {
  const int tile = p / kTile, lines = prefetch.code_lines + prefetch.param_lines;
  for (int k = p % kTile; k < per_chunk; k += kTile) {
    const int line = chunk * per_chunk + k;
    if (line < lines && prefetch.codes[tile] != nullptr) PrefetchLine(prefetch, tile, line);
  }
}

// Units `first` .. first + kUnits - 1 of all positions. Two units lie in one group when the first
// is even, since groups are multiples of 32 dims.
template <class Values, int kQueries, int kUnits>
HWY_NOINLINE void MixChunk(const ValuePass& pass, int query, int first, int chunk, int fetch_per_chunk) {
  const DF df;
  constexpr int kPairs = (kUnits + 1) / 2;
  const float* weights[kQueries];
  float* out[kQueries];
  VF sums[kQueries][kUnits * kVectors];
  WINDROW_UNROLL
  for (int i = 0; i < kQueries; i++) {
    weights[i] = pass.weights + static_cast<std::size_t>(query + i) * pass.weight_rows;
    out[i] = pass.out + static_cast<std::size_t>(query + i) * static_cast<std::size_t>(pass.dims) +
             static_cast<std::size_t>(first) * kTile;
    WINDROW_UNROLL
    for (int v = 0; v < kUnits * kVectors; v++) sums[i][v] = hn::LoadU(df, out[i] + v * kLanes);
  }
  int group[kPairs];
  WINDROW_UNROLL
  for (int k = 0; k < kPairs; k++) group[k] = (first + 2 * k) * kTile / pass.group;

  const std::byte* codes = pass.codes + static_cast<std::size_t>(first) * Values::kUnitBytes;
  for (int p = 0; p < pass.positions; p++, codes += pass.stride) {
    if (p % kTile < fetch_per_chunk) FetchFor(*pass.prefetch, p, chunk, fetch_per_chunk);
    WINDROW_UNROLL
    for (int k = 0; k < kPairs; k++) {
      VF weight[kQueries];
      WINDROW_UNROLL
      for (int i = 0; i < kQueries; i++) weight[i] = hn::Set(df, weights[i][group[k]]);
      MixUnit<Values, kQueries, kUnits, 0>(codes + 2 * k * Values::kUnitBytes, weight, 2 * k, sums);
      if constexpr (kUnits > 1) {
        MixUnit<Values, kQueries, kUnits, 0>(codes + (2 * k + 1) * Values::kUnitBytes, weight, 2 * k + 1,
                                             sums);
      }
    }
    WINDROW_UNROLL
    for (int i = 0; i < kQueries; i++) weights[i] += pass.groups;
  }
  WINDROW_UNROLL
  for (int i = 0; i < kQueries; i++) {
    WINDROW_UNROLL
    for (int v = 0; v < kUnits * kVectors; v++) hn::StoreU(sums[i][v], df, out[i] + v * kLanes);
  }
}

template <class Values, int kQueries>
HWY_INLINE int MixQueries(const ValuePass& pass, int query) {
  constexpr int kUnits = HWY_MAX(1, kSums / (kQueries * kVectors));
  static_assert(kUnits == 1 || kUnits % 2 == 0);
  const int units = pass.dims / kTile, chunks = units / kUnits + units % kUnits;
  const int lines = pass.prefetch->code_lines + pass.prefetch->param_lines;
  for (; query + kQueries <= pass.queries; query += kQueries) {
    const int fetch_per_chunk = query == 0 ? (lines + chunks - 1) / chunks : 0;
    int first = 0, chunk = 0;
    for (; first + kUnits <= units; first += kUnits, chunk++) {
      MixChunk<Values, kQueries, kUnits>(pass, query, first, chunk, fetch_per_chunk);
    }
    for (; first < units; first++, chunk++)
      MixChunk<Values, kQueries, 1>(pass, query, first, chunk, fetch_per_chunk);
  }
  return query;
}

template <class Values>
void Mix(const ValuePass& pass) {
  int query = 0;
  if constexpr (kSharing >= 4) query = MixQueries<Values, 4>(pass, query);
  if constexpr (kSharing >= 2) query = MixQueries<Values, 2>(pass, query);
  MixQueries<Values, 1>(pass, query);
}

void Select(Kernels& kernels) {
  kernels.mix[0] = Mix<PlainValues<DType::kF32>>;
  kernels.mix[1] = Mix<PlainValues<DType::kF16>>;
  kernels.mix[2] = Mix<PlainValues<DType::kBF16>>;
  kernels.mix[3] = Mix<AffineValues<2>>;
  kernels.mix[4] = Mix<AffineValues<3>>;
  kernels.mix[5] = Mix<AffineValues<4>>;
  kernels.mix[6] = Mix<AffineValues<5>>;
  kernels.mix[7] = Mix<AffineValues<6>>;
  kernels.mix[8] = Mix<AffineValues<8>>;
}

}  // namespace
}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow::internal {
HWY_EXPORT(Select);
void select_value_kernels(Kernels& kernels) { HWY_DYNAMIC_DISPATCH(Select)(kernels); }
}  // namespace windrow::internal
#endif
