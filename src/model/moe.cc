#include "model/moe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/rank.h"
#include "model/mlp.h"

namespace windrow {
namespace {

struct Expert {
  Linear gate, up, down;
};

class Moe final : public FeedForward {
 public:
  Moe(std::size_t hidden, const MoeConfig& config, const MoeSpec& spec)
      : hidden_(hidden),
        inner_(static_cast<std::size_t>(config.intermediate_size)),
        count_(static_cast<std::size_t>(config.experts)),
        chosen_(static_cast<std::size_t>(config.experts_per_token)),
        limit_(static_cast<float>(config.swiglu_limit)),
        normalize_(config.norm_topk_prob),
        spec_(spec),
        experts_(count_) {}

  Status read(WeightReader& weights, const std::string& prefix, std::size_t shared_inner);
  std::size_t scratch_floats(std::size_t tokens) const override {
    Carver scratch;
    carve(scratch, tokens);
    return scratch.used() + (shared_ ? shared_->scratch_floats(tokens) : 0);
  }
  void run(const Pass& pass, const float* h, std::size_t tokens, Carver scratch, float* y,
           LapClock& clock) const override;

 private:
  // Slot s of token t is its expert of the s-th highest score; `place` is where that pair stands when pairs
  // are sorted by expert, then by token.
  struct Buffers {
    float* scores;             // [tokens, experts]
    float* weights;            // [tokens, chosen]
    std::int32_t* expert;      // [tokens, chosen]
    std::int32_t* place;       // [tokens, chosen]
    float *x, *gate, *up, *y;  // [tokens * chosen, ...], sorted
    float *shared, *shared_gate;
  };
  Buffers carve(Carver& scratch, std::size_t tokens) const;
  Status read_experts(WeightReader& weights, const std::string& prefix);
  Status read_single(WeightReader& weights, const std::string& prefix);
  Status read_stacked(WeightReader& weights, const std::string& prefix);
  Status read_alternating(WeightReader& weights, const std::string& prefix);
  void choose(const float* scores, float* weights, std::int32_t* expert) const;
  std::vector<std::size_t> sort(const Buffers& b, std::size_t tokens) const;
  void run_expert(const Pass& pass, const Expert& e, std::size_t first, std::size_t tokens,
                  const Buffers& b) const;

