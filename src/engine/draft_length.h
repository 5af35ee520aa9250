// How many tokens to draft: as many as are worth their time, by what was measured.
#pragma once

#include <algorithm>
#include <cmath>

namespace windrow {

// Seconds of a step as base + per_token * tokens, fitted by least squares over what was seen, older steps
// counting less and less; and the tokens that steps emit in a second.
class StepCost {
 public:
  void add(double tokens, double seconds, double emitted) {
    constexpr double kKeep = 0.95;  // a step's weight halves in 14 steps: the load changes with the rows
    for (double* sum : {&n_, &x_, &y_, &xx_, &xy_, &emitted_}) *sum *= kKeep;
    n_ += 1;
    x_ += tokens;
    y_ += seconds;
    xx_ += tokens * tokens;
    xy_ += tokens * seconds;
    emitted_ += emitted;
  }
  void add_draft(double tokens, double seconds) {
    constexpr double kKeep = 0.95;
    draft_tokens_ = draft_tokens_ * kKeep + tokens;
    draft_seconds_ = draft_seconds_ * kKeep + seconds;
  }
  // Seconds of one more token in a step, drafting it included; 0 while too little was seen to tell.
  double per_token() const {
    const double spread = n_ * xx_ - x_ * x_;
    const double slope = spread > 1e-9 * n_ * xx_ ? (n_ * xy_ - x_ * y_) / spread : 0;
    const double draft = draft_tokens_ > 0 ? draft_seconds_ / draft_tokens_ : 0;
    return std::max(slope, 0.0) + draft;
  }
  double emitted_per_second() const { return y_ > 0 ? emitted_ / y_ : 0; }

 private:
  double n_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0, emitted_ = 0;
  double draft_tokens_ = 0, draft_seconds_ = 0;
};

// One row's acceptance and the length that follows from it.
class DraftLength {
 public:
  // A verified draft: `accepted` tokens were taken in, and one more was looked at if `rejected`.
  void add(int accepted, bool rejected) {
    constexpr double kStep = 0.1;
    for (int i = 0; i < accepted; i++) rate_ += kStep * (1 - rate_);
    if (rejected) rate_ -= kStep * rate_;
  }

  // At most `most`. The k-th drafted token is taken in with probability rate^k; it pays while that many
  // tokens come faster than the steps emit tokens anyway. A row that gets none tries one now and then: texts
  // change.
  int next(const StepCost& cost, int most) {
    const double price = cost.per_token() * cost.emitted_per_second();  // in emitted tokens
    int length = 0;
    double chance = rate_;
    while (length < most && chance > price) {
      length++;
      chance *= rate_;
    }
    if (length > 0 || most == 0) {
      idle_ = 0;
      return length;
    }
    constexpr int kTryEvery = 16;
    idle_ = (idle_ + 1) % kTryEvery;
    return idle_ == 0 ? 1 : 0;
  }

 private:
  double rate_ = 0.7;  // of a drafted token being taken in, once it is reached
  int idle_ = 0;
};

}  // namespace windrow
