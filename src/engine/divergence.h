// Two models' logits of the same tokens, compared token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "windrow/quality.h"
#include "windrow/threads.h"

namespace windrow {

// The softmax of a chunk of reference logits, kept for comparing others with it.
class ReferenceLogits {
 public:
  // Room for `tokens` tokens of `vocab` logits.
  ReferenceLogits(std::size_t tokens, std::size_t vocab)
      : vocab_(vocab),
        logits_(tokens * vocab),
        probabilities_(tokens * vocab),
        tops_(tokens),
        log_sums_(tokens) {}

  // To be filled with the logits of `tokens` tokens; then softmax() is called with the same number.
  std::span<float> logits(std::size_t tokens) { return std::span(logits_).first(tokens * vocab_); }
  // False if a logit is not finite; then `broken` is its index.
  bool softmax(std::size_t tokens, ThreadPool& pool, std::size_t* broken);

  // Of token t.
  const float* row(std::size_t t) const { return &logits_[t * vocab_]; }
  const double* probabilities(std::size_t t) const { return &probabilities_[t * vocab_]; }
  std::size_t top(std::size_t t) const { return tops_[t]; }
  double log_sum(std::size_t t) const { return log_sums_[t]; }  // log sum exp(logit)
  std::size_t vocab() const { return vocab_; }

 private:
  std::size_t vocab_;
  std::vector<float> logits_;
  std::vector<double> probabilities_;
  std::vector<std::size_t> tops_;
  std::vector<double> log_sums_;
};

// Gathers the divergence of one trial over all chunks of a text.
class DivergenceSum {
 public:
  // Logits [targets.size(), vocab] of the tokens that `reference` holds; targets[t] is the token that came.
  // False if a logit is not finite; then `broken` is its index and nothing was added.
  bool add(const ReferenceLogits& reference, std::span<const float> logits,
           std::span<const std::int32_t> targets, ThreadPool& pool, std::size_t* broken);
  // The reference against itself: no divergence, only what it makes of the targets.
  void add_reference(const ReferenceLogits& reference, std::span<const std::int32_t> targets);
  // REQUIRES that something was added.
  Divergence result() const;

 private:
  std::vector<double> klds_;  // of each token
  double nll_ = 0;
  std::size_t same_ = 0;
};

}  // namespace windrow