  std::size_t hidden_, inner_, count_, chosen_;
  float limit_;
  bool normalize_;
  MoeSpec spec_;
  Linear router_, shared_gate_;
  std::vector<Expert> experts_;
  std::unique_ptr<FeedForward> shared_;
};

Status Moe::read(WeightReader& weights, const std::string& prefix, std::size_t shared_inner) {
  if (Status s = read_linear(weights, prefix + "." + spec_.router, count_, hidden_, spec_.bias, router_);
      !s.ok())
    return s;
  if (shared_inner != 0) {
    const MlpSpec mlp{.gate = spec_.gate};
    Status s = put(read_mlp(weights, prefix + ".shared_expert", hidden_, shared_inner, mlp), shared_);
    if (s.ok()) s = read_linear(weights, prefix + ".shared_expert_gate", 1, hidden_, false, shared_gate_);
    if (!s.ok()) return s;
  }
  return read_experts(weights, prefix);
}

Status Moe::read_experts(WeightReader& weights, const std::string& prefix) {
  for (const char* stack : {".switch_mlp", ".experts"}) {
    if (weights.has(prefix + stack + ".gate_proj.weight")) return read_stacked(weights, prefix + stack);
  }
  for (const char* part : {".experts.gate_up_proj_blocks", ".experts.gate_up_proj_scales"}) {
    if (weights.has(prefix + part)) {
      return weights.unsupported(prefix + part,
                                 "MXFP4 experts are not supported; an affine conversion (MLX) is");
    }
  }
  if (weights.has(prefix + ".experts.gate_up_proj")) return read_alternating(weights, prefix + ".experts");
  return read_single(weights, prefix + ".experts");
}

Status Moe::read_single(WeightReader& weights, const std::string& prefix) {
  for (std::size_t e = 0; e < count_; e++) {
    const std::string name = fmt::format("{}.{}", prefix, e);
    Status s = read_linear(weights, name + ".gate_proj", inner_, hidden_, spec_.bias, experts_[e].gate);
    if (s.ok()) s = read_linear(weights, name + ".up_proj", inner_, hidden_, spec_.bias, experts_[e].up);
    if (s.ok()) s = read_linear(weights, name + ".down_proj", hidden_, inner_, spec_.bias, experts_[e].down);
    if (!s.ok()) return s;
  }
  return {};
}

Status Moe::read_stacked(WeightReader& weights, const std::string& prefix) {
  const struct {
    const char* name;
    Linear Expert::*to;
    std::size_t rows, cols;
  } parts[] = {{".gate_proj", &Expert::gate, inner_, hidden_},
               {".up_proj", &Expert::up, inner_, hidden_},
               {".down_proj", &Expert::down, hidden_, inner_}};
  for (const auto& p : parts) {
    Result<std::vector<float>> bias(std::vector<float>{});
    if (spec_.bias) bias = weights.floats(prefix + p.name + ".bias", {count_, p.rows}, 0.0f);
    if (!bias.ok()) return bias.status();
    for (std::size_t e = 0; e < count_; e++) {
      Linear& to = experts_[e].*p.to;
      Status s = put(weights.stacked(prefix + p.name + ".weight", count_, e, p.rows, p.cols), to.weight);
      if (!s.ok()) return s;
      if (!spec_.bias) continue;
      const auto from = bias->begin() + static_cast<std::ptrdiff_t>(e * p.rows);
      to.bias.assign(from, from + static_cast<std::ptrdiff_t>(p.rows));
    }
  }
  return {};
}

// [experts, hidden, 2 inner]: outputs run along the last dimension, gate and up by turns.
Status Moe::read_alternating(WeightReader& weights, const std::string& prefix) {
  const auto part = [&](const std::string& name, std::size_t cols, std::size_t all, std::size_t first,
                        std::size_t step, Linear Expert::*to) -> Status {
    Result<std::vector<float>> bias(std::vector<float>{});
    if (spec_.bias) bias = weights.floats(name + "_bias", {count_, all}, 0.0f);
    if (!bias.ok()) return bias.status();
    for (std::size_t e = 0; e < count_; e++) {
      Linear& linear = experts_[e].*to;
      Status s = put(weights.transposed(name, count_, e, cols, all, first, step), linear.weight);
      if (!s.ok()) return s;
      for (std::size_t i = first; spec_.bias && i < all; i += step)
        linear.bias.push_back((*bias)[e * all + i]);
    }
    return {};
  };
  Status s = part(prefix + ".gate_up_proj", hidden_, 2 * inner_, 0, 2, &Expert::gate);
  if (s.ok()) s = part(prefix + ".gate_up_proj", hidden_, 2 * inner_, 1, 2, &Expert::up);
  if (s.ok()) s = part(prefix + ".down_proj", inner_, hidden_, 0, 1, &Expert::down);
  return s;
}

Moe::Buffers Moe::carve(Carver& scratch, std::size_t tokens) const {
  const std::size_t pairs = tokens * chosen_;
  const auto ints = [&] { return reinterpret_cast<std::int32_t*>(scratch.cut(pairs, 1)); };
  Buffers b{};
  b.scores = scratch.cut(tokens, count_);
  b.weights = scratch.cut(pairs, 1);
  b.expert = ints();
  b.place = ints();
  b.x = scratch.cut(pairs, hidden_);
  b.gate = scratch.cut(pairs, inner_);
  b.up = scratch.cut(pairs, inner_);
  b.y = scratch.cut(pairs, hidden_);
  if (shared_) b.shared = scratch.cut(tokens, hidden_);
  if (shared_) b.shared_gate = scratch.cut(tokens, 1);
  return b;
}

// Softmax of the chosen scores; `total` sums over them or, first, over all.
void Moe::choose(const float* scores, float* weights, std::int32_t* expert) const {
  // The weight of a NaN spoils the token's sum, whoever is chosen.
  const std::vector<std::int32_t> order = largest({scores, count_}, chosen_);
  const float best = scores[static_cast<std::size_t>(order[0])];
  const auto weight = [&](std::int32_t e) { return std::exp(scores[static_cast<std::size_t>(e)] - best); };
  float total = 0;
  if (spec_.softmax_of_chosen || normalize_) {
    for (const std::int32_t e : order) total += weight(e);
  } else {
    for (std::size_t e = 0; e < count_; e++) total += weight(static_cast<std::int32_t>(e));
  }
  for (std::size_t s = 0; s < chosen_; s++) {
    expert[s] = order[s];
    weights[s] = weight(order[s]) / total;
  }
}

// Fills `place`; the result [experts + 1] says where each expert's pairs begin.
std::vector<std::size_t> Moe::sort(const Buffers& b, std::size_t tokens) const {
  std::vector<std::size_t> begin(count_ + 1, 0);
  for (std::size_t i = 0; i < tokens * chosen_; i++) begin[static_cast<std::size_t>(b.expert[i]) + 1]++;
  for (std::size_t e = 0; e < count_; e++) begin[e + 1] += begin[e];
  std::vector<std::size_t> next(begin.begin(), begin.end() - 1);
  for (std::size_t i = 0; i < tokens * chosen_; i++) {
    b.place[i] = static_cast<std::int32_t>(next[static_cast<std::size_t>(b.expert[i])]++);
  }
  return begin;
}

void Moe::run_expert(const Pass& pass, const Expert& e, std::size_t first, std::size_t tokens,
                     const Buffers& b) const {
  float *gate = b.gate + first * inner_, *up = b.up + first * inner_;
  const LinearOutput gate_up[] = {{&e.gate, gate}, {&e.up, up}};
  linear(gate_up, b.x + first * hidden_, tokens, pass.pool);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    gate_mul(spec_.gate, gate + t * inner_, up + t * inner_, inner_, limit_, gate + t * inner_);
  });
  linear(e.down, gate, tokens, b.y + first * hidden_, pass.pool);
}

