// Generation: chunks, threads and seeds; stops, limits, cancellation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/model_fixture.h"
#include "windrow/engine.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

struct Engine {
  ThreadPool pool;
  Model model;
  Generator generator;
  Engine(const std::string& folder, const Codec& codec, int tokens, int threads = 1, int step = 512)
      : pool(must(ThreadPool::create(threads))),
        model(must(Model::load(folder, pool))),
        generator(must(Generator::create(
            model, KvChoice(codec),
            {.rows = 1, .tokens = tokens, .step_tokens = step, .rollback = 0, .total_tokens = 0}, pool))) {}
};

TEST(Generator, GreedyWritesTheGoldenTextOfEveryStorytellerPrompt) {
  Engine e(kStoryteller, Codec::f32(), 160);
  const Golden golden(kStoryteller);
  for (int p = 0; p < 4; p++) {
    const std::vector<std::int32_t> prompt = golden.ids(fmt::format("p{}_prompt", p));
    std::vector<std::int32_t> all = prompt;
    GenerateOptions options;
    options.max_tokens = 120;
    const Generation g = must(e.generator.generate(prompt, options));
    all.insert(all.end(), g.ids.begin(), g.ids.end());
    EXPECT_EQ(all, golden.ids(fmt::format("p{}_ids", p)));
    EXPECT_EQ(g.finish_reason, FinishReason::kLength);
    EXPECT_EQ(g.length, static_cast<int>(prompt.size()) + 119);
    EXPECT_EQ(g.decode_steps, 119);
  }
}

TEST(Generator, TheSameSeedGivesTheSameTokensForAnyThreadsAndChunks) {
  const std::vector<std::int32_t> prompt = Golden(kStoryteller).ids("p2_prompt");
  std::vector<std::int32_t> first;
  for (int threads : {1, 2, 3}) {
    Engine e(kStoryteller, Codec::affine(4), 128, threads, 8);
    for (int chunk : {1, 4, 512}) {
      if (chunk != 4 && threads > 1) continue;  // every step is some forty barriers
      GenerateOptions options;
      options.max_tokens = 30;
      options.prefill_chunk = chunk;
      options.sampling = {.temperature = 0.8f,
                          .top_k = 0,
                          .top_p = 0.95f,
                          .min_p = 0.0f,
                          .repetition_penalty = 1.1f,
                          .seed = 77};
      const std::vector<std::int32_t> ids = must(e.generator.generate(prompt, options)).ids;
      if (first.empty()) first = ids;
      EXPECT_EQ(ids, first) << threads << " threads, chunk " << chunk;
    }
    GenerateOptions other;
    other.max_tokens = 30;
    other.sampling.temperature = 0.8f;
    other.sampling.seed = 78;
    EXPECT_NE(must(e.generator.generate(prompt, other)).ids, first);
  }
}

TEST(Generator, AStopIdEndsTheTextAndIsNotPartOfIt) {
  Engine e(kTiny, Codec::bf16(), 64);
  const std::vector<std::int32_t> prompt = {1, 2, 3};
  GenerateOptions options;
  options.max_tokens = 20;
  const std::vector<std::int32_t> free = must(e.generator.generate(prompt, options)).ids;
  ASSERT_EQ(free.size(), 20u);
  options.stop_ids = {free[6]};
  const Generation g = must(e.generator.generate(prompt, options));
  const std::size_t stop =
      static_cast<std::size_t>(std::find(free.begin(), free.end(), free[6]) - free.begin());
  EXPECT_EQ(g.ids, std::vector<std::int32_t>(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(stop)));
  EXPECT_EQ(g.finish_reason, FinishReason::kStop);
}

TEST(Generator, CallbacksSeeEveryChunkAndTokenAndCanEndTheText) {
  Engine e(kTiny, Codec::bf16(), 64);
  std::vector<int> prefill;
  std::vector<std::int32_t> seen;
  GenerateOptions options;
  options.max_tokens = 10;
  options.prefill_chunk = 3;
  options.on_prefill = [&](int done, int total) { prefill.insert(prefill.end(), {done, total}); };
  options.on_token = [&](std::int32_t id) { return seen.push_back(id), seen.size() < 4; };
  const Generation g = must(e.generator.generate(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7}, options));
  EXPECT_EQ(prefill, (std::vector<int>{3, 7, 6, 7, 7, 7}));
  EXPECT_EQ(g.ids, seen);
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_EQ(g.finish_reason, FinishReason::kCancelled);
}

