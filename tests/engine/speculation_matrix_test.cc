// Greedy text with drafts is the plain one, bit for bit: families x codecs x batch sizes, over more than five
// windows, while requests join, are cancelled and set each other aside.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "engine/drafted_batch.h"
#include "engine/solo.h"
#include "model/model_fixture.h"
#include "support/sanitized.h"
#include "windrow/speculation.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

struct Family {
  const char* name;
  std::string folder;
  int tokens;  // new ones of a request: more than five windows
};
void PrintTo(const Family& f, std::ostream* out) { *out << f.name; }

std::string hf(const char* name) { return std::string(WINDROW_TEST_DATA "/hf/") + name; }

const Codec kCodecs[] = {Codec::f32(), Codec::bf16(), Codec::affine(8, 32), Codec::affine(4, 32)};

// A model that writes texts alone and in batches.
class Matrix {
 public:
  explicit Matrix(const Family& family)
      : tokens_(kSanitized ? family.tokens / 4 : family.tokens),
        pool_(must(ThreadPool::create(1))),
        model_(must(Model::load(family.folder, pool_))) {}

  // One batch of `rows` rows and two requests more than that, the later ones of higher priority now and then.
  void expect_plain_texts(const Codec& codec, int rows, unsigned seed, Counted& counted) {
    SCOPED_TRACE(fmt::format("{} x{} seed {}", codec.to_string(), rows, seed));
    const StatePlan plan = must(model_.plan(KvChoice(codec), {.rows = rows,
                                                              .tokens = kPrompt + tokens_,
                                                              .step_tokens = 32 + 20 * rows,
                                                              .tree_nodes = 20,
                                                              .verify_tokens = 20}));
    Runner runner = must(Runner::create(model_, plan, pool_));
    RunnerModel step_model(runner, model_.info());
    const int vocab = model_.info().vocab_size;
    std::mt19937 random(seed);
    Wanted wanted;
    for (int i = 0; i < rows + 2; i++) {
      Request r;
      for (int t = 0; t < kPrompt - i % 3; t++)
        r.prompt.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab)));
      r.max_tokens = tokens_;
      r.priority = random() % 3 == 0 ? 1 : 0;
      if (random() % 5 == 0) r.draft_tokens = 0;  // a plain row among them
      if (i % 5 == 2)
        r.sampling = {.temperature = 0.7f, .top_k = 20, .seed = seed + static_cast<unsigned>(i)};
      wanted.alone.push_back(run_alone(step_model, plan, r));
      wanted.requests.push_back(std::move(r));
    }
    Texts texts;
    NoisyDrafter drafter(texts, vocab, seed);
    StateStore store = must(StateStore::create(plan, {.poison = true}));
    expect_solo_texts(step_model, store, {.prefill_chunk = 5, .draft_tokens = 16, .drafter = &drafter},
                      wanted, texts, seed, true, counted);
    EXPECT_EQ(store.live_rows(), 0);
  }

 private:
  static constexpr int kPrompt = 12;
  int tokens_;
  ThreadPool pool_;
  Model model_;
};

class SpeculationMatrix : public ::testing::TestWithParam<Family> {};

TEST_P(SpeculationMatrix, DraftsJoinsCancelsAndPreemptionsChangeNoToken) {
  Matrix matrix(GetParam());
  Counted counted;
  unsigned seed = 1;
  const bool large = GetParam().tokens > 100;
  for (int c = 0; c < 4; c++) {
    for (int rows = 1; rows <= 8; rows++) {
      if (large && rows != c / 2 + 1) continue;
      if (kSanitized && (large ? c % 2 == 0 : rows % 3 != 0)) continue;
      matrix.expect_plain_texts(kCodecs[c], rows, seed++, counted);
    }
  }
  EXPECT_GE(counted.rounds, kSanitized ? 50 : large ? 400 : 2000);
  EXPECT_GT(counted.accepted, counted.rounds / 2);
  EXPECT_GT(counted.rejected, counted.rounds / 2);
  if (kSanitized) return;
  EXPECT_GT(counted.set_aside, large ? 0 : 5);
  EXPECT_GT(counted.cancelled, large ? 0 : 5);
}