void Moe::run(const Pass& pass, const float* h, std::size_t tokens, Carver scratch, float* y,
              LapClock& clock) const {
  const Buffers b = carve(scratch, tokens);
  linear(router_, h, tokens, b.scores, pass.pool);
  clock.lap(&ForwardProfile::products);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    choose(b.scores + t * count_, b.weights + t * chosen_, b.expert + t * chosen_);
  });
  const std::vector<std::size_t> begin = sort(b, tokens);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    for (std::size_t s = t * chosen_; s < (t + 1) * chosen_; s++) {
      std::copy_n(h + t * hidden_, hidden_, b.x + static_cast<std::size_t>(b.place[s]) * hidden_);
    }
  });
  clock.lap(&ForwardProfile::layers);
  for (std::size_t e = 0; e < count_; e++) {
    if (begin[e] != begin[e + 1]) run_expert(pass, experts_[e], begin[e], begin[e + 1] - begin[e], b);
  }
  clock.lap(&ForwardProfile::products);
  if (shared_) {
    shared_->run(pass, h, tokens, scratch, b.shared, clock);
    linear(shared_gate_, h, tokens, b.shared_gate, pass.pool);
    clock.lap(&ForwardProfile::products);
  }
  each_token(pass.pool, tokens, [&](std::size_t t) {
    float* out = y + t * hidden_;
    std::fill_n(out, hidden_, 0.0f);
    for (std::size_t s = t * chosen_; s < (t + 1) * chosen_; s++) {
      add_scaled(b.y + static_cast<std::size_t>(b.place[s]) * hidden_, b.weights[s], hidden_, out);
    }
    if (shared_)
      add_scaled(b.shared + t * hidden_, 1.0f / (1.0f + std::exp(-b.shared_gate[t])), hidden_, out);
  });
  clock.lap(&ForwardProfile::layers);
}

}  // namespace

Result<std::unique_ptr<FeedForward>> read_moe(WeightReader& weights, const std::string& prefix,
                                              std::size_t hidden, const MoeConfig& config,
                                              const MoeSpec& spec) {
  auto moe = std::make_unique<Moe>(hidden, config, spec);
  if (Status s = moe->read(weights, prefix, static_cast<std::size_t>(config.shared_intermediate_size));
      !s.ok())
    return s;
  return std::unique_ptr<FeedForward>(std::move(moe));
}

}  // namespace windrow
