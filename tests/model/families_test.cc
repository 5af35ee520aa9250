// Every family against transformers' logits on a small model of random weights, and row determinism over
// its state: windows, donors, recurrent layers, sinks and experts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/model_fixture.h"
#include "model/ragged.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

// Parity promised by the design: a share of the logit range.
constexpr double kParity = 2e-5;
constexpr std::size_t kWhole = 100000;

class Families : public ::testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return fmt::format("{}/hf/{}", WINDROW_TEST_DATA, GetParam()); }
};

Limits room(int tokens, int rows = 1) {
  return {.rows = rows, .tokens = tokens, .step_tokens = tokens * rows, .rollback = 0, .total_tokens = 0};
}

TEST_P(Families, PromptLogitsEqualTransformersAndHaveTheSameBitsForEveryChunkSize) {
  Session s(folder(), KvChoice(Codec::f32()), room(64));
  const Golden golden(folder());
  const std::vector<std::int32_t> prompt = golden.ids("prompt");
  const std::vector<float> whole = s.logits(prompt, kWhole);
  const double error = relative_error(whole, golden.floats("prompt_logits"));
  RecordProperty("error", fmt::format("{:.2g}", error));
  EXPECT_LT(error, kParity);
  for (std::size_t chunk : {1u, 3u, 7u}) EXPECT_TRUE(same_bits(s.logits(prompt, chunk), whole)) << chunk;
}

TEST_P(Families, TwoThreadsGiveTheBitsOfOne) {
  const std::vector<std::int32_t> prompt = Golden(folder()).ids("prompt");
  Session one(folder(), KvChoice(Codec::affine(8, 32)), room(64), 1);
  Session two(folder(), KvChoice(Codec::affine(8, 32)), room(64), 2);
  EXPECT_TRUE(same_bits(one.logits(prompt, 17), two.logits(prompt, kWhole)));
}

// 20 of the prompt, 40 greedy: the window of 8 wraps. Ids may differ from the golden only where its two best
// logits are nearer than the parity.
TEST_P(Families, GreedyDecodingFollowsTransformers) {
  Session s(folder(), KvChoice(Codec::f32()), room(64));
  const Golden golden(folder());
  const std::vector<std::int32_t> ids = golden.ids("greedy20_ids");
  const std::vector<float> all = s.logits(ids, 1), want = golden.floats("greedy20_logits");
  const std::vector<float> got = slice(all, 19 * s.vocab(), 40 * s.vocab());
  EXPECT_LT(relative_error(got, want), kParity);
  const auto [low, high] = std::minmax_element(want.begin(), want.end());
  for (std::size_t i = 0; i < 40; i++) {
    const float* row = &got[i * s.vocab()];
    const float best = row[static_cast<std::size_t>(best_of(row, s.vocab()))];
    EXPECT_LE(best - row[static_cast<std::size_t>(ids[20 + i])], kParity * (*high - *low)) << "token " << i;
  }
}

TEST_P(Families, ARaggedBatchEqualsTransformersAndEachRowAloneBitForBit) {
  for (const Codec& codec : {Codec::f32(), Codec::affine(4, 32)}) {
    SCOPED_TRACE(codec.to_string());
    Session s(folder(), KvChoice(codec), room(64, 3));
    const std::vector<RaggedRow> data = ragged_rows(folder());
    const std::vector<std::vector<float>> batch = run_as_batch(s, data);
    for (std::size_t r = 0; r < data.size(); r++) {
      if (codec == Codec::f32()) {
        EXPECT_LT(relative_error(batch[r], data[r].want), kParity) << "row " << r;
      }
      EXPECT_TRUE(same_bits(run_as_batch(s, {data[r]})[0], batch[r])) << "row " << r;
    }
  }
}

// 20 windows of a quantized state: logits stay within the range that the exact state gives, and the store
// holds what was planned.
TEST_P(Families, QuantizedStateStaysFiniteAndBoundedOverTwentyWindows) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 160; i++) ids.push_back((i * 37 + 11) % 320);
  Session exact(folder(), KvChoice(Codec::f32()), room(160));
  const std::vector<float> want = exact.logits(ids, kWhole);
  const auto [low, high] = std::minmax_element(want.begin(), want.end());
  const float range = *high - *low;
  for (const int bits : {8, 4}) {
    Session s(folder(), KvChoice(Codec::affine(bits, 32)), room(160));
    const std::vector<float> got = s.logits(ids, 9);
    double squares = 0;
    for (std::size_t i = 0; i < got.size(); i++) {
      ASSERT_TRUE(std::isfinite(got[i])) << i;
      ASSERT_LT(std::abs(got[i] - want[i]), range) << i;
      squares += std::pow(static_cast<double>(got[i] - want[i]), 2);
    }
    const double rms = std::sqrt(squares / static_cast<double>(got.size())) / static_cast<double>(range);
    EXPECT_LT(rms, bits == 8 ? 0.02 : 0.1);
    EXPECT_EQ(s.store.bytes(), s.plan.bytes());
  }
}

// A row's fork continues as the row itself would have; a rejected tail leaves no trace.
TEST_P(Families, ARejectedTailLeavesTheRowAsIfItHadNeverBeenFed) {
  Limits limits = room(64, 2);
  Session s(folder(), KvChoice(Codec::affine(8, 32)), limits);
  const std::vector<std::int32_t> prompt = Golden(folder()).ids("prompt");
  Row a = must(s.store.new_row());
  const std::vector<std::int32_t> head(prompt.begin(), prompt.begin() + 30);
  s.step({&a}, {30}, head);
  Row b = must(a.fork());
  Row* rows[] = {&b};
  const int lengths[] = {5};
  Step step = must(s.store.begin(rows, lengths));
  const std::vector<std::int32_t> draft{prompt[30], prompt[31], 7, 8, 9};
  must(s.runner.forward(step, draft, {}, {}));
  must(step.resolve({2}));
  s.step({&a}, {2}, {prompt[30], prompt[31]});
  EXPECT_TRUE(same_bits(s.step({&a}, {1}, {prompt[32]}), s.step({&b}, {1}, {prompt[32]})));
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         ::testing::Values("gemma2", "gemma3", "gemma3n", "gemma4", "gpt_oss", "llama",
                                           "mistral", "olmo3", "phi3", "qwen3", "qwen3_next"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace windrow
