// Scores: q . K of a block of tiles, straight from the codes. Lanes run over positions, a query's
// number is a broadcast, so there is no horizontal sum and every (query, position) has one chain.
//
// A chain takes the dims of a group pass by pass: of every field the first few codes, then the next.
// So a loop needs only that many masks, which stay in registers (with all eight of q4 the loop was 10 to 15 %
// slower), and takes words from memory as operands.
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

// Adds code i of one vector's field, times its queries' factors, to their sums.
template <int i, class Pass, int kQueries, int kVecs>
HWY_INLINE void AddCode(const Pass& pass, VU field, const VF (&factors)[kQueries], int v,
                        VF (&sums)[kQueries][kVecs]) {
  const VF codes = pass.template Get<i>(field);
  WINDROW_UNROLL
  for (int n = 0; n < kQueries; n++) {
    sums[n][v] = hn::MulAdd(codes, factors[n], sums[n][v]);
    WINDROW_IN_REGISTER(sums[n][v]);
  }
}

template <int kCode, int kQueries>
HWY_INLINE void LoadFactors(const float* q, VF (&factors)[kQueries]) {
  WINDROW_UNROLL
  for (int n = 0; n < kQueries; n++) factors[n] = hn::Set(DF(), q[kCode * kQueries + n]);
}

// Code i and those after it of a pass, each for all vectors; q points at the field's panel rows. Fields are
// words, taken from memory again for each code.
template <class Pass, int kQueries, int kVecs, int i = 0>
HWY_INLINE void CodeByCode(const Pass& pass, const std::byte* const* lines, const float* q,
                           VF (&sums)[kQueries][kVecs]) {
  VF factors[kQueries];
  LoadFactors<Pass::kFirst + i>(q, factors);
  WINDROW_UNROLL
  for (int v = 0; v < kVecs; v++)
    AddCode<i>(pass, Pass::Keys::template Field<0>(Block<kVecs>::At(lines, v)), factors, v, sums);
  if constexpr (i + 1 < Pass::kCount) CodeByCode<Pass, kQueries, kVecs, i + 1>(pass, lines, q, sums);
}

// The same of field k and those after it, but each vector for both codes of the pass: fields are joined from
// two words, once.
template <class Pass, int kQueries, int kVecs, int k = 0>
HWY_INLINE void VectorByVector(const Pass& pass, const std::byte* const* lines, const float* q,
                               VF (&sums)[kQueries][kVecs]) {
  using Keys = typename Pass::Keys;
  static_assert(Pass::kCount == 2);
  VF first[kQueries], second[kQueries];
  LoadFactors<Pass::kFirst>(q, first);
  LoadFactors<Pass::kFirst + 1>(q, second);
  WINDROW_UNROLL
  for (int v = 0; v < kVecs; v++) {
    const VU field = Keys::template Field<k>(Block<kVecs>::At(lines, v));
    AddCode<0>(pass, field, first, v, sums);
    AddCode<1>(pass, field, second, v, sums);
  }
  if constexpr (k + 1 < Keys::kFields) {
    VectorByVector<Pass, kQueries, kVecs, k + 1>(pass, lines, q + Keys::kCodes * kQueries, sums);
  }
}

// The tiles of a block of vectors, each with what lies as far into the tile that goes with it.
template <int kTiles>
struct Lines {
  const std::byte* at[kTiles];
  const std::byte* fetch[kTiles];  // asked for as `at` is read
  HWY_INLINE void Step(int count) {
    WINDROW_UNROLL
    for (int t = 0; t < kTiles; t++) {
      at[t] += count * 64;
      fetch[t] += count * 64;
    }
  }
};

// Requests for lines are dealt out over the passes, so that few are open at a time: what the pass asks for at
// a unit.
template <class Pass, int kTiles>
HWY_INLINE void FetchAt(const Lines<kTiles>& lines, int unit) {
  using Keys = typename Pass::Keys;
  constexpr int kPasses = Keys::kCodes / Keys::kPassCodes, kPass = Pass::kFirst / Keys::kPassCodes;
  constexpr int kTilesAPass = HWY_MAX(1, kTiles / kPasses), kPassesATile = HWY_MAX(1, kPasses / kTiles);
  constexpr int kFirstTile = kPass / kPassesATile * kTilesAPass;
  if (kPassesATile > 1 && unit % kPassesATile != kPass % kPassesATile) return;
  for (int word = 0; word < Keys::kWords; word++) {
    WINDROW_UNROLL
    for (int t = kFirstTile; t < HWY_MIN(kTiles, kFirstTile + kTilesAPass); t++)
      PrefetchLine(lines.fetch[t] + word * 64);
  }
}

