// What lies between scores and mix: folding queries, the online softmax, the params of the values.
#include <limits>

#include "attention/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/softmax.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "attention/unpack-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace windrow::internal::HWY_NAMESPACE {
namespace {

// Weights below exp(-60) = 9e-27 of the largest count as zero: nothing of them reaches an f32 result,
// and products with a scale stay out of the slow denormals.
constexpr float kLowest = -60.0f;
// Where the running maximum starts: below any score, and finite, so that differences are numbers.
constexpr float kStartTop = -1e30f;

// exp(x) for x <= 0 to about 1 ulp, 0 below kLowest; NaN stays NaN. x = n ln 2 + r, |r| <= ln(2) / 2, and
// the Taylor series of exp(r) up to r^7, whose remainder is 0.35^8 / 8! = 5e-9.
HWY_INLINE VF ExpOfNegative(VF x) {
  const DF df;
  const DU du;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const VF magic = hn::Set(df, 0x1.8p23f);
  const VF shifted = hn::MulAdd(x, hn::Set(df, 0x1.715476p0f), magic);  // log2(e)
  const VF n = hn::Sub(shifted, magic);
  VF r = hn::NegMulAdd(n, hn::Set(df, 0x1.62e4p-1f), x);  // ln(2), 15 bits: n * it is exact
  r = hn::NegMulAdd(n, hn::Set(df, 0x1.7f7d1cp-20f), r);  // the rest of ln(2)
  VF y = hn::Set(df, 1.0f / 5040);
  y = hn::MulAdd(y, r, hn::Set(df, 1.0f / 720));
  y = hn::MulAdd(y, r, hn::Set(df, 1.0f / 120));
  y = hn::MulAdd(y, r, hn::Set(df, 1.0f / 24));
  y = hn::MulAdd(y, r, hn::Set(df, 1.0f / 6));
  y = hn::MulAdd(y, r, hn::Set(df, 0.5f));
  y = hn::MulAdd(y, r, hn::Set(df, 1.0f));
  y = hn::MulAdd(y, r, hn::Set(df, 1.0f));
  // 2^n: the exponent field of n + 127; the shift drops the magic's own bits.
  const VF power = hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(hn::BitCast(du, shifted), hn::Set(du, 127))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(df, kLowest)), hn::Mul(y, power));
}

// A panel's queries, side by side for each dim.
template <int kQueries>
void PackPanel(const float* const* q, int head_dim, const float* fold, float* panel) {
  const DF df;
  for (int d = 0; d < head_dim; d += kLanes, panel += kLanes * kQueries) {
    const VF by = hn::LoadU(df, fold + d % kFoldPeriod);
    const auto folded = [&](int i) { return hn::Mul(hn::LoadU(df, q[i] + d), by); };
    if constexpr (kQueries == 1) {
      hn::StoreU(folded(0), df, panel);
    } else if constexpr (kQueries == 2) {
      hn::StoreInterleaved2(folded(0), folded(1), df, panel);
    } else {
      hn::StoreInterleaved4(folded(0), folded(1), folded(2), folded(3), df, panel);
    }
  }
}

void PackQueries(const float* const* q, int queries, int head_dim, int group, const float* fold,
                 float* panels, float* sums) {
  const DF df;
  for (int i = 0; i < queries; i++) {
    for (int begin = 0; begin < head_dim; begin += group) {
      VF sum = hn::Zero(df);
      for (int d = begin; d < begin + group; d += kLanes) sum = hn::Add(sum, hn::LoadU(df, q[i] + d));
      *sums++ = hn::GetLane(hn::SumOfLanes(df, sum));
    }
  }
  ForEachPanel(queries, [&]<int kQueries>(int i) {
    PackPanel<kQueries>(q + i, head_dim, fold, panels + i * head_dim);
  });
}

void BeginSoftmax(SoftmaxState& state) {
  state.seen = false;
  state.top = kStartTop;
  for (float& sum : state.sums) sum = 0;
}

float SoftmaxSum(const SoftmaxState& state) {
  const DF df;
  return hn::GetLane(hn::SumOfLanes(df, hn::LoadU(df, state.sums)));
}

