// The sampler: order of its filters, ties, errors, and that draws are what the seed says.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "windrow/engine.h"

namespace windrow {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::int32_t sample(const SamplerOptions& options, std::vector<float> logits,
                    std::vector<std::int32_t> history = {}, std::uint64_t draw = 0) {
  Result<Sampler> sampler = Sampler::create(options);
  EXPECT_TRUE(sampler.ok());
  Result<std::int32_t> id = sampler->sample(logits, history, draw);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? *id : -1;
}

// How often each id comes in `n` draws.
std::map<std::int32_t, int> histogram(SamplerOptions options, const std::vector<float>& logits, int n) {
  std::map<std::int32_t, int> counts;
  Result<Sampler> sampler = Sampler::create(options);
  for (int i = 0; i < n; i++) {
    std::vector<float> copy = logits;
    counts[*sampler->sample(copy, {}, static_cast<std::uint64_t>(i))]++;
  }
  return counts;
}

std::vector<float> random_logits(std::size_t n) {
  std::vector<float> logits(n);
  for (float& l : logits) l = static_cast<float>(*rc::gen::inRange(-800, 800)) / 100.0f;
  return logits;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowerIdOfEquals) {
  EXPECT_EQ(sample({}, {0.0f, 3.0f, 3.0f, -1.0f}), 1);
  EXPECT_EQ(sample({}, {-kInf, -2.0f}), 1);
  EXPECT_EQ(sample({.top_k = 1, .top_p = 0.1f, .min_p = 0.9f, .seed = 9}, {1.0f, 2.0f}), 1);
}

TEST(Sampler, TopKOfOneIsGreedyAtAnyTemperatureAndDraw) {
  for (std::uint64_t draw = 0; draw < 50; draw++) {
    EXPECT_EQ(sample({.temperature = 5.0f, .top_k = 1, .seed = 3}, {1.0f, 1.5f, 1.5f, 0.0f}, {}, draw), 1);
  }
}

TEST(Sampler, FrequenciesAreTheSoftmaxOfLogitsOverTemperature) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f};
  const int n = 20000;
  const std::map<std::int32_t, int> counts = histogram({.temperature = 2.0f, .seed = 7}, logits, n);
  const double z = 1 + std::exp(0.5) + std::exp(1.0);
  for (int i = 0; i < 3; i++) {
    const double p = std::exp(0.5 * i) / z, sigma = std::sqrt(p * (1 - p) / n);
    EXPECT_NEAR(counts.at(i) / static_cast<double>(n), p, 4 * sigma) << i;
  }
}

TEST(Sampler, TopKRanksEqualsByLowerId) {
  const auto counts = histogram({.temperature = 1.0f, .top_k = 2, .seed = 1}, {5.0f, 1.0f, 5.0f, 5.0f}, 200);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.contains(0) && counts.contains(2));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatHoldsP) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const float l2 = std::log(2.0f);
  const std::vector<float> logits = {-3 * l2, -1 * l2, -2 * l2, -3 * l2};
  EXPECT_EQ(histogram({.temperature = 1.0f, .top_p = 0.4f}, logits, 300).size(), 1u);
  EXPECT_EQ(histogram({.temperature = 1.0f, .top_p = 0.7f}, logits, 300).size(), 2u);
  const auto three = histogram({.temperature = 1.0f, .top_p = 0.8f}, logits, 300);
  EXPECT_EQ(three.size(), 3u);
  EXPECT_TRUE(three.contains(0)) << "of the two equal ones the lower id is kept";
  EXPECT_EQ(histogram({.temperature = 1.0f, .top_p = 0.99f}, logits, 300).size(), 4u);
}

TEST(Sampler, TopPWorksOnWhatTopKLeftRenormalized) {
  // 0.4, 0.3, 0.3: top-k 2 leaves 4/7 and 3/7; p = 0.5 of that is the first alone.
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.3f)};
  EXPECT_EQ(histogram({.temperature = 1.0f, .top_k = 2, .top_p = 0.5f}, logits, 200).size(), 1u);
  EXPECT_EQ(histogram({.temperature = 1.0f, .top_p = 0.5f}, logits, 200).size(), 2u);
}

TEST(Sampler, MinPIsAShareOfTheBest) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  EXPECT_EQ(histogram({.temperature = 1.0f, .min_p = 0.5f}, logits, 300).size(), 2u);
  EXPECT_EQ(histogram({.temperature = 1.0f, .min_p = 0.3f}, logits, 300).size(), 3u);
  EXPECT_EQ(histogram({.temperature = 1.0f, .min_p = 0.99f}, logits, 300).size(), 1u);
}

TEST(Sampler, RepetitionPenaltyHitsSeenIdsOnceWhateverTheirSign) {
  const SamplerOptions options{.repetition_penalty = 2.0f};
  EXPECT_EQ(sample(options, {3.0f, 2.0f}, {0}), 1);          // 1.5 against 2
  EXPECT_EQ(sample(options, {5.0f, 2.0f}, {0, 0, 0}), 0);    // 2.5: once, not 0.6
  EXPECT_EQ(sample(options, {-1.0f, -1.5f}, {0}), 1);        // -2 against -1.5
  EXPECT_EQ(sample(options, {3.0f, 2.0f}, {-1, 2, 77}), 0);  // no such ids
}

RC_GTEST_PROP(Sampler, FiltersThatCutNothingChangeNothing, ()) {
  const std::vector<float> logits = random_logits(*rc::gen::inRange<std::size_t>(1, 300));
  const std::uint64_t seed = *rc::gen::arbitrary<std::uint64_t>();
  const SamplerOptions plain{.temperature = 0.9f, .seed = seed};
  SamplerOptions wide = plain;
  wide.top_k = static_cast<int>(logits.size());
  RC_ASSERT(sample(plain, logits) == sample(wide, logits));
}

