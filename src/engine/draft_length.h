// Whether to draft and how much: as much as is worth its time, by what was measured. Prices and gains are in
// tokens: what a second costs in tokens is the rate at which steps emit them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

namespace windrow {

// Seconds of a step of so many tokens: what was seen of short ones, each length by itself (products take rows
// in blocks, so that a second token may be free and a third not); else a line fitted by least squares. Older
// steps count less and less. And the tokens that steps emit in a second.
class StepCost {
 public:
  void add(double tokens, double seconds, double emitted) {
    constexpr double kKeep = 0.97;  // a step's weight halves in 23 steps: the load changes with the rows
    seconds = clipped(seconds, n_ > 4 ? of(static_cast<int>(tokens)) : kUnknown);
    if (tokens <= kTable) {
      double& own = table_[static_cast<std::size_t>(tokens)];
      own += (own > 0 ? 0.1 : 1) * (seconds - own);
    }
    for (double* sum : {&n_, &x_, &y_, &xx_, &xy_, &emitted_}) *sum *= kKeep;
    n_ += 1;
    x_ += tokens;
    y_ += seconds;
    xx_ += tokens * tokens;
    xy_ += tokens * seconds;
    emitted_ += emitted;
  }
  // Of one more token in a step. Until steps of different lengths were seen: as if a step cost as much as
  // three tokens, and a token as much as any; at a variance of kPrior that counts as much as what was seen.
  double per_token() const {
    constexpr double kPrior = 0.25;
    if (n_ == 0) return 0;
    const double x = x_ / n_, y = y_ / n_;
    const double slope = (xy_ / n_ - x * y + kPrior * y / (x + 3)) / (xx_ / n_ - x * x + kPrior);
    return std::max(slope, 0.1 * y / (x + 3));  // none is free
  }
  double of(int tokens) const {
    if (tokens <= kTable && table_[static_cast<std::size_t>(tokens)] > 0)
      return table_[static_cast<std::size_t>(tokens)];
    return base() + per_token() * tokens;
  }
  // Of a drafter, a token.
  void add_draft(int tokens, double seconds) {
    seconds = clipped(seconds / tokens, draft_);
    draft_ += (draft_ > 0 ? 0.1 : 1) * (seconds - draft_);
  }
  double drafting() const { return draft_; }
  double emitted_per_second() const { return y_ > 0 ? emitted_ / y_ : 0; }
  // In tokens.
  double price_of(double seconds) const { return seconds * emitted_per_second(); }

 private:
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();
  // A step that another process interrupted takes ten times as long as others. Steps that really take longer
  // are believed after a few.
  static double clipped(double seconds, double expected) {
    return expected > 0 ? std::min(seconds, 1.5 * expected) : seconds;
  }
  double base() const { return n_ > 0 ? (y_ - per_token() * x_) / n_ : 0; }

  static constexpr int kTable = 16;
  std::array<double, kTable + 1> table_ = {};
  double draft_ = 0;
  double n_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0, emitted_ = 0;
};

// One row's drafts.
class DraftLength {
 public:
  struct Wish {
    int most = 0;     // tokens; 0: no draft this time
    float least = 0;  // chance that a token has to have, by the drafter's own account
  };

  // At most `most`, in a step that runs `base` tokens besides, which emits one for each. The length brings
  // most tokens in a second if the k-th has the chance rate^k. Of a drafter that tells chances, a token has
  // to be worth what it costs the step; its chances are taken to the power that made them right so far (a
  // greedy target takes in more of the best tokens than their share). Where drafts have brought less than
  // they cost there is none, but for a try now and then, at longer and longer intervals: texts change.
  Wish next(const StepCost& cost, int base, int most) {
    if (most <= 0) return {};
    if (!pays() && rested_ < pause_) {
      rested_++;
      charged_ = false;
      return {};
    }
    Wish wish{1, 0};
    double best = 0, tokens = base, chance = 1;
    for (int k = 1; k <= most; k++) {
      chance *= rate_;
      tokens += chance;
      const double seconds = cost.of(base + k) + k * cost.drafting();
      if (tokens < best * seconds) continue;
      wish.most = k;
      best = seconds > 0 ? tokens / seconds : 0;
    }
    if (!tells_chances_) return wish;
    const double price = cost.price_of(cost.of(base + wish.most) - cost.of(base)) / wish.most;
    wish.least = static_cast<float>(std::pow(std::clamp(price, 0.0, 1.0), 1 / power_));
    return wish;
  }

  // What became of an attempt, of which `spent` is the price: `accepted` of `drafted` tokens were taken in,
  // and one more was looked at if `rejected`. `chances` of the tokens, as the drafter told them; empty: it
  // did not.
  void add(int drafted, int accepted, bool rejected, std::span<const float> chances, double spent) {
    constexpr double kStep = 0.1;
    for (int i = 0; i < accepted; i++) rate_ += kStep * (1 - rate_);
    if (rejected) rate_ -= kStep * rate_;
    if (!chances.empty()) {
      tells_chances_ = true;
      double expected = 0;
      for (const float c : chances) expected += c > 0 ? std::pow(static_cast<double>(c), power_) : 0;
      power_ = std::clamp(power_ + kStep * (expected - accepted) / drafted, 0.1, 4.0);
    }
    // The first attempt after a pause brings a draft model up to the text, a whole prompt at first: what
    // drafting costs is told by the next.
    if (!charged_) {
      charged_ = true;
      return;
    }
    // An attempt that another process interrupted says nothing of others.
    spent = std::min(spent, 2 * spent_ + 0.25);
    gain_ += kAttempt * (accepted - gain_);
    spent_ += kAttempt * (spent - spent_);
    rested_ = 0;
    if (pays()) {
      pause_ = kFirstPause;
    } else {
      pause_ = accepted > spent ? std::max(pause_ / 4, kFirstPause) : std::min(4 * pause_, kLongestPause);
    }
  }

 private:
  // What costs less than a fiftieth of a token (looking for repetitions) need not pay.
  bool pays() const { return gain_ + 0.02 >= spent_; }
  // A try also runs a draft model over the tokens since the last, some percent of a step each: hence pauses
  // that grow fast.
  static constexpr int kFirstPause = 2, kLongestPause = 1024;
  static constexpr double kAttempt = 0.2;
  double rate_ = 0.7;  // of a drafted token being taken in, once it is reached
  bool tells_chances_ = false;
  double power_ = 0.4;             // what the best token of a small model says of a larger one's, at first
  double gain_ = 0.5, spent_ = 0;  // of an attempt, in tokens
  bool charged_ = false;           // the next attempt counts
  int rested_ = 0, pause_ = kFirstPause;
};

}  // namespace windrow