TEST(Generator, CancellationStopsPrefillAndDecodeAndTheNextTextIsWhole) {
  Engine e(kTiny, Codec::bf16(), 64);
  std::atomic<bool> cancel{true};
  GenerateOptions options;
  options.max_tokens = 5;
  options.cancel = &cancel;
  const std::vector<std::int32_t> prompt = {5, 6, 7, 8};
  Generation g = must(e.generator.generate(prompt, options));
  EXPECT_EQ(g.finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(g.ids.empty());
  EXPECT_EQ(g.length, 0);
  cancel = false;
  options.on_token = [&](std::int32_t) { return cancel = true, true; };
  g = must(e.generator.generate(prompt, options));
  EXPECT_EQ(g.ids.size(), 1u);
  cancel = false;
  options.on_token = nullptr;
  EXPECT_EQ(must(e.generator.generate(prompt, options)).ids.size(), 5u);
}

TEST(Generator, NoTokensWantedRunsThePromptOnly) {
  Engine e(kTiny, Codec::bf16(), 4);
  GenerateOptions options;
  options.max_tokens = 0;
  const Generation g = must(e.generator.generate(std::vector<std::int32_t>{1, 2, 3, 4}, options));
  EXPECT_EQ(g.length, 4);
  EXPECT_TRUE(g.ids.empty());
  EXPECT_EQ(g.finish_reason, FinishReason::kLength);
}

TEST(Generator, ErrorsNameTheNumbersAndLeaveItUsable) {
  Engine e(kTiny, Codec::bf16(), 8);
  GenerateOptions options;
  options.max_tokens = 4;
  const auto message = [&](const std::vector<std::int32_t>& prompt) {
    return e.generator.generate(prompt, options).status().message();
  };
  EXPECT_EQ(message({}), "generate: the prompt has no tokens");
  EXPECT_EQ(message({1, 2, 3, 4, 5, 6}),
            "generate: a prompt of 6 tokens and 4 new ones need 9 positions, the state has 8");
  EXPECT_EQ(message({1, 2, 999}), "request: prompt token 2 has id 999, allowed are 0 to 319");
  options.max_tokens = -1;
  EXPECT_EQ(message({1}), "generate: max_tokens is -1, must be at least 0");
  options.max_tokens = 4;
  options.prefill_chunk = 0;
  EXPECT_EQ(message({1}), "generate: prefill_chunk is 0, must be at least 1");
  options.prefill_chunk = 1;
  options.sampling.top_p = 2;
  EXPECT_EQ(message({1}), "top_p 2: must be above 0 and at most 1");
  options.sampling.top_p = 1;
  EXPECT_EQ(must(e.generator.generate(std::vector<std::int32_t>{1, 2, 3, 4, 5}, options)).ids.size(), 4u);
  EXPECT_EQ(Generator::create(e.model, KvChoice(), {.rows = 2}, e.pool).status().message(),
            "generator: limits.rows is 2, must be 1");
}

TEST(Generator, ReuseGivesTheSameTextAsAFreshOne) {
  Engine used(kTiny, Codec::affine(4), 64), fresh(kTiny, Codec::affine(4), 64);
  GenerateOptions options;
  options.max_tokens = 40;
  const std::vector<std::int32_t> a = {1, 2, 3}, b = {9, 8, 7, 6, 5};
  must(used.generator.generate(b, options));
  EXPECT_EQ(must(used.generator.generate(a, options)).ids, must(fresh.generator.generate(a, options)).ids);
}

// A generator whose row can lose `rollback` tokens whatever its windows.
struct RollbackEngine : Engine {
  RollbackEngine(const Codec& codec, int rollback) : Engine(kTiny, codec, 128) {
    generator = must(Generator::create(
        model, KvChoice(codec),
        {.rows = 1, .tokens = 128, .step_tokens = 64, .rollback = rollback, .total_tokens = 0}, pool));
  }
};

std::vector<std::int32_t> counting(int first, int n) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < n; i++) ids.push_back(first + i % 17);
  return ids;
}