// scale, softcap and mask one vector of scores; outside the range it becomes -inf, whatever it was.
template <bool kCap>
HWY_INLINE VF FinishScore(VF dot, VF position, VF begin, VF end, VF scale, VF cap, VF inverse_cap) {
  VF score = hn::Mul(dot, scale);
  if constexpr (kCap) {
    const VF ratio = hn::Mul(score, inverse_cap);
    score = hn::IfThenElse(hn::Eq(ratio, ratio), hn::Mul(cap, hn::Tanh(DF(), ratio)), ratio);  // NaN stays
  }
  const auto visible = hn::And(hn::Ge(position, begin), hn::Lt(position, end));
  return hn::IfThenElse(visible, score, hn::Set(DF(), -std::numeric_limits<float>::infinity()));
}

template <bool kCap>
HWY_INLINE float SoftmaxOf(SoftmaxState& state, const SoftmaxPass& pass) {
  const DF df;
  const int count = pass.tiles * kTile;
  const VF scale = hn::Set(df, pass.scale), cap = hn::Set(df, pass.softcap);
  const VF inverse_cap = hn::Set(df, kCap ? 1.0f / pass.softcap : 0.0f);
  const VF begin = hn::Set(df, static_cast<float>(pass.begin)),
           end = hn::Set(df, static_cast<float>(pass.end));
  VF position = hn::Iota(df, 0.0f);
  const VF step = hn::Set(df, static_cast<float>(kLanes));
  VF highest = hn::Set(df, kStartTop);
  for (int i = 0; i < count; i += kLanes, position = hn::Add(position, step)) {
    const VF score =
        FinishScore<kCap>(hn::LoadU(df, pass.scores + i), position, begin, end, scale, cap, inverse_cap);
    hn::StoreU(score, df, pass.scores + i);
    highest = hn::Max(highest, score);
  }
  const float before = state.top;
  const float top = HWY_MAX(before, hn::GetLane(hn::MaxOfLanes(df, highest)));
  const VF shift = hn::Set(df, top);
  const float factor = hn::GetLane(ExpOfNegative(hn::Set(df, before - top)));
  // Lane j holds the positions p with p mod lanes = j: tiles are aligned, so a position's lane is its own.
  VF sum = hn::Zero(df);
  for (int i = 0; i < count; i += kLanes) {
    const VF weight = ExpOfNegative(hn::Sub(hn::LoadU(df, pass.scores + i), shift));
    hn::StoreU(weight, df, pass.scores + i);
    sum = hn::Add(sum, weight);
  }
  hn::StoreU(hn::MulAdd(hn::LoadU(df, state.sums), hn::Set(df, factor), sum), df, state.sums);
  state.top = top;
  return factor;
}

float Softmax(SoftmaxState& state, const SoftmaxPass& pass) {
  return pass.softcap > 0 ? SoftmaxOf<true>(state, pass) : SoftmaxOf<false>(state, pass);
}

void Rescale(float* values, int count, float factor) {
  const DF df;
  const VF by = hn::Set(df, factor);
  for (int i = 0; i < count; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(df, values + i), by), df, values + i);
}

void Merge(const QueryState& before, const QueryState& after, int dims, int bias_row) {
  const DF df;
  SoftmaxState &first = *before.softmax, &second = *after.softmax;
  const float top = HWY_MAX(first.top, second.top);
  const VF by = ExpOfNegative(hn::Set(df, first.top - top));
  const VF by_after = ExpOfNegative(hn::Set(df, second.top - top));
  const auto fold = [&](float* to, const float* from, int count) {
    for (int i = 0; i < count; i += kLanes) {
      const VF scaled = hn::Mul(hn::LoadU(df, to + i), by);
      hn::StoreU(hn::MulAdd(hn::LoadU(df, from + i), by_after, scaled), df, to + i);
    }
  };
  fold(first.sums, second.sums, kLanes);
  fold(before.out, after.out, dims);
  fold(before.mix_bias, after.mix_bias, bias_row);
  first.top = top;
}

