// Divergences of known distributions, and the windows a text is cut into.
#include "engine/divergence.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "engine/text_windows.h"
#include "model/model_fixture.h"

namespace windrow {
namespace {

using testing::must;

// One chunk of tokens: `p` are the reference's logits, `q` the trial's.
Divergence divergence(const std::vector<float>& p, const std::vector<float>& q, std::size_t vocab,
                      const std::vector<std::int32_t>& targets, int threads = 1) {
  ThreadPool pool = must(ThreadPool::create(threads));
  ReferenceLogits reference(targets.size(), vocab);
  std::copy(p.begin(), p.end(), reference.logits(targets.size()).begin());
  std::size_t broken = 0;
  EXPECT_TRUE(reference.softmax(targets.size(), pool, &broken));
  DivergenceSum sum;
  EXPECT_TRUE(sum.add(reference, q, targets, pool, &broken));
  return sum.result();
}

float logit(double probability) { return static_cast<float>(std::log(probability)); }

TEST(Divergence, OfTwoCoinsIsTheTextbookNumber) {
  const std::vector<float> fair{0, 0}, biased{logit(0.25), logit(0.75)};
  const Divergence d = divergence(fair, biased, 2, {1});
  EXPECT_NEAR(d.kld_mean, 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75), 1e-7);
  EXPECT_NEAR(d.nll, -std::log(0.75), 1e-7);
  EXPECT_NEAR(d.perplexity(), 1 / 0.75, 1e-7);
  EXPECT_EQ(d.same_top, 0.0) << "of equals the lower id is the top";
  EXPECT_NEAR(divergence(biased, fair, 2, {0}).kld_mean,
              0.25 * std::log(0.25 / 0.5) + 0.75 * std::log(0.75 / 0.5), 1e-7)
      << "it is not symmetric";
}

TEST(Divergence, OfEqualLogitsIsExactlyZeroAndAShiftOfAllChangesNothing) {
  const std::vector<float> p{1.5f, -2.0f, 0.25f, 30.0f}, shifted{9.5f, 6.0f, 8.25f, 38.0f};
  EXPECT_EQ(divergence(p, p, 4, {0}).kld_max, 0.0);
  EXPECT_LT(divergence(p, shifted, 4, {0}).kld_max, 1e-14);
  EXPECT_EQ(divergence(p, shifted, 4, {0}).same_top, 1.0);
}

TEST(Divergence, ExtremeLogitsStayFinite) {
  const std::vector<float> p{3e38f, -3e38f}, q{-1e4f, 1e4f};
  const Divergence d = divergence(p, q, 2, {0});
  EXPECT_NEAR(d.kld_mean, 2e4, 1);
  EXPECT_TRUE(std::isfinite(d.nll));
}

TEST(Divergence, PercentilesAreByNearestRank) {
  // 200 tokens; token i has q = (1/2 - d, 1/2 + d) with d growing.
  std::vector<float> p(400, 0), q;
  std::vector<double> want;
  for (int i = 0; i < 200; i++) {
    const double d = 0.002 * i;
    q.push_back(logit(0.5 - d)), q.push_back(logit(0.5 + d));
    want.push_back(-0.5 * std::log(4 * (0.25 - d * d)));
  }
  const Divergence d = divergence(p, q, 2, std::vector<std::int32_t>(200, 0));
  EXPECT_NEAR(d.kld_median, want[99], 1e-6);
  EXPECT_NEAR(d.kld_p99, want[197], 1e-6);
  EXPECT_NEAR(d.kld_max, want[199], 1e-6);
  EXPECT_NEAR(d.kld_mean, std::accumulate(want.begin(), want.end(), 0.0) / 200, 1e-6);
}

TEST(Divergence, ALogitThatIsNoNumberIsFound) {
  ThreadPool pool = must(ThreadPool::create(1));
  ReferenceLogits reference(2, 3);
  std::size_t broken = 0;
  ASSERT_TRUE(reference.softmax(2, pool, &broken));
  std::vector<float> logits(6, 0.0f);
  logits[4] = std::numeric_limits<float>::infinity();
  DivergenceSum sum;
  EXPECT_FALSE(sum.add(reference, logits, std::vector<std::int32_t>{0, 0}, pool, &broken));
  EXPECT_EQ(broken, 4u);
  reference.logits(2)[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(reference.softmax(2, pool, &broken));
  EXPECT_EQ(broken, 5u);
}

RC_GTEST_PROP(Divergence, IsTheSameOnAnyThreadsAndEqualsTheDefinition, ()) {
  const std::size_t vocab = static_cast<std::size_t>(*rc::gen::inRange(1, 40));
  const std::size_t tokens = static_cast<std::size_t>(*rc::gen::inRange(1, 9));
  const auto numbers = [&] {
    std::vector<float> v(tokens * vocab);
    for (float& x : v) x = static_cast<float>(*rc::gen::inRange(-900, 900)) / 90.0f;
    return v;
  };
  const std::vector<float> p = numbers(), q = numbers();
  const std::vector<std::int32_t> targets(tokens, static_cast<std::int32_t>(vocab - 1));
  const Divergence one = divergence(p, q, vocab, targets, 1), three = divergence(p, q, vocab, targets, 3);
  RC_ASSERT(one.kld_mean == three.kld_mean && one.nll == three.nll && one.kld_p99 == three.kld_p99);
  double kld = 0, nll = 0;
  for (std::size_t t = 0; t < tokens; t++) {
    double zp = 0, zq = 0;
    for (std::size_t i = 0; i < vocab; i++)
      zp += std::exp(p[t * vocab + i]), zq += std::exp(q[t * vocab + i]);
    for (std::size_t i = 0; i < vocab; i++) {
      const double a = std::exp(p[t * vocab + i]) / zp, b = std::exp(q[t * vocab + i]) / zq;
      kld += a * std::log(a / b);
    }
    nll -= q[t * vocab + vocab - 1] - std::log(zq);
  }
  RC_ASSERT(std::abs(one.kld_mean * static_cast<double>(tokens) - kld) < 1e-4 * (1 + kld));
  RC_ASSERT(std::abs(one.nll * static_cast<double>(tokens) - nll) < 1e-4 * (1 + std::abs(nll)));
}

RC_GTEST_PROP(TextWindows, EveryTokenIsPredictedOnceFromWhatStandsBeforeIt, ()) {
  const std::size_t size = static_cast<std::size_t>(*rc::gen::inRange(0, 60));
  const std::size_t start = static_cast<std::size_t>(*rc::gen::inRange(0, 4));
  const std::size_t context = start + static_cast<std::size_t>(*rc::gen::inRange(1, 20));
  const std::size_t most = static_cast<std::size_t>(*rc::gen::inRange(0, 70));
  QualityText text;
  for (std::size_t i = 0; i < size; i++) text.ids.push_back(static_cast<std::int32_t>(i));
  for (std::size_t i = 0; i < start; i++) text.start.push_back(-1 - static_cast<std::int32_t>(i));
  std::vector<std::int32_t> scored;
  for (const TextWindow& w : cut_windows(text, context, most)) {
    RC_ASSERT(!w.targets.empty() && w.inputs.size() <= context);
    RC_ASSERT(w.inputs.size() == w.first + w.targets.size());
    RC_ASSERT(std::equal(text.start.begin(), text.start.end(), w.inputs.begin()));
    for (std::size_t i = 0; i < w.targets.size(); i++) {
      const std::int32_t before = w.inputs[w.first + i];
      RC_ASSERT(before == w.targets[i] - 1 || (i == 0 && start > 0 && before == text.start.back()));
    }
    scored.insert(scored.end(), w.targets.begin(), w.targets.end());
  }
  const std::size_t scorable = size - (start == 0 && size > 0 ? 1 : 0);
  RC_ASSERT(scored.size() == (most == 0 ? scorable : std::min(most, scorable)));
  for (std::size_t i = 0; i < scored.size(); i++) {
    RC_ASSERT(scored[i] == static_cast<std::int32_t>(i + (start == 0 ? 1 : 0)));
  }
}

}  // namespace
}  // namespace windrow
