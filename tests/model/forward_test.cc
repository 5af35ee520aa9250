// The forward pass against transformers' logits, and row determinism: bits that do not depend on
// chunks, batch mates or threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/model_fixture.h"
#include "model/ragged.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

// Parity promised by the design: a share of the logit range.
constexpr double kParity = 2e-5;
constexpr std::size_t kWhole = 100000;
constexpr std::size_t kChunks[] = {1, 3, 7, 64, kWhole};

Limits room(int tokens, int rows = 1) {
  return {.rows = rows, .tokens = tokens, .step_tokens = tokens * rows, .rollback = 0, .total_tokens = 0};
}

TEST(Forward, TinyGemma3EqualsTransformersForEveryChunkSizeWithTheSameBits) {
  Session s(kTiny, KvChoice(Codec::f32()), room(64));
  const Golden golden(kTiny);
  const std::vector<std::int32_t> prompt = golden.ids("prompt");
  const std::vector<float> want = golden.floats("prompt_logits"), whole = s.logits(prompt, kWhole);
  EXPECT_LT(relative_error(whole, want), kParity);
  for (std::size_t chunk : kChunks) EXPECT_TRUE(same_bits(s.logits(prompt, chunk), whole)) << chunk;
}

TEST(Forward, TinyGemma3StaysEqualWhileItsWindowOf8WrapsSevenTimes) {
  Session s(kTiny, KvChoice(Codec::f32()), room(64));
  const Golden golden(kTiny);
  const std::vector<std::int32_t> ids = golden.ids("greedy20_ids");  // 20 of the prompt, 40 greedy
  const std::vector<float> all = s.logits(ids, 1), want = golden.floats("greedy20_logits");
  EXPECT_LT(relative_error(slice(all, 19 * s.vocab(), 40 * s.vocab()), want), kParity);
  for (std::size_t i = 0; i < 40; i++) EXPECT_EQ(best_of(&all[(19 + i) * s.vocab()], s.vocab()), ids[20 + i]);
}

TEST(Forward, StorytellerEqualsTransformersForEveryChunkSizeWithTheSameBits) {
  Session s(kStoryteller, KvChoice(Codec::f32()), room(160));
  const Golden golden(kStoryteller);
  for (int p = 0; p < 4; p++) {
    const std::string name = fmt::format("p{}", p);
    const std::vector<std::int32_t> ids = golden.ids(name + "_ids");
    const std::size_t prompt = golden.ids(name + "_prompt").size();
    const std::vector<float> want = golden.floats(name + "_logits16"), whole = s.logits(ids, kWhole);
    EXPECT_LT(relative_error(slice(whole, (prompt - 1) * s.vocab(), 16 * s.vocab()), want), kParity) << name;
    for (std::size_t chunk : kChunks)
      EXPECT_TRUE(same_bits(s.logits(ids, chunk), whole)) << name << " " << chunk;
  }
}

// Greedy ids may differ from the golden only where its best two logits are nearer than the parity.
TEST(Forward, StorytellerChoosesTheGoldenGreedyIdsOfAllPrompts) {
  Session s(kStoryteller, KvChoice(Codec::f32()), room(160));
  const Golden golden(kStoryteller);
  for (int p = 0; p < 4; p++) {
    const std::string name = fmt::format("p{}", p);
    const std::vector<std::int32_t> ids = golden.ids(name + "_ids");
    const std::size_t prompt = golden.ids(name + "_prompt").size();
    const std::vector<float> all = s.logits(ids, kWhole);
    for (std::size_t i = prompt; i < ids.size(); i++) {
      std::vector<float> row = slice(all, (i - 1) * s.vocab(), s.vocab());
      const std::int32_t best = best_of(row.data(), s.vocab());
      if (best == ids[i]) continue;
      const auto [low, high] = std::minmax_element(row.begin(), row.end());
      EXPECT_LT(*high - row[static_cast<std::size_t>(ids[i])], kParity * (*high - *low))
          << name << " token " << i;
    }
  }
}