// One pass over a group's lines.
template <class Pass, int kQueries, int kVecs, bool kFetch>
HWY_INLINE void RunPass(Lines<Block<kVecs>::kTiles> lines, int units, const float* q,
                        VF (&sums)[kQueries][kVecs]) {
  using Keys = typename Pass::Keys;
  const Pass pass;
  for (int unit = 0; unit < units; unit++) {
    if constexpr (kFetch) FetchAt<Pass>(lines, unit);
    if constexpr (Keys::kFieldBits == 32) {
      CodeByCode<Pass>(pass, lines.at, q, sums);
    } else {
      VectorByVector<Pass>(pass, lines.at, q, sums);
    }
    q += Keys::kFields * Keys::kCodes * kQueries;
    lines.Step(Keys::kWords);
  }
}

// All passes, kFirst and on.
template <class Keys, int kQueries, int kVecs, bool kFetch, int kFirst = 0>
HWY_INLINE void RunPasses(const Lines<Block<kVecs>::kTiles>& lines, int units, const float* q,
                          VF (&sums)[kQueries][kVecs]) {
  using Pass = typename Keys::template Pass<kFirst>;
  RunPass<Pass, kQueries, kVecs, kFetch>(lines, units, q, sums);
  if constexpr (kFirst + Pass::kCount < Keys::kCodes) {
    RunPasses<Keys, kQueries, kVecs, kFetch, kFirst + Pass::kCount>(lines, units, q, sums);
  }
}

// Vectors [first, first + kVecs) of positions, counted from the block's start, for kQueries queries from
// `query` on, whose panel is q; a group has `units` units. Tiles past the last repeat it; their scores go to
// padding.
template <class Keys, int kQueries, int kVecs>
HWY_INLINE void ScoreVectors(const KeyPass& pass, int groups, int units, const float* q, int query, int first,
                             bool fetch) {
  using B = Block<kVecs>;
  const DF df;
  const int first_tile = first / kVectors, offset = first % kVectors * kLanes * 4;
  Lines<B::kTiles> lines;
  const std::byte* params[B::kTiles];
  fetch = fetch && offset == 0;
  WINDROW_UNROLL
  for (int t = 0; t < B::kTiles; t++) {
    const int tile = HWY_MIN(first_tile + t, pass.tile_end - 1);
    lines.at[t] = pass.tiles->codes[tile] + offset;
    params[t] = pass.tiles->params[tile] + offset;
    fetch = fetch && tile >= pass.prefetch->begin && tile < pass.prefetch->end;
    lines.fetch[t] = fetch ? pass.prefetch->codes[tile] : lines.at[t];
  }
  if (fetch) {
    for (int t = 0; t < B::kTiles; t++)
      PrefetchParams(*pass.prefetch, HWY_MIN(first_tile + t, pass.tile_end - 1));
  }
  const float* q_sums = pass.q_sums + static_cast<std::size_t>(query) * static_cast<std::size_t>(groups);
  float* const scores =
      pass.scores + static_cast<std::size_t>(query) * kScoreStride + static_cast<std::size_t>(first) * kLanes;

  for (int g = 0; g < groups; g++) {
    VF sums[kQueries][kVecs];
    WINDROW_UNROLL
    for (int i = 0; i < kQueries; i++) {
      WINDROW_UNROLL
      for (int v = 0; v < kVecs; v++) sums[i][v] = hn::Zero(df);
    }
    if (fetch) {
      RunPasses<Keys, kQueries, kVecs, true>(lines, units, q, sums);
    } else {
      RunPasses<Keys, kQueries, kVecs, false>(lines, units, q, sums);
    }
    q += pass.group * kQueries;
    lines.Step(units * Keys::kWords);
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
          const VF q_sum = hn::Set(df, q_sums[i * groups + g]);
          const VF before = g == 0 ? hn::Zero(df) : hn::LoadU(df, score);
          hn::StoreU(hn::MulAdd(p.bias, q_sum, hn::MulAdd(sums[i][v], p.scale, before)), df, score);
        }
      }
    }
  }
  // The other tiles may have more lines.
  for (int line = groups * units * Keys::kWords; fetch && line < pass.prefetch->code_lines; line++) {
    WINDROW_UNROLL
    for (int t = 0; t < B::kTiles; t++) {
      PrefetchLine(lines.fetch[t]);
      lines.fetch[t] += 64;
    }
  }
}

template <class Keys, int kQueries>
HWY_NOINLINE void ScoreQueries(const KeyPass& pass, int query, bool fetch) {
  constexpr int kVecs = HWY_MIN(kSums / kQueries, 8);
  const int groups = pass.head_dim / pass.group, units = pass.group / (Keys::kFields * Keys::kCodes);
  const float* q = pass.q + static_cast<std::size_t>(query) * static_cast<std::size_t>(pass.head_dim);
  for (int first = pass.tile_begin * kVectors; first < pass.tile_end * kVectors; first += kVecs) {
    ScoreVectors<Keys, kQueries, kVecs>(pass, groups, units, q, query, first, fetch);
  }
}

template <class Keys>
void Score(const KeyPass& pass) {
  bool fetch = true;
  ForEachPanel(pass.queries, [&]<int kQueries>(int query) {
    if (query + kQueries <= pass.query_begin || query >= pass.query_end) return;
    ScoreQueries<Keys, kQueries>(pass, query, fetch);
    fetch = false;
  });
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
