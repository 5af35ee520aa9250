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

// The vectors of a register block: all of some tiles, or a part of one (4 lanes, or 1).
template <int kVecs>
struct Block {
  static constexpr int kPerTile = HWY_MIN(kVecs, kVectors);
  static constexpr int kTiles = kVecs / kPerTile;
  static_assert(kTiles * kPerTile == kVecs && kVectors % kPerTile == 0);
  // Vector v's lanes, `tiles` pointing at the block's first vector in a line of each tile.
  static HWY_INLINE const std::byte* At(const std::byte* const* tiles, int v) {
    return tiles[v / kPerTile] + v % kPerTile * kLanes * 4;
  }
};

// Element E and those after it of one field, for kQueries x kVecs sums.
template <class Keys, int kQueries, int kVecs, int E>
HWY_INLINE void Accumulate(const VU (&fields)[kVecs], const float* q, std::size_t q_row,
                           VF (&sums)[kQueries][kVecs]) {
  VF codes[kVecs];
  WINDROW_UNROLL
  for (int v = 0; v < kVecs; v++) codes[v] = Keys::template Get<E>(fields[v]);
  WINDROW_UNROLL
  for (int i = 0; i < kQueries; i++) {
    const VF factor = hn::Set(DF(), q[static_cast<std::size_t>(i) * q_row + E]);
    WINDROW_UNROLL
    for (int v = 0; v < kVecs; v++) sums[i][v] = hn::MulAdd(codes[v], factor, sums[i][v]);
  }
  if constexpr (E + 1 < Keys::kCodes) Accumulate<Keys, kQueries, kVecs, E + 1>(fields, q, q_row, sums);
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

// Units between two calls for lines to prefetch: often enough that few are open at a time, seldom
// enough that the inner loop stays plain.
constexpr int kStrip = 8;

// Vectors [first, first + kVecs) of positions, counted from the block's start, for kQueries queries from
// `query` on. Tiles past the last repeat it; their scores go to padding.
template <class Keys, int kQueries, int kVecs>
HWY_NOINLINE void ScoreVectors(const KeyPass& pass, int query, int first, bool fetch) {
  using B = Block<kVecs>;
  const DF df;
  const int first_tile = first / kVectors, offset = first % kVectors * kLanes * 4;
  const std::byte* lines[B::kTiles];
  const std::byte* params[B::kTiles];
  WINDROW_UNROLL
  for (int t = 0; t < B::kTiles; t++) {
    const int tile = HWY_MIN(first_tile + t, pass.tile_end - 1);
    lines[t] = pass.tiles->codes[tile] + offset;
    params[t] = pass.tiles->params[tile] + offset;
  }
  const int groups = pass.head_dim / pass.group, units = pass.group / (Keys::kFields * Keys::kCodes);
  // The last query of an odd number fills both places of a pair; the copy's scores go to a spare row.
  const bool copied = query + kQueries > pass.queries;
  const std::size_t q_row = copied ? 0 : static_cast<std::size_t>(pass.head_dim);
  const int sums_row = copied ? 0 : groups;
  const float* q = pass.q + static_cast<std::size_t>(query) * static_cast<std::size_t>(pass.head_dim);
  const float* q_sums = pass.q_sums + static_cast<std::size_t>(query) * static_cast<std::size_t>(groups);
  float* const scores =
      pass.scores + static_cast<std::size_t>(query) * kScoreStride + static_cast<std::size_t>(first) * kLanes;
  // As many lines are asked for as are read, so both streams advance together.
  const int fetch_tiles = fetch && offset == 0 ? HWY_MIN(B::kTiles, pass.tile_end - first_tile) : 0;
  int fetched = 0;

  for (int g = 0; g < groups; g++) {
    VF sums[kQueries][kVecs];
    WINDROW_UNROLL
    for (int i = 0; i < kQueries; i++) {
      WINDROW_UNROLL
      for (int v = 0; v < kVecs; v++) sums[i][v] = hn::Zero(df);
    }
    for (int unit = 0; unit < units;) {
      const int strip_end = HWY_MIN(unit + kStrip, units),
                lines_end = fetched + (strip_end - unit) * Keys::kWords;
      for (int t = 0; t < fetch_tiles; t++) PrefetchLines(*pass.prefetch, first_tile + t, fetched, lines_end);
      fetched = lines_end;
      for (; unit < strip_end; unit++) {
        for (int k = 0; k < Keys::kFields; k++, q += Keys::kCodes) {
          VU fields[kVecs];
          WINDROW_UNROLL
          for (int v = 0; v < kVecs; v++) fields[v] = Keys::Field(B::At(lines, v), k);
          Accumulate<Keys, kQueries, kVecs, 0>(fields, q, q_row, sums);
        }
        WINDROW_UNROLL
        for (int t = 0; t < B::kTiles; t++) lines[t] += Keys::kWords * 64;
      }
    }
    WINDROW_UNROLL
    for (int v = 0; v < kVecs; v++) {
      float* const at = scores + v * kLanes;
      if constexpr (!Keys::kAffine) {
        WINDROW_UNROLL
        for (int i = 0; i < kQueries; i++)
          hn::StoreU(sums[i][v], df, at + static_cast<std::size_t>(i) * kScoreStride);
      } else {
        const ScaleBias p = LoadParams(B::At(params, v), pass.param_type, g);
        WINDROW_UNROLL
        for (int i = 0; i < kQueries; i++) {
          float* const score = at + static_cast<std::size_t>(i) * kScoreStride;
          const VF q_sum = hn::Set(df, q_sums[i * sums_row + g]);
          const VF before = g == 0 ? hn::Zero(df) : hn::LoadU(df, score);
          hn::StoreU(hn::MulAdd(p.bias, q_sum, hn::MulAdd(sums[i][v], p.scale, before)), df, score);
        }
      }
    }
  }
  for (int t = 0; t < fetch_tiles; t++) {
    PrefetchLines(*pass.prefetch, first_tile + t, fetched, pass.prefetch->lines());
  }
}

template <class Keys, int kQueries>
HWY_INLINE void ScoreQueries(const KeyPass& pass, int query) {
  constexpr int kVecs = HWY_MIN(kSums / kQueries, 8);
  for (int first = pass.tile_begin * kVectors; first < pass.tile_end * kVectors; first += kVecs) {
    ScoreVectors<Keys, kQueries, kVecs>(pass, query, first, query == 0);
  }
}

template <class Keys>
void Score(const KeyPass& pass) {
  int query = 0;
  for (; query + kSharing <= pass.queries; query += kSharing) ScoreQueries<Keys, kSharing>(pass, query);
  for (; query < pass.queries; query += kPair) ScoreQueries<Keys, kPair>(pass, query);
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
