// The mix: sums of weight * V, straight from the codes. Lanes run over the dims of one position,
// whose weight is a broadcast; positions are taken in ascending order, one chain per (query, dim).
// Codes come sliced where their width allows (codec/slices.h): one mask and one conversion a vector.
#include "attention/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/values.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "attention/unpack_values-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {
namespace {

// Vectors kFirst, .. kEnd - 1 of a chunk for all queries.
template <int kFirst, int kEnd, class Chunk, int kQueries, int kVecs>
HWY_INLINE void MixVectors(const Chunk& chunk, const std::byte* at, const VF (&weights)[kQueries],
                           VF (&sums)[kQueries][kVecs]) {
  const VF code = chunk.template Get<kFirst>(at);
  WINDROW_UNROLL
  for (int i = 0; i < kQueries; i++) sums[i][kFirst] = hn::MulAdd(code, weights[i], sums[i][kFirst]);
  if constexpr (kFirst + 1 < kEnd) MixVectors<kFirst + 1, kEnd>(chunk, at, weights, sums);
}

// One position: the weights of every 32 dims, which lie in one group since groups are multiples of that.
// `weights` point at the position's in the chunk's first group, groups[k] says how far the others' are.
template <int kFirst, class Chunk, int kQueries, int kVecs, int kPairs>
HWY_INLINE void MixPosition(const Chunk& chunk, const std::byte* at, const float* const (&weights)[kQueries],
                            int position, const int (&groups)[kPairs], VF (&sums)[kQueries][kVecs]) {
  constexpr int kPair = 2 * kVectors, kEnd = HWY_MIN(kFirst + kPair, kVecs);
  VF factors[kQueries];
  WINDROW_UNROLL
  for (int i = 0; i < kQueries; i++) {
    const float* weight = kFirst == 0 ? weights[i] : weights[i] + groups[kFirst / kPair];
    factors[i] = hn::Set(DF(), weight[position]);
  }
  MixVectors<kFirst, kEnd>(chunk, at, factors, sums);
  if constexpr (kEnd < kVecs) MixPosition<kEnd>(chunk, at, weights, position, groups, sums);
}

// Code lines of each tile to ask for while a chunk is mixed.
struct Share {
  int begin = 0, end = 0;
};

// Positions that a loop takes at once.
constexpr int kStrip = 4;

// Units `first` .. first + kUnits - 1, of 16 dims each, of all positions.
template <class Values, int kQueries, int kUnits, bool kTop>
HWY_NOINLINE void MixChunk(const ValuePass& pass, int query, int first, Share fetch) {
  const DF df;
  constexpr int kVecs = kUnits * kVectors, kPairs = (kUnits + 1) / 2;
  using Chunk = typename Values::template Chunk<kVecs, kTop>;
  const Chunk chunk(first * kVectors);
  const std::size_t offset = Chunk::Offset(first * kVectors);
  const float* weights[kQueries];
  float* out[kQueries];
  VF sums[kQueries][kVecs];
  WINDROW_UNROLL
  for (int i = 0; i < kQueries; i++) {
    const auto row = static_cast<std::size_t>(query + i);
    weights[i] =
        pass.weights + row * pass.weight_rows + static_cast<std::size_t>(first * kTile / pass.group * kBlock);
    out[i] = pass.out + row * pass.out_rows + static_cast<std::size_t>(first) * kTile;
    WINDROW_UNROLL
    for (int v = 0; v < kVecs; v++) sums[i][v] = hn::LoadU(df, out[i] + v * kLanes);
  }
  int groups[kPairs];
  WINDROW_UNROLL
  for (int k = 0; k < kPairs; k++) {
    groups[k] = ((first + 2 * k) * kTile / pass.group - first * kTile / pass.group) * kBlock;
  }

  const std::size_t stride = pass.stride;
  for (int p = pass.begin; p < pass.end;) {
    const int tile = p / kTile, stop = HWY_MIN(pass.end, (tile + 1) * kTile);
    const std::byte* at = pass.tiles->codes[tile] + static_cast<std::size_t>(p % kTile) * stride + offset;
    // With the last tile come all that are left of the other block.
    const int other = tile - pass.begin / kTile + pass.prefetch->begin;
    const int others_end = stop == pass.end ? pass.prefetch->end : HWY_MIN(other + 1, pass.prefetch->end);
    for (int t = other; t < others_end; t++) {
      const std::byte* const lines = pass.prefetch->codes[t];
      for (int line = fetch.begin; line < fetch.end; line++) PrefetchLine(lines + line * 64);
    }
    for (; p + kStrip <= stop; p += kStrip, at += kStrip * stride) {
      WINDROW_UNROLL
      for (int i = 0; i < kStrip; i++) {
        MixPosition<0>(chunk, at + static_cast<std::size_t>(i) * stride, weights, p + i, groups, sums);
      }
    }
    for (; p < stop; p++, at += stride) MixPosition<0>(chunk, at, weights, p, groups, sums);
  }
  WINDROW_UNROLL
  for (int i = 0; i < kQueries; i++) {
    WINDROW_UNROLL
    for (int v = 0; v < kVecs; v++) hn::StoreU(sums[i][v], df, out[i] + v * kLanes);
  }
}

// Units from `first` on in chunks of kUnits, the rest in smaller ones.
template <class Values, int kQueries, int kUnits>
HWY_INLINE void MixUnits(const ValuePass& pass, int query, int first) {
  const int units = pass.dims / kTile, lines = query == 0 ? pass.prefetch->code_lines : 0;
  for (; first + kUnits <= units; first += kUnits) {
    // Every chunk asks for its share of the code lines that go with a tile.
    const Share fetch{first * lines / units, (first + kUnits) * lines / units};
    if constexpr (!Values::template AlwaysTop<kUnits * kVectors>()) {
      if (!Values::template HasTop<kUnits * kVectors>(first * kVectors)) {
        MixChunk<Values, kQueries, kUnits, false>(pass, query, first, fetch);
        continue;
      }
    }
    MixChunk<Values, kQueries, kUnits, true>(pass, query, first, fetch);
  }
  if constexpr (kUnits > 1) {
    if (first < units) MixUnits<Values, kQueries, kUnits / 2>(pass, query, first);
  }
}

template <class Values, int kQueries>
HWY_INLINE void MixQueries(const ValuePass& pass, int query) {
  MixUnits<Values, kQueries, HWY_MAX(1, HWY_MIN(8, kSums / kQueries) / kVectors)>(pass, query, 0);
}

template <class Values>
void Mix(const ValuePass& pass) {
  for (int tile = pass.prefetch->begin; tile < pass.prefetch->end; tile++) {
    PrefetchParams(*pass.prefetch, tile);
  }
  ForEachPanel(pass.queries, [&]<int kQueries>(int query) { MixQueries<Values, kQueries>(pass, query); });
}

void Select(Kernels& kernels) {
  const auto set = [&kernels](int kind, int slice, void (*mix)(const ValuePass&)) {
    kernels.mix[kind][slice_kind(slice)] = mix;
  };
  set(0, 1, Mix<PlainValues<DType::kF32>>);
  set(1, 1, Mix<PlainValues<DType::kF16>>);
  set(2, 1, Mix<PlainValues<DType::kBF16>>);
  set(3, 2, Mix<SlicedValues<2, 2>>);
  set(3, 4, Mix<SlicedValues<2, 4>>);
  set(3, 8, Mix<SlicedValues<2, 8>>);
  set(4, 1, Mix<PickedValues<3>>);
  set(5, 4, Mix<SlicedValues<4, 4>>);
  set(5, 8, Mix<SlicedValues<4, 8>>);
  set(6, 1, Mix<PickedValues<5>>);
  set(7, 1, Mix<PickedValues<6>>);
  set(8, 8, Mix<SlicedValues<8, 8>>);
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