// The long form, for the nights: --gtest_also_run_disabled_tests.
TEST_P(SpeculationMatrix, DISABLED_EveryBatchSizeOfEveryCodec) {
  Matrix matrix(GetParam());
  Counted counted;
  unsigned seed = 100;
  for (const Codec& codec : kCodecs) {
    for (int rows = 1; rows <= 8; rows++) {
      for (int i = 0; i < (GetParam().tokens > 100 ? 1 : 5); i++)
        matrix.expect_plain_texts(codec, rows, seed++, counted);
    }
  }
  fmt::print("{}: {} rounds, {} tokens accepted, {} rejected, {} texts whole, {} cancelled, {} set aside\n",
             GetParam().name, counted.rounds, counted.accepted, counted.rejected, counted.finished,
             counted.cancelled, counted.set_aside);
  EXPECT_GE(counted.rounds, 10000);
}

INSTANTIATE_TEST_SUITE_P(
    Families, SpeculationMatrix,
    ::testing::Values(Family{"storyteller", kStoryteller, 325}, Family{"gemma3", hf("gemma3"), 44},
                      Family{"gemma4", hf("gemma4"), 44}, Family{"gpt_oss", hf("gpt_oss"), 44},
                      Family{"qwen3_next", hf("qwen3_next"), 44}, Family{"mistral", hf("mistral"), 44}),
    [](const auto& info) { return std::string(info.param.name); });

// Real drafters on the storyteller over five windows, with and without branches.
void expect_storyteller_texts(const Codec& codec, int tokens, double least_model, double least_ngram) {
  ThreadPool pool = must(ThreadPool::create(1));
  const Model model = must(Model::load(kStoryteller, pool));
  const Model small = must(Model::load(kStorytellerDraft, pool));
  const Limits limits{.rows = 3, .tokens = 40 + tokens, .step_tokens = 128, .tree_nodes = 20};
  const Limits follow{.rows = 12, .tokens = 60 + tokens, .step_tokens = 128, .rollback = 24};
  const StatePlan plan = must(model.plan(KvChoice(codec), limits));
  const StatePlan small_plan = must(small.plan(KvChoice(), follow));
  Runner runner = must(Runner::create(model, plan, pool)),
         small_runner = must(Runner::create(small, small_plan, pool));
  RunnerModel target(runner, model.info()), draft(small_runner, small.info());
  const Golden golden(kStoryteller);
  Wanted wanted;
  for (int p = 0; p < 3; p++) {
    Request r{.prompt = golden.ids(fmt::format("p{}_prompt", p)), .max_tokens = tokens};
    wanted.alone.push_back(run_alone(target, plan, r));
    wanted.requests.push_back(std::move(r));
  }
  const auto expect = [&](Drafter& drafter, double least) {
    StateStore store = must(StateStore::create(plan));
    Texts texts;
    Counted counted;
    expect_solo_texts(target, store, {.draft_tokens = 6, .drafter = &drafter}, wanted, texts, 3, false,
                      counted);
    // Tokens of a verified step of a row.
    EXPECT_GT(1 + static_cast<double>(counted.accepted) / static_cast<double>(counted.rounds), least);
  };
  for (const int branches : {1, 3}) {
    StateStore follows = must(StateStore::create(small_plan));
    const std::unique_ptr<Drafter> drafter = must(make_model_drafter(draft, follows, branches));
    expect(*drafter, least_model);
    EXPECT_EQ(follows.live_rows(), 0);  // forgotten with their texts
  }
  const std::unique_ptr<Drafter> ngram = must(make_ngram_drafter());
  expect(*ngram, least_ngram);
}

TEST(Speculation, DraftModelsAndRepetitionsGiveTheSameTextInFewerSteps) {
  expect_storyteller_texts(Codec::affine(8), kSanitized ? 30 : 150, 1.5, 1.2);
}

TEST(Speculation, DISABLED_DraftModelsAndRepetitionsOverFiveWindowsOfEveryCodec) {
  for (const Codec& codec : {Codec::f32(), Codec::bf16(), Codec::affine(8), Codec::affine(4)})
    expect_storyteller_texts(codec, 325, 1.5, 1.2);
}

}  // namespace
}  // namespace windrow