// One tile and group: weights out, bias sums into `sums`. kMasked: some of its positions are not visible;
// what they hold may be NaN and is taken as zero.
template <DType kType, bool kMasked>
HWY_INLINE void WeighTile(const WeighPass& pass, int group, int first, VF (&sums)[kVectors]) {
  const DF df;
  const std::byte* const params = pass.tiles->params[first / kTile];
  const float* const probabilities = pass.probability + first;
  float* const weights = pass.weights + group * kBlock + first;
  WINDROW_UNROLL
  for (int v = 0; v < kVectors; v++) {
    ScaleBias p = LoadParams(params + v * kLanes * 4, kType, group);
    VF probability = hn::LoadU(df, probabilities + v * kLanes);
    if constexpr (kMasked) {
      const VF position = hn::Iota(df, static_cast<float>(first + v * kLanes));
      const auto visible = hn::And(hn::Ge(position, hn::Set(df, static_cast<float>(pass.begin))),
                                   hn::Lt(position, hn::Set(df, static_cast<float>(pass.end))));
      probability = hn::IfThenElseZero(visible, probability);
      p.bias = hn::IfThenElseZero(visible, p.bias);
    }
    hn::StoreU(hn::Mul(probability, p.scale), df, weights + v * kLanes);
    sums[v] = hn::MulAdd(probability, p.bias, sums[v]);
  }
}

template <DType kType>
void WeighTiles(const WeighPass& pass) {
  const DF df;
  for (int g = 0; g < pass.groups; g++) {
    float* const mix_bias = pass.mix_bias + g * kTile;
    VF sums[kVectors];  // a position's lane of its tile is its own
    WINDROW_UNROLL
    for (int v = 0; v < kVectors; v++) sums[v] = hn::LoadU(df, mix_bias + v * kLanes);
    for (int p = pass.begin / kTile * kTile; p < pass.end; p += kTile) {
      if (p < pass.begin || p + kTile > pass.end) {
        WeighTile<kType, true>(pass, g, p, sums);
      } else {
        WeighTile<kType, false>(pass, g, p, sums);
      }
    }
    WINDROW_UNROLL
    for (int v = 0; v < kVectors; v++) hn::StoreU(sums[v], df, mix_bias + v * kLanes);
  }
}

void Weigh(const WeighPass& pass) {
  (pass.param_type == DType::kF32   ? WeighTiles<DType::kF32>
   : pass.param_type == DType::kF16 ? WeighTiles<DType::kF16>
                                    : WeighTiles<DType::kBF16>)(pass);
}

void Finish(const float* sums, int dims, int group, const float* fold, const float* mix_bias, float factor,
            float* result) {
  const DF df;
  const VF by = hn::Set(df, factor);
  for (int begin = 0; begin < dims; begin += group, mix_bias += kTile) {
    VF lanes = hn::LoadU(df, mix_bias);
    for (int v = 1; v < kVectors; v++) lanes = hn::Add(lanes, hn::LoadU(df, mix_bias + v * kLanes));
    const VF bias = hn::Set(df, hn::GetLane(hn::SumOfLanes(df, lanes)));
    for (int d = begin; d < begin + group; d += kLanes) {
      const VF value = hn::MulAdd(hn::LoadU(df, sums + d), hn::LoadU(df, fold + d % kFoldPeriod), bias);
      hn::StoreU(hn::Mul(value, by), df, result + d);
    }
  }
}

void Select(Kernels& kernels) {
  kernels.target = hwy::TargetName(HWY_TARGET);
  kernels.lanes = kLanes;
  kernels.converts_f16 = WINDROW_HAS_F16;
  kernels.pack_queries = PackQueries;
  kernels.begin_softmax = BeginSoftmax;
  kernels.softmax = Softmax;
  kernels.softmax_sum = SoftmaxSum;
  kernels.rescale = Rescale;
  kernels.merge = Merge;
  kernels.weigh = Weigh;
  kernels.finish = Finish;
}

}  // namespace
}  // namespace windrow::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow::internal {
HWY_EXPORT(Select);
void select_softmax_kernels(Kernels& kernels) { HWY_DYNAMIC_DISPATCH(Select)(kernels); }
}  // namespace windrow::internal
#endif