TEST(Forward, ARaggedBatchEqualsTransformersAndEachRowAloneBitForBit) {
  for (const Codec& codec : {Codec::f32(), Codec::bf16(), Codec::affine(8), Codec::affine(4, 32)}) {
    SCOPED_TRACE(codec.to_string());
    Session s(kTiny, KvChoice(codec), room(64, 3));
    const std::vector<RaggedRow> data = ragged_rows(kTiny);
    const std::vector<std::vector<float>> batch = run_as_batch(s, data);
    for (std::size_t r = 0; r < data.size(); r++) {
      if (codec == Codec::f32()) {
        EXPECT_LT(relative_error(batch[r], data[r].want), kParity) << "row " << r;
      }
      EXPECT_TRUE(same_bits(run_as_batch(s, {data[r]})[0], batch[r])) << "row " << r;
    }
  }
}

TEST(Forward, QuantizedStateGivesTheSameBitsForAnyChunkSizeAndThreadCount) {
  const Golden golden(kStoryteller);
  const std::vector<std::int32_t> ids = golden.ids("p1_ids");
  for (const Codec& codec : {Codec::affine(8), Codec::affine(4)}) {
    std::vector<float> first;
    for (int threads : {1, 2, 3}) {
      Session s(kStoryteller, KvChoice(codec), room(160), threads);
      for (std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{64}, kWhole}) {
        if (chunk == 1 && threads > 1) continue;  // some ten thousand barriers: minutes on a busy machine
        std::vector<float> got = s.logits(ids, chunk);
        if (first.empty()) first = got;
        EXPECT_TRUE(same_bits(got, first))
            << codec.to_string() << ", " << threads << " threads, chunk " << chunk;
      }
    }
  }
}

TEST(Forward, KeysAndValuesMayHaveDifferentCodecsInEachKindOfLayer) {
  KvChoice kv;
  kv.sliding = {Codec::affine(8), Codec::affine(5, 32)};
  kv.full = {Codec::f16(), Codec::f32()};
  Session s(kTiny, kv, room(64)), exact(kTiny, KvChoice(Codec::f32()), room(64));
  const std::vector<std::int32_t> prompt = Golden(kTiny).ids("prompt");
  const std::vector<float> want = exact.logits(prompt, kWhole), got = s.logits(prompt, 5);
  EXPECT_TRUE(same_bits(got, s.logits(prompt, kWhole)));
  EXPECT_LT(relative_error(got, want), 0.05);  // 5-bit values: near, but
  EXPECT_GT(relative_error(got, want), 1e-5);  // not the same state
}

TEST(Forward, LogitsOfChosenTokensEqualThoseOfAllTokens) {
  Session s(kTiny, KvChoice(Codec::bf16()), room(64));
  const std::vector<std::int32_t> ids = Golden(kTiny).ids("prompt");
  const std::vector<float> all = s.logits(ids, kWhole);
  for (const std::vector<std::int32_t>& wanted :
       std::vector<std::vector<std::int32_t>>{{47}, {0, 5, 46}, {}}) {
    Row row = must(s.store.new_row());
    Row* rows[] = {&row};
    const int lengths[] = {static_cast<int>(ids.size())};
    Step step = must(s.store.begin(rows, lengths));
    std::vector<float> some(wanted.size() * s.vocab());
    must(s.runner.forward(step, ids, wanted, some));
    for (std::size_t i = 0; i < wanted.size(); i++) {
      EXPECT_TRUE(same_bits(slice(some, i * s.vocab(), s.vocab()),
                            slice(all, static_cast<std::size_t>(wanted[i]) * s.vocab(), s.vocab())));
    }
  }
}

