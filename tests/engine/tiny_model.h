// A model of a few hundred numbers whose logits depend on all that its state holds: a sliding, a full and a
// recurrent layer. It makes thousands of runs a second, and a wrong position, page or row shows at once.
#pragma once

#include <cmath>
#include <stdexcept>
#include <vector>

#include "windrow/attention.h"
#include "windrow/step_model.h"

namespace windrow::testing {

inline constexpr int kTinyVocab = 24, kTinyDim = 16, kTinyWindow = 5;

inline StatePlan tiny_plan(const Limits& limits, bool recurrent, const Codec& codec = Codec::f32()) {
  StatePlan::Builder builder(limits);
  builder.page_tokens(4);
  builder.attention({.layers = {0},
                     .window = kTinyWindow,
                     .kv_heads = 1,
                     .head_dim = kTinyDim * 2,
                     .keys = codec,
                     .values = codec});
  builder.attention({.layers = {1}, .kv_heads = 1, .head_dim = kTinyDim * 2, .keys = codec, .values = codec});
  if (recurrent)
    builder.recurrent({{2}, {{1, 1, kTinyDim, kTinyDim, DecayGate::kScalar}, {3 * kTinyDim, 2}}});
  Result<StatePlan> plan = builder.build();
  if (!plan.ok()) throw std::runtime_error(plan.status().message());
  return *plan;
}

class TinyModel final : public StepModel {
 public:
  // `seed` makes the numbers; a draft model with another seed of `mixed` agrees now and then.
  TinyModel(const StatePlan& plan, bool recurrent, unsigned seed = 1)
      : kernels_(*AttentionKernels::select(plan)), recurrent_(recurrent), seed_(seed) {}

  int vocab_size() const override { return kTinyVocab; }
  int fail_in = -1;  // steps until one fails; below 0: never

  Status forward(Step& step, std::span<const std::int32_t> ids, std::span<const std::int32_t> wanted,
                 std::span<float> logits) override {
    const std::size_t n = ids.size(), width = kTinyDim * 2;
    const std::span<const std::int32_t> positions = step.positions();
    std::vector<float> k(n * width), v(n * width), q(n * width), out(n * width), sum(n * width);
    for (std::size_t t = 0; t < n; t++) {
      for (std::size_t i = 0; i < width; i++) {
        const float e = number(ids[t], static_cast<int>(i), 0);
        k[t * width + i] = e + 0.3f * number(positions[t], static_cast<int>(i), 1);
        v[t * width + i] =
            number(ids[t], static_cast<int>(i), 2) + 0.5f * number(positions[t] % 7, static_cast<int>(i), 3);
        q[t * width + i] = number(ids[t], static_cast<int>(i), 4);
      }
    }
    if (fail_in >= 0 && fail_in-- == 0) return {StatusCode::kInternal, "the model was told to fail"};
    for (const int layer : {0, 1}) {
      if (Status s = step.append(layer, k, v); !s.ok()) return s;
      Result<KvRead> read = step.read(layer);
      if (!read.ok()) return read.status();
      if (Status s = kernels_.attend(*read, q, {.q_heads = 1, .scale = 0.5f}, out, nullptr); !s.ok())
        return s;
      for (std::size_t i = 0; i < sum.size(); i++) sum[i] += out[i];
    }
    if (recurrent_) {
      if (Status s = run_recurrent(step, v, sum); !s.ok()) return s;
    }
    for (std::size_t w = 0; w < wanted.size(); w++) {
      const float* x = &sum[static_cast<std::size_t>(wanted[w]) * width];
      for (int id = 0; id < kTinyVocab; id++) {
        float l = 0;
        for (std::size_t i = 0; i < width; i++) l += x[i] * number(id, static_cast<int>(i), 5);
        logits[w * kTinyVocab + static_cast<std::size_t>(id)] = l;
      }
    }
    return {};
  }

 private:
  Status run_recurrent(Step& step, const std::vector<float>& v, std::vector<float>& sum) const {
    const std::size_t n = v.size() / (kTinyDim * 2);
    std::vector<float> x(n * 3 * kTinyDim), y(n * kTinyDim), g(n, 0.9f), beta(n, 0.5f);
    for (std::size_t t = 0; t < n; t++) {
      for (std::size_t i = 0; i < 3 * kTinyDim; i++)
        x[t * 3 * kTinyDim + i] = v[t * kTinyDim * 2 + i % (kTinyDim * 2)] / 8;
    }
    std::vector<float> taps(2 * 3 * kTinyDim, 0.5f);
    if (Status s = step.convolve(2, x, taps, Activation::kNone, x); !s.ok()) return s;
    std::vector<float> parts[3];
    for (std::size_t t = 0; t < n; t++) {
      for (std::size_t p = 0; p < 3; p++) {
        parts[p].insert(parts[p].end(), &x[(t * 3 + p) * kTinyDim], &x[(t * 3 + p) * kTinyDim] + kTinyDim);
      }
    }
    if (Status s = step.advance(2, {parts[0], parts[1], parts[2], g, beta}, y); !s.ok()) return s;
    for (std::size_t t = 0; t < n; t++) {
      for (std::size_t i = 0; i < kTinyDim; i++) sum[t * kTinyDim * 2 + i] += 4 * y[t * kTinyDim + i];
    }
    return {};
  }

  // Uniform in [-1, 1), of three numbers: SplitMix64.
  float number(int a, int b, int c) const {
    std::uint64_t z =
        (static_cast<std::uint64_t>(static_cast<unsigned>(a)) * 1000003u + static_cast<unsigned>(b)) * 31u +
        static_cast<unsigned>(c) * 7919u + seed_ * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return static_cast<float>(z >> 40) * 0x1p-23f - 1;
  }

  AttentionKernels kernels_;
  bool recurrent_;
  std::uint64_t seed_;
};

}  // namespace windrow::testing
