#include "engine/divergence.h"

#include <algorithm>
#include <cmath>

namespace windrow {
namespace {

// The largest logit (the lower index of equals) and the logarithm of the sum of exponentials.
struct LogSum {
  std::size_t top = 0;
  double value = 0;
};

LogSum log_sum_exp(std::span<const float> logits) {
  LogSum r;
  for (std::size_t i = 1; i < logits.size(); i++) {
    if (logits[i] > logits[r.top]) r.top = i;
  }
  const double most = logits[r.top];
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - most);
  r.value = most + std::log(sum);
  return r;
}

bool all_finite(std::span<const float> logits, std::size_t* broken) {
  const auto bad = std::find_if_not(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); });
  *broken = static_cast<std::size_t>(bad - logits.begin());
  return bad == logits.end();
}

// The smallest value that at least `share` of all are not above; `sorted` is not empty.
double percentile(std::span<const double> sorted, double share) {
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[std::min(sorted.size(), static_cast<std::size_t>(std::max(rank, 1.0))) - 1];
}

}  // namespace

double Divergence::perplexity() const noexcept { return std::exp(nll); }

bool ReferenceLogits::softmax(std::size_t tokens, ThreadPool& pool, std::size_t* broken) {
  if (!all_finite(logits(tokens), broken)) return false;
  pool.parallel_for(tokens, [&](std::size_t t, int) {
    const std::span<const float> x(row(t), vocab_);
    const LogSum sum = log_sum_exp(x);
    tops_[t] = sum.top;
    log_sums_[t] = sum.value;
    for (std::size_t i = 0; i < vocab_; i++) {
      probabilities_[t * vocab_ + i] = std::exp(static_cast<double>(x[i]) - sum.value);
    }
  });
  return true;
}

bool DivergenceSum::add(const ReferenceLogits& reference, std::span<const float> logits,
                        std::span<const std::int32_t> targets, ThreadPool& pool, std::size_t* broken) {
  if (!all_finite(logits, broken)) return false;
  const std::size_t vocab = reference.vocab(), before = klds_.size();
  std::vector<LogSum> sums(targets.size());
  klds_.resize(before + targets.size());
  pool.parallel_for(targets.size(), [&](std::size_t t, int) {
    const std::span<const float> y = logits.subspan(t * vocab, vocab);
    const float* x = reference.row(t);
    const double* p = reference.probabilities(t);
    sums[t] = log_sum_exp(y);
    double kld = 0;
    for (std::size_t i = 0; i < vocab; i++) {
      const double log_p = static_cast<double>(x[i]) - reference.log_sum(t);
      const double log_q = static_cast<double>(y[i]) - sums[t].value;
      kld += p[i] * (log_p - log_q);
    }
    klds_[before + t] = std::max(0.0, kld);  // rounding may leave a zero slightly negative
  });
  for (std::size_t t = 0; t < targets.size(); t++) {
    same_ += sums[t].top == reference.top(t);
    nll_ += sums[t].value - static_cast<double>(logits[t * vocab + static_cast<std::size_t>(targets[t])]);
  }
  return true;
}

void DivergenceSum::add_reference(const ReferenceLogits& reference, std::span<const std::int32_t> targets) {
  klds_.resize(klds_.size() + targets.size());
  same_ += targets.size();
  for (std::size_t t = 0; t < targets.size(); t++) {
    nll_ += reference.log_sum(t) - static_cast<double>(reference.row(t)[targets[t]]);
  }
}

Divergence DivergenceSum::result() const {
  std::vector<double> sorted = klds_;
  std::sort(sorted.begin(), sorted.end());
  const double count = static_cast<double>(klds_.size());
  Divergence d;
  for (const double kld : klds_) d.kld_mean += kld;
  d.kld_mean /= count;
  d.kld_median = percentile(sorted, 0.5);
  d.kld_p99 = percentile(sorted, 0.99);
  d.kld_max = sorted.back();
  d.same_top = static_cast<double>(same_) / count;
  d.nll = nll_ / count;
  return d;
}

}  // namespace windrow
