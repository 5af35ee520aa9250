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

// Odd and even lanes of an f32 param stream: (scale, bias) pairs.
void UnpackWideParams(const std::uint32_t* words, int count, float* scales, float* biases) {
  for (int i = 0; i < count; i++) {
    std::memcpy(&scales[i], &words[2 * i], 4);
    std::memcpy(&biases[i], &words[2 * i + 1], 4);
  }
}

template <DType kType>
HWY_INLINE void UnpackNarrowParams(const std::uint32_t* words, int count, float* scales, float* biases) {
  const DF df;
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VU word = hn::LoadU(DU(), words + i);
    hn::StoreU(LowNumber<kType>(word), df, scales + i);
    hn::StoreU(HighNumber<kType>(word), df, biases + i);
  }
  // Params may end where their memory ends.
  const std::size_t left = static_cast<std::size_t>(count - i);
  if (left == 0 || left >= kLanes) return;
  std::uint32_t rest[kLanes] = {};
  std::memcpy(rest, words + i, left * 4);
  const VU word = hn::LoadU(DU(), rest);
  hn::StoreU(LowNumber<kType>(word), df, scales + i);
  hn::StoreU(HighNumber<kType>(word), df, biases + i);
}

void UnpackParams(const std::uint32_t* words, int count, DType type, float* scales, float* biases) {
  if (type == DType::kF32) return UnpackWideParams(words, count, scales, biases);
  if (type == DType::kBF16) return UnpackNarrowParams<DType::kBF16>(words, count, scales, biases);
  UnpackNarrowParams<DType::kF16>(words, count, scales, biases);
}

void FoldQuery(const float* q, int head_dim, int group, const float* fold, float* folded, float* sums) {
  const DF df;
  for (int begin = 0; begin < head_dim; begin += group) {
    VF sum = hn::Zero(df);
    for (int d = begin; d < begin + group; d += kLanes) {
      const VF v = hn::LoadU(df, q + d);
      sum = hn::Add(sum, v);
      hn::StoreU(hn::Mul(v, hn::LoadU(df, fold + d % kFoldPeriod)), df, folded + d);
    }
    sums[begin / group] = hn::GetLane(hn::SumOfLanes(df, sum));
  }
}

void BeginSoftmax(SoftmaxState& state) {
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
  VF sum = hn::Mul(hn::LoadU(df, state.sums), hn::Set(df, factor));
  for (int i = 0; i < count; i += kLanes) {
    const VF weight = ExpOfNegative(hn::Sub(hn::LoadU(df, pass.scores + i), shift));
    hn::StoreU(weight, df, pass.scores + i);
    sum = hn::Add(sum, weight);
  }
  hn::StoreU(sum, df, state.sums);
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

void Weigh(const float* probability, int positions, int first, int groups, const float* scales,
           const float* biases, float* weights, float* mix_bias) {
  const DF df;
  // Lanes past the last group take the next position's params. Their weights are overwritten by that
  // position's own, since groups are done from the last to the first; their bias sums are unused.
  for (int g = (groups - 1) / kLanes * kLanes; g >= 0; g -= kLanes) {
    VF chains[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
    for (int p = 0; p < positions; p++) {
      const VF probable = hn::Set(df, probability[p]);
      const std::size_t at =
          static_cast<std::size_t>(p) * static_cast<std::size_t>(groups) + static_cast<std::size_t>(g);
      hn::StoreU(hn::Mul(probable, hn::LoadU(df, scales + at)), df, weights + at);
      VF& chain = chains[(first + p) % 4];
      chain = hn::MulAdd(probable, hn::LoadU(df, biases + at), chain);
    }
    const VF sum = hn::Add(hn::Add(chains[0], chains[1]), hn::Add(chains[2], chains[3]));
    hn::StoreU(hn::Add(hn::LoadU(df, mix_bias + g), sum), df, mix_bias + g);
  }
}

void Finish(const float* sums, int dims, int group, const float* fold, const float* mix_bias, float factor,
            float* result) {
  const DF df;
  const VF by = hn::Set(df, factor);
  for (int d = 0; d < dims; d += kLanes) {
    const VF bias = hn::Set(df, mix_bias[d / group]);
    const VF value = hn::MulAdd(hn::LoadU(df, sums + d), hn::LoadU(df, fold + d % kFoldPeriod), bias);
    hn::StoreU(hn::Mul(value, by), df, result + d);
  }
}

void Select(Kernels& kernels) {
  kernels.target = hwy::TargetName(HWY_TARGET);
  kernels.fold_query = FoldQuery;
  kernels.begin_softmax = BeginSoftmax;
  kernels.softmax = Softmax;
  kernels.softmax_sum = SoftmaxSum;
  kernels.rescale = Rescale;
  kernels.unpack_params = UnpackParams;
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
