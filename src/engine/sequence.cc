#include "engine/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/rank.h"

namespace windrow {

Sequence::Sequence(Request request, Sampler sampler)
    : request_(std::move(request)), sampler_(std::move(sampler)), tokens_(request_.prompt) {
  tokens_.reserve(tokens_.size() + static_cast<std::size_t>(request_.max_tokens));
}

Result<Sequence> Sequence::create(Request request) {
  Result<Sampler> sampler = Sampler::create(request.sampling);
  if (!sampler.ok()) return sampler.status();
  return Sequence(std::move(request), std::move(*sampler));
}

Result<std::int32_t> Sequence::choose(std::span<float> logits) {
  Result<std::int32_t> token = sampler_.sample(logits, tokens_, draws_);
  if (token.ok()) return token;
  // The sampler refuses logits only where the forward pass has gone wrong.
  return Status(StatusCode::kCorrupt,
                fmt::format("the model gives no probabilities for position {}: {} (its weights hold NaN or "
                            "infinities, or its numbers exceed f32)",
                            tokens_.size(), token.status().message()));
}

std::optional<FinishReason> Sequence::take(std::int32_t token, bool& taken) {
  draws_++;
  taken = std::ranges::find(request_.stop_ids, token) == request_.stop_ids.end();
  if (!taken) return FinishReason::kStop;
  tokens_.push_back(token);
  if (request_.stop && request_.stop(new_tokens())) return FinishReason::kStop;
  return left() == 0 ? std::optional(FinishReason::kLength) : std::nullopt;
}

TokenLogprob logprob_of(std::span<const float> logits, std::int32_t token, int count,
                        std::vector<TokenLogprob>& best) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l - top));
  const double log_sum = static_cast<double>(top) + std::log(sum);
  const auto of = [&](std::int32_t id) {
    return TokenLogprob{
        id, static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(id)]) - log_sum)};
  };
  best.clear();
  for (const std::int32_t id : largest(logits, static_cast<std::size_t>(std::max(count, 0)))) {
    best.push_back(of(id));
  }
  return of(token);
}

}  // namespace windrow