TEST(Forward, WrongArgumentsAreNamedAndAppendNothing) {
  Session s(kTiny, KvChoice(), room(16));
  Row row = must(s.store.new_row());
  Row* rows[] = {&row};
  const int lengths[] = {3};
  Step step = must(s.store.begin(rows, lengths));
  std::vector<float> logits(320);
  const auto message = [&](std::vector<std::int32_t> ids, std::vector<std::int32_t> wanted,
                           std::size_t room_for) {
    const Status status = s.runner.forward(step, ids, wanted, std::span<float>(logits).first(room_for));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(message({1, 2}, {}, 0), "forward: 2 ids for a step of 3 tokens");
  EXPECT_EQ(message({1, 2, 320}, {}, 0), "forward: token 2 has id 320, allowed are 0 to 319");
  EXPECT_EQ(message({-1, 2, 3}, {}, 0), "forward: token 0 has id -1, allowed are 0 to 319");
  EXPECT_EQ(message({1, 2, 3}, {3}, 320), "forward: wanted token 3 at place 0: must ascend and be below 3");
  EXPECT_EQ(message({1, 2, 3}, {1, 1}, 0), "forward: wanted token 1 at place 1: must ascend and be below 3");
  EXPECT_EQ(message({1, 2, 3}, {2}, 319), "forward: room for 319 logits, expected 1 x 320");
  EXPECT_EQ(s.runner.forward(step, std::vector<std::int32_t>{1, 2, 3}, {}, {}).message(), "");
  step.abort();
  EXPECT_EQ(s.runner.forward(step, {}, {}, {}).code(), StatusCode::kFailedPrecondition);
}

TEST(Forward, ARunnerRefusesAPlanThatDoesNotHoldItsModelsState) {
  Session s(kTiny, KvChoice(), room(16));
  const auto message = [&](const AttentionGroup& group) {
    const StatePlan plan = must(StatePlan::Builder(room(16)).attention(group).build());
    return Runner::create(s.model, plan, s.pool).status().message();
  };
  EXPECT_EQ(message({.layers = {1}, .kv_heads = 2}), "plan: no group holds layer 0 of the model");
  EXPECT_EQ(message({.layers = {0}, .window = 9, .kv_heads = 2}),
            "plan: layer 0 has window 9, 2 kv heads of dim 64 (values 64), the model window 8, 2 kv heads of "
            "dim 64");
}

TEST(Plan, LayersOfEqualWindowShareAGroup) {
  Session s(kTiny, KvChoice(Codec::affine(4)), room(16));
  ASSERT_EQ(s.plan.group_count(), 2);
  EXPECT_EQ(s.plan.group(0).layers, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(s.plan.group(0).window, 8);
  EXPECT_EQ(s.plan.group(1).layers, std::vector<int>{5});
  EXPECT_EQ(s.plan.group(1).window, kFullWindow);
  const LayerShape sliding{8, 2, 64}, full{kFullWindow, 2, 64};
  EXPECT_EQ(s.model.info().layers,
            (std::vector<LayerShape>{sliding, sliding, sliding, sliding, sliding, full}));
}

TEST(Plan, SlidingPoolsHoldExactlyThePlannedBytesAtTwentyWindows) {
  Session s(kTiny, KvChoice(Codec::affine(4)), {.rows = 1, .tokens = 160, .step_tokens = 8});
  Row row = must(s.store.new_row());
  for (int i = 0; i < 160; i++) s.step({&row}, {1}, {i});
  EXPECT_EQ(row.length(), 160);
  EXPECT_EQ(row.bytes(), s.plan.projected_bytes(160));
  EXPECT_EQ(s.store.bytes(), s.plan.bytes());
  for (int g = 0; g < 2; g++) EXPECT_EQ(s.store.pool_use(g).bytes, s.plan.group_bytes(g).total);
}

TEST(KvCodec, AGroupIsChosenForTheHeadDimOnlyWhereNoneIsGiven) {
  const LayerShape d64{8, 2, 64}, d96{kFullWindow, 2, 96};
  const auto parsed = [](const char* text, std::vector<LayerShape> layers) {
    return must(parse_kv_codec(text, layers));
  };
  EXPECT_EQ(parsed("q4", {d64, d64}), Codec::affine(4, 64));
  EXPECT_EQ(parsed("q4", {d64, d96}), Codec::affine(4, 32));
  EXPECT_EQ(parsed("q4:64", {d64, d96}), Codec::affine(4, 64));
  EXPECT_EQ(parsed("bf16", {d96}), Codec::bf16());
  EXPECT_FALSE(parse_kv_codec("q7", {}).ok());
}

}  // namespace
}  // namespace windrow