TEST(GeneratorReuse, ATurnThatExtendsTheRowRunsOnlyWhatIsNew) {
  for (const Codec& codec : {Codec::bf16(), Codec::affine(4, 32)}) {
    RollbackEngine e(codec, 0), fresh(codec, 0);
    GenerateOptions options;
    options.max_tokens = 6;
    options.reuse = true;
    std::vector<std::int32_t> talk = counting(1, 20);
    int in_row = 0;
    for (int turn = 0; turn < 4; turn++) {
      std::vector<int> prefill;
      options.on_prefill = [&](int done, int total) { prefill.insert(prefill.end(), {done, total}); };
      const Generation g = must(e.generator.generate(talk, options));
      EXPECT_EQ(g.reused, in_row);
      EXPECT_EQ(g.lost, 0);
      EXPECT_EQ(g.lost_because, "");
      EXPECT_EQ(prefill, (std::vector<int>{static_cast<int>(talk.size()), static_cast<int>(talk.size())}));
      in_row = g.length;
      EXPECT_EQ(in_row, static_cast<int>(talk.size()) + 5);  // the last token was not fed back
      GenerateOptions plain;
      plain.max_tokens = 6;
      EXPECT_EQ(must(fresh.generator.generate(talk, plain)).ids, g.ids) << "turn " << turn;
      talk.insert(talk.end(), g.ids.begin(), g.ids.end());
      for (const std::int32_t id : {3, 9, 4 + turn}) talk.push_back(id);
    }
  }
}

TEST(GeneratorReuse, AnEditedTailIsCutOffTheRowWithinTheRollback) {
  RollbackEngine e(Codec::bf16(), 8), fresh(Codec::bf16(), 0);
  GenerateOptions options;
  options.max_tokens = 4;
  options.reuse = true;
  std::vector<std::int32_t> talk = counting(1, 60);
  (void)must(e.generator.generate(talk, options));
  talk[58] = 90;  // of 63 positions the last 5 are stale; the tiny model's window of 8 has long passed
  talk.push_back(91);
  const Generation g = must(e.generator.generate(talk, options));
  EXPECT_EQ(g.reused, 58);
  EXPECT_EQ(g.lost, 0);
  options.reuse = false;
  EXPECT_EQ(must(fresh.generator.generate(talk, options)).ids, g.ids);
}

TEST(GeneratorReuse, WhatTheWindowPassedIsRunAgainAndTheReasonIsTold) {
  RollbackEngine e(Codec::bf16(), 0), fresh(Codec::bf16(), 0);
  GenerateOptions options;
  options.max_tokens = 4;
  options.reuse = true;
  std::vector<std::int32_t> talk = counting(1, 100);
  (void)must(e.generator.generate(talk, options));
  talk[10] = 90;
  const Generation g = must(e.generator.generate(talk, options));
  EXPECT_EQ(g.reused, 0);
  EXPECT_EQ(g.lost, 10);
  EXPECT_NE(g.lost_because.find("10"), std::string::npos) << g.lost_because;
  options.reuse = false;
  EXPECT_EQ(must(fresh.generator.generate(talk, options)).ids, g.ids);
}

TEST(GeneratorReuse, TheSamePromptAgainRunsItsLastTokenOnly) {
  RollbackEngine e(Codec::bf16(), 16);
  GenerateOptions options;
  options.max_tokens = 5;
  options.reuse = true;
  const std::vector<std::int32_t> talk = counting(1, 40);
  const Generation first = must(e.generator.generate(talk, options));
  EXPECT_EQ(first.reused, 0);
  const Generation again = must(e.generator.generate(talk, options));
  EXPECT_EQ(again.reused, 39);
  EXPECT_EQ(again.ids, first.ids);
}

TEST(GeneratorReuse, AnErrorLosesTheRowAndACancelledPrefillKeepsWhatItDid) {
  RollbackEngine e(Codec::bf16(), 0);
  GenerateOptions options;
  options.max_tokens = 2;
  options.reuse = true;
  options.prefill_chunk = 8;
  std::vector<std::int32_t> talk = counting(1, 32);
  std::atomic<bool> cancel{false};
  options.cancel = &cancel;
  options.on_prefill = [&](int done, int) { cancel = done >= 16; };
  EXPECT_EQ(must(e.generator.generate(talk, options)).length, 16);
  cancel = false;
  options.on_prefill = nullptr;
  const Generation rest = must(e.generator.generate(talk, options));
  EXPECT_EQ(rest.reused, 16);
  std::vector<std::int32_t> wrong = talk;
  wrong.push_back(1 << 20);
  EXPECT_FALSE(e.generator.generate(wrong, options).ok());
  const Generation after = must(e.generator.generate(talk, options));
  EXPECT_EQ(after.reused, 0);
  EXPECT_EQ(after.ids, rest.ids);
}

}  // namespace
}  // namespace windrow
