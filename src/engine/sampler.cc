// The sampler: every step in a defined order, so that tokens depend on logits, seed and draw only.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "model/layers.h"
#include "windrow/engine.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

struct Sampler::Impl {
  SamplerOptions options;
  std::vector<float> weights;            // exp((logit - max) / temperature): the best has 1
  std::vector<std::int32_t> candidates;  // ids that the filters left
  std::vector<bool> seen;

  void penalize(std::span<float> logits, std::span<const std::int32_t> history);
  template <class Enough>
  void gather(const Enough& enough);
  void filter();
  std::int32_t pick(double u) const;

  // More probable first, the lower id of equals.
  bool before(std::int32_t a, std::int32_t b) const {
    const float x = weights[static_cast<std::size_t>(a)], y = weights[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  }
  double weight(std::int32_t id) const { return static_cast<double>(weights[static_cast<std::size_t>(id)]); }
  double mass() const {
    return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                           [&](double sum, std::int32_t id) { return sum + weight(id); });
  }
};

Sampler::Sampler(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

Result<Sampler> Sampler::create(const SamplerOptions& o) {
  // Each test is written so that NaN fails it.
  if (!(o.temperature >= 0 && o.temperature < kInfinity)) {
    return invalid(fmt::format("temperature {}: must be finite and at least 0", o.temperature));
  }
  if (o.top_k < 0) return invalid(fmt::format("top_k {}: must be at least 0 (0 turns it off)", o.top_k));
  if (!(o.top_p > 0 && o.top_p <= 1))
    return invalid(fmt::format("top_p {}: must be above 0 and at most 1", o.top_p));
  if (!(o.min_p >= 0 && o.min_p < 1))
    return invalid(fmt::format("min_p {}: must be at least 0 and below 1", o.min_p));
  if (!(o.repetition_penalty > 0 && o.repetition_penalty < kInfinity)) {
    return invalid(fmt::format("repetition_penalty {}: must be finite and above 0", o.repetition_penalty));
  }
  auto impl = std::make_unique<Impl>();
  impl->options = o;
  return Sampler(std::move(impl));
}

double Sampler::uniform(std::uint64_t seed, std::uint64_t draw) noexcept {
  // SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
  std::uint64_t z = seed + (draw + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

void Sampler::Impl::penalize(std::span<float> logits, std::span<const std::int32_t> history) {
  const float penalty = options.repetition_penalty;
  if (penalty == 1.0f) return;
  seen.assign(logits.size(), false);
  for (const std::int32_t id : history) {
    const std::size_t i = static_cast<std::size_t>(id);
    if (id < 0 || i >= logits.size() || seen[i]) continue;
    seen[i] = true;
    logits[i] = logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty;
  }
}

// candidates = the ids at and above a falling threshold, until enough(count, mass). Whatever the
// filters keep is among them, and a large vocabulary is never ranked as a whole.
template <class Enough>
void Sampler::Impl::gather(const Enough& enough) {
  for (float threshold = 0x1p-4f;; threshold = threshold > 0x1p-60f ? threshold * 0x1p-8f : 0.0f) {
    candidates.clear();
    for (std::size_t i = 0; i < weights.size(); i++) {
      if (weights[i] >= threshold) candidates.push_back(static_cast<std::int32_t>(i));
    }
    if (threshold == 0.0f || enough(candidates.size(), mass())) return;
  }
}

void Sampler::Impl::filter() {
  const auto order = [this](std::int32_t a, std::int32_t b) { return before(a, b); };
  const std::size_t k = options.top_k > 0 ? static_cast<std::size_t>(options.top_k) : weights.size();
  const double p = static_cast<double>(options.top_p);
  double total = 0;
  if (k < weights.size()) {
    gather([&](std::size_t count, double) { return count >= k; });
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(k - 1),
                     candidates.end(), order);
    candidates.resize(k);
    std::sort(candidates.begin(), candidates.end());  // sums run in order of ids
    total = mass();
  } else {
    for (const float w : weights) total += static_cast<double>(w);
    if (p < 1) {
      gather([&](std::size_t, double sum) { return sum >= p * total; });
    } else {
      gather([](std::size_t, double) { return false; });
    }
  }
  if (p < 1) {
    const auto worse = [&](std::int32_t a, std::int32_t b) { return before(b, a); };
    std::make_heap(candidates.begin(), candidates.end(), worse);
    auto end = candidates.end();
    for (double sum = 0; end != candidates.begin() && sum < p * total;) {
      std::pop_heap(candidates.begin(), end, worse);
      sum += weight(*--end);
    }
    candidates.erase(candidates.begin(), end);  // popped ones stand behind the heap
    std::sort(candidates.begin(), candidates.end());
  }
  const float least = options.min_p;  // times the best weight, which is 1
  std::erase_if(candidates, [&](std::int32_t id) { return weights[static_cast<std::size_t>(id)] < least; });
}

std::int32_t Sampler::Impl::pick(double u) const {
  const double target = u * mass();
  double sum = 0;
  std::int32_t last = candidates.back();
  for (const std::int32_t id : candidates) {
    sum += weight(id);
    if (sum > target) return id;
    if (weight(id) > 0) last = id;
  }
  return last;  // only by rounding of the sum
}

Result<std::int32_t> Sampler::sample(std::span<float> logits, std::span<const std::int32_t> history,
                                     std::uint64_t draw) {
  Impl& s = *impl_;
  if (logits.empty()) return invalid("sampler: no logits");
  s.penalize(logits, history);
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); i++) {
    if (std::isnan(logits[i]) || logits[i] == kInfinity) {
      return invalid(
          fmt::format("sampler: the logit of id {} is {}", i, std::isnan(logits[i]) ? "NaN" : "inf"));
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (logits[best] == -kInfinity) return invalid("sampler: every logit is -inf");
  if (s.options.temperature == 0) return static_cast<std::int32_t>(best);

  s.weights.resize(logits.size());
  const float scale = std::min(1.0f / s.options.temperature, std::numeric_limits<float>::max());
  exp_scaled(logits.data(), logits.size(), logits[best], scale, s.weights.data());
  s.filter();
  return s.pick(uniform(s.options.seed, draw));
}

}  // namespace windrow