// The same choice by sorting everything, the plain way.
std::int32_t sample_by_sorting(const SamplerOptions& o, const std::vector<float>& logits,
                               std::uint64_t draw) {
  const float best = *std::max_element(logits.begin(), logits.end());
  std::vector<std::pair<double, std::int32_t>> ranked;  // -weight, id
  for (std::size_t i = 0; i < logits.size(); i++) {
    ranked.emplace_back(-std::exp((static_cast<double>(logits[i]) - best) / o.temperature), i);
  }
  std::sort(ranked.begin(), ranked.end());
  if (o.top_k > 0) ranked.resize(std::min(ranked.size(), static_cast<std::size_t>(o.top_k)));
  double total = 0, sum = 0;
  for (const auto& [w, id] : ranked) total -= w;
  std::size_t keep = 0;
  while (keep < ranked.size() && sum < o.top_p * total) sum -= ranked[keep++].first;
  ranked.resize(keep);
  std::erase_if(ranked, [&](const auto& r) { return -r.first < o.min_p; });
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  total = sum = 0;
  for (const auto& [w, id] : ranked) total -= w;
  const double u = Sampler::uniform(o.seed, draw) * total;
  for (const auto& [w, id] : ranked) {
    if ((sum -= w) > u) return id;
  }
  return ranked.back().second;
}

RC_GTEST_PROP(Sampler, ChoosesWhatSortingEverythingWouldChoose, ()) {
  // Logits apart by 0.01, so that f32 weights rank as f64 ones do; p off the sums' exact values.
  const std::vector<float> logits = random_logits(*rc::gen::inRange<std::size_t>(1, 600));
  SamplerOptions o{.temperature = static_cast<float>(*rc::gen::inRange(1, 40)) / 10.0f,
                   .top_k = *rc::gen::inRange(0, 50),
                   .top_p = static_cast<float>(*rc::gen::inRange(1, 1000)) / 1000.3f,
                   .min_p = static_cast<float>(*rc::gen::inRange(0, 300)) / 1000.7f,
                   .seed = *rc::gen::arbitrary<std::uint64_t>()};
  int same = 0;
  for (std::uint64_t draw = 0; draw < 20; draw++)
    same += sample(o, logits, {}, draw) == sample_by_sorting(o, logits, draw);
  RC_ASSERT(same >= 19);  // a draw or a cut may fall within 1e-7 of a border
}

TEST(Sampler, ALargeVocabularyWithAFlatDistributionIsHandledExactly) {
  const std::vector<float> logits(262144, 1.25f);
  const SamplerOptions options{.temperature = 1.0f, .top_k = 5, .seed = 11};
  for (std::uint64_t draw = 0; draw < 5; draw++) EXPECT_LT(sample(options, logits, {}, draw), 5);
  EXPECT_LT(sample({.temperature = 1.0f, .top_p = 0.001f, .seed = 11}, logits), 264);
}

TEST(Sampler, TinyTemperaturesAreGreedyAndNeverNaN) {
  for (const float t : {1e-3f, 1e-20f, 1e-38f, 1e-45f}) {
    EXPECT_EQ(sample({.temperature = t, .seed = 5}, {1.0f, 1.5f, -kInf}), 1) << t;
  }
}

TEST(Sampler, UniformIsSplitMix64AndStaysBelowOne) {
  // First outputs of SplitMix64 with seed 1234567, as published with the generator.
  EXPECT_EQ(Sampler::uniform(1234567, 0), static_cast<double>(6457827717110365317u >> 11) * 0x1p-53);
  EXPECT_EQ(Sampler::uniform(1234567, 1), static_cast<double>(3203168211198807973u >> 11) * 0x1p-53);
  double sum = 0;
  for (std::uint64_t i = 0; i < 10000; i++) {
    const double u = Sampler::uniform(42, i);
    EXPECT_TRUE(u >= 0 && u < 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);
}

TEST(Sampler, OptionsOutOfRangeAreNamed) {
  const auto message = [](const SamplerOptions& o) { return Sampler::create(o).status().message(); };
  EXPECT_EQ(message({.temperature = kNan}), "temperature nan: must be finite and at least 0");
  EXPECT_EQ(message({.temperature = -1}), "temperature -1: must be finite and at least 0");
  EXPECT_EQ(message({.temperature = kInf}), "temperature inf: must be finite and at least 0");
  EXPECT_EQ(message({.top_k = -1}), "top_k -1: must be at least 0 (0 turns it off)");
  EXPECT_EQ(message({.top_p = 0}), "top_p 0: must be above 0 and at most 1");
  EXPECT_EQ(message({.top_p = kNan}), "top_p nan: must be above 0 and at most 1");
  EXPECT_EQ(message({.min_p = 1}), "min_p 1: must be at least 0 and below 1");
  EXPECT_EQ(message({.repetition_penalty = 0}), "repetition_penalty 0: must be finite and above 0");
}

TEST(Sampler, LogitsThatMeanNothingAreErrors) {
  Result<Sampler> sampler = Sampler::create({});
  const auto message = [&](std::vector<float> logits) {
    return sampler->sample(logits, {}, 0).status().message();
  };
  EXPECT_EQ(message({}), "sampler: no logits");
  EXPECT_EQ(message({0, kNan}), "sampler: the logit of id 1 is NaN");
  EXPECT_EQ(message({kNan, 1}), "sampler: the logit of id 0 is NaN");
  EXPECT_EQ(message({0, 1, kInf}), "sampler: the logit of id 2 is inf");
  EXPECT_EQ(message({-kInf, -kInf}), "sampler: every logit is -inf");
}

}  // namespace
}  // namespace windrow
