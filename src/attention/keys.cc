// Scores: q . K of a block of tiles, straight from the codes. Lanes run over positions, a query's
// number is a broadcast, so there is no horizontal sum and every (query, position) has one chain.
#include "attention/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/keys.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "attention/unpack-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {
namespace {

// Element E and those after it of one unit, for kQueries x kVecs sums.
template <class Keys, int kQueries, int kVecs, int E>
HWY_INLINE void Accumulate(const std::byte* const* lines, const float* q, std::size_t q_row,
                           VF (&sums)[kQueries][kVecs]) {
  VF codes[kVecs];
  WINDROW_UNROLL
  for (int v = 0; v < kVecs; v++) codes[v] = Keys::template Get<E>(lines[v]);
  WINDROW_UNROLL
  for (int i = 0; i < kQueries; i++) {
    const VF factor = hn::Set(DF(), q[static_cast<std::size_t>(i) * q_row + E]);
    WINDROW_UNROLL
    for (int v = 0; v < kVecs; v++) sums[i][v] = hn::MulAdd(codes[v], factor, sums[i][v]);
  }
  if constexpr (E + 1 < Keys::kElements) Accumulate<Keys, kQueries, kVecs, E + 1>(lines, q, q_row, sums);
}

struct ScaleBias {
  VF scale, bias;
};

HWY_INLINE ScaleBias LoadParams(const std::byte* params, DType type, int group) {
  if (type == DType::kF32) {
    return {hn::BitCast(DF(), LoadWords(params + group * 128)),
            hn::BitCast(DF(), LoadWords(params + group * 128 + 64))};
  }
  const VU word = LoadWords(params + group * 64);
  if (type == DType::kBF16) return {LowNumber<DType::kBF16>(word), HighNumber<DType::kBF16>(word)};
  return {LowNumber<DType::kF16>(word), HighNumber<DType::kF16>(word)};
}

// kVecs vectors of positions from vector `first` on, counted over all tiles, for kQueries queries
// from `query` on. Vectors past the last tile repeat the last one; their scores go to padding.
template <class Keys, int kQueries, int kVecs>
HWY_NOINLINE void ScoreVectors(const KeyPass& pass, int query, int first, bool fetch) {
  const DF df;
  const std::byte* lines[kVecs];
  const std::byte* params[kVecs];
  const int last = pass.tiles * kVectors - 1;
  WINDROW_UNROLL
  for (int v = 0; v < kVecs; v++) {
    const int at = HWY_MIN(first + v, last);
    lines[v] = pass.codes[at / kVectors] + at % kVectors * kLanes * 4;
    params[v] = Keys::kAffine ? pass.params[at / kVectors] + at % kVectors * kLanes * 4 : nullptr;
  }
  const int groups = pass.head_dim / pass.group, units = pass.group / Keys::kElements;
  const std::size_t q_row = static_cast<std::size_t>(pass.head_dim);
  const float* q = pass.q + static_cast<std::size_t>(query) * q_row;
  const float* q_sums = pass.q_sums + static_cast<std::size_t>(query) * static_cast<std::size_t>(groups);
  float* scores =
      pass.scores + static_cast<std::size_t>(query) * kScoreStride + static_cast<std::size_t>(first) * kLanes;
  const Prefetch& prefetch = *pass.prefetch;
  const int fetch_lines = fetch ? prefetch.code_lines + prefetch.param_lines : 0;
  int fetched = 0;

  for (int g = 0; g < groups; g++) {
    VF sums[kQueries][kVecs];
    WINDROW_UNROLL
    for (int i = 0; i < kQueries; i++) {
      WINDROW_UNROLL
      for (int v = 0; v < kVecs; v++) sums[i][v] = hn::Zero(df);
    }
    for (int u = 0; u < units; u++) {
      // As many lines are asked for as are read, so both streams advance together.
      for (int k = 0; k < Keys::kWords && fetched < fetch_lines; k++, fetched++) {
        WINDROW_UNROLL
        for (int v = 0; v < kVecs; v++) {
          const int at = first + v;
          if (at % kVectors == 0 && at <= last && prefetch.codes[at / kVectors] != nullptr) {
            PrefetchLine(prefetch, at / kVectors, fetched);
          }
        }
      }
      Accumulate<Keys, kQueries, kVecs, 0>(lines, q, q_row, sums);
      WINDROW_UNROLL
      for (int v = 0; v < kVecs; v++) lines[v] += Keys::kWords * 64;
      q += Keys::kElements;
    }
    WINDROW_UNROLL
    for (int v = 0; v < kVecs; v++) {
      float* const at = scores + v * kLanes;
      if constexpr (!Keys::kAffine) {
        WINDROW_UNROLL
        for (int i = 0; i < kQueries; i++)
          hn::StoreU(sums[i][v], df, at + static_cast<std::size_t>(i) * kScoreStride);
      } else {
        const ScaleBias p = LoadParams(params[v], pass.param_type, g);
        WINDROW_UNROLL
        for (int i = 0; i < kQueries; i++) {
          float* const score = at + static_cast<std::size_t>(i) * kScoreStride;
          const VF q_sum = hn::Set(df, q_sums[i * groups + g]);
          const VF before = g == 0 ? hn::Zero(df) : hn::LoadU(df, score);
          hn::StoreU(hn::MulAdd(p.bias, q_sum, hn::MulAdd(sums[i][v], p.scale, before)), df, score);
        }
      }
    }
  }
  for (; fetched < fetch_lines; fetched++) {
    for (int at = first; at < first + kVecs && at <= last; at++) {
      if (at % kVectors == 0 && prefetch.codes[at / kVectors] != nullptr) {
        PrefetchLine(prefetch, at / kVectors, fetched);
      }
    }
  }
}

template <class Keys, int kQueries>
HWY_INLINE int ScoreQueries(const KeyPass& pass, int query) {
  constexpr int kVecs = HWY_MIN(kSums / kQueries, 8);
  for (; query + kQueries <= pass.queries; query += kQueries) {
    for (int first = 0; first < pass.tiles * kVectors; first += kVecs) {
      ScoreVectors<Keys, kQueries, kVecs>(pass, query, first, query == 0);
    }
  }
  return query;
}

template <class Keys>
void Score(const KeyPass& pass) {
  int query = 0;
  if constexpr (kSharing >= 4) query = ScoreQueries<Keys, 4>(pass, query);
  if constexpr (kSharing >= 2) query = ScoreQueries<Keys, 2>(pass, query);
  ScoreQueries<Keys, 1>(pass, query);
}

void Select(Kernels& kernels) {
  kernels.score[0] = Score<PlainKeys<DType::kF32>>;
  kernels.score[1] = Score<PlainKeys<DType::kF16>>;
  kernels.score[2] = Score<PlainKeys<DType::kBF16>>;
  kernels.score[3] = Score<AffineKeys<2>>;
  kernels.score[4] = Score<AffineKeys<3>>;
  kernels.score[5] = Score<AffineKeys<4>>;
  kernels.score[6] = Score<AffineKeys<5>>;
  kernels.score[7] = Score<AffineKeys<6>>;
  kernels.score[8] = Score<AffineKeys<8>>;
}

}  // namespace
}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow::internal {
HWY_EXPORT(Select);
void select_key_kernels(Kernels& kernels) { HWY_DYNAMIC_DISPATCH(Select)(kernels); }
}  // namespace windrow::internal
#endif
