// One request's text as it grows: what was fed, what comes next, when it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "windrow/engine.h"
#include "windrow/scheduler.h"

namespace windrow {

class Sequence {
 public:
  static Result<Sequence> create(Request request);

  const Request& request() const noexcept { return request_; }
  // Prompt and new tokens. The first fed() of them are in the state.
  std::span<const std::int32_t> tokens() const noexcept { return tokens_; }
  std::size_t fed() const noexcept { return fed_; }
  void add_fed(std::size_t count) noexcept { fed_ += count; }
  std::size_t unfed() const noexcept { return tokens_.size() - fed_; }
  // All but the last prompt token were fed: what is fed next has logits that count.
  bool decoding() const noexcept { return unfed() == 1; }
  std::span<const std::int32_t> new_tokens() const noexcept {
    return std::span(tokens_).subspan(request_.prompt.size());
  }
  // Tokens that may still come.
  int left() const noexcept { return request_.max_tokens - static_cast<int>(new_tokens().size()); }

  // The token that the logits of the last token choose; `logits` are scratch. kCorrupt when they are no
  // numbers to choose by.
  Result<std::int32_t> choose(std::span<float> logits);
  // Takes the chosen token in. The reason, if the text ends with it; a stop id is not taken in (taken says
  // so).
  std::optional<FinishReason> take(std::int32_t token, bool& taken);

 private:
  Sequence(Request request, Sampler sampler);

  Request request_;
  Sampler sampler_;
  std::vector<std::int32_t> tokens_;
  std::size_t fed_ = 0;
  std::uint64_t draws_ = 0;
};

// The log of softmax(logits)[token] and of the best `count`.
TokenLogprob logprob_of(std::span<const float> logits, std::int32_t token, int count,
                        std::vector<TokenLogprob>& best);

}  // namespace windrow
