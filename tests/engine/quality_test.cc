// The quality meter on real models: what it finds has the order it must have, and does not depend on how it
// is measured.
#include "windrow/quality.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/model_fixture.h"
#include "support/sanitized.h"
#include "support/temp_folder.h"
#include "windrow/tokenizer.h"

namespace windrow {
namespace {

using testing::kSanitized;
using testing::kStoryteller;
using testing::kTiny;
using testing::must;

const std::string kText = WINDROW_TEST_DATA "/quality/lantern.txt";

struct Meter {
  ThreadPool pool;
  Model model;
  QualityText text;

  explicit Meter(const std::string& folder, int threads = 1)
      : pool(must(ThreadPool::create(threads))), model(must(Model::load(folder, pool))) {}

  QualityReport measure(const std::vector<KvTrial>& trials, const QualityOptions& options) {
    return must(measure_quality(model, text, trials, options, pool));
  }
  std::string refusal(const std::vector<KvTrial>& trials, const QualityOptions& options) {
    const Result<QualityReport> report = measure_quality(model, text, trials, options, pool);
    return report.ok() ? "accepted" : report.status().message();
  }
};

// The storyteller and the text of tests/data. On one thread where threads are not the matter: tests run side
// by side.
Meter storyteller(int threads = 1) {
  Meter m(kStoryteller, threads);
  m.text.ids =
      must(must(Tokenizer::load(kStoryteller + "/tokenizer.json")).encode(read_whole_file(kText), false));
  m.text.start = m.model.info().bos_ids;
  return m;
}

// A family of tests/data with random ids.
Meter family(const std::string& name) {
  Meter m(WINDROW_TEST_DATA "/hf/" + name, 1);
  for (int i = 0; i < 60; i++) m.text.ids.push_back((i * 37 + i * i) % m.model.info().vocab_size);
  return m;
}

KvTrial uniform(const Codec& codec) { return {.kv = KvChoice(codec), .attention = true}; }

bool same(const Divergence& a, const Divergence& b) {
  return a.kld_mean == b.kld_mean && a.kld_median == b.kld_median && a.kld_p99 == b.kld_p99 &&
         a.kld_max == b.kld_max && a.same_top == b.same_top && a.nll == b.nll;
}

TEST(Quality, FewerBitsDivergeMoreInAllLayersAndInEachGroup) {
  Meter m = storyteller();
  EXPECT_GE(m.text.ids.size(), 2000u);
  const Codec codecs[] = {Codec::affine(8), Codec::affine(4), Codec::affine(3), Codec::affine(2)};
  const std::vector<std::vector<int>> units = kv_units(m.model.info().layers);
  ASSERT_EQ(units, (std::vector<std::vector<int>>{{0, 1, 2, 3, 4}, {5}}));
  std::vector<KvTrial> trials;
  for (const Codec& c : codecs) trials.push_back(uniform(c));
  for (const std::vector<int>& unit : units) {
    for (const Codec& c : codecs) trials.push_back({.kv = with_codecs(KvChoice(Codec::f32()), unit, {c, c})});
  }
  const QualityReport r = m.measure(trials, {.context = 512, .tokens = kSanitized ? 100u : 2000u});
  EXPECT_EQ(r.tokens, kSanitized ? 100u : 2000u);
  EXPECT_GT(r.reference.perplexity(), 5);
  EXPECT_LT(r.reference.perplexity(), 60) << "prose, for a model of prose, of 2,048 tokens";
  for (std::size_t i = 0; i < trials.size(); i++) {
    const Divergence& d = r.trials[i].divergence;
    EXPECT_GT(d.kld_mean, 0);
    EXPECT_LE(d.kld_median, d.kld_p99);
    EXPECT_LE(d.kld_p99, d.kld_max);
    if (i % 4 == 0) continue;
    const Divergence& finer = r.trials[i - 1].divergence;
    EXPECT_LT(finer.kld_mean, d.kld_mean) << i;
    EXPECT_GE(finer.same_top, d.same_top) << i;
  }
  for (std::size_t layer = 0; layer < 6; layer++) {
    for (std::size_t i = 1; i < 4; i++) {
      EXPECT_LT(r.trials[i - 1].attention[layer], r.trials[i].attention[layer]) << layer;
    }
    EXPECT_GT(r.trials[0].attention[layer], 0.001);
    EXPECT_LT(r.trials[3].attention[layer], 1);
  }
}

TEST(Quality, F32StateIsTheReferenceExactlyAndBf16IsClose) {
  Meter m = storyteller();
  KvTrial same_by_layers{.kv = KvChoice(Codec::affine(2))};
  for (int layer = 0; layer < 6; layer++) same_by_layers.kv.layers[layer] = {Codec::f32(), Codec::f32()};
  const QualityReport r = m.measure({uniform(Codec::f32()), uniform(Codec::bf16()), same_by_layers},
                                    {.context = 100, .tokens = 150});
  for (const std::size_t exact : {0, 2}) {
    EXPECT_EQ(r.trials[exact].divergence.kld_max, 0.0);
    EXPECT_EQ(r.trials[exact].divergence.same_top, 1.0);
    EXPECT_EQ(r.trials[exact].divergence.nll, r.reference.nll);
  }
  EXPECT_EQ(r.trials[0].attention, std::vector<double>(6, 0.0)) << "the same kernels over the same bytes";
  EXPECT_TRUE(r.trials[2].attention.empty());
  EXPECT_GT(r.trials[1].divergence.kld_mean, 0);
  EXPECT_LT(r.trials[1].divergence.kld_mean, 1e-4);
  EXPECT_EQ(r.windows, 2u);
}

TEST(Quality, ResultsDoNotDependOnThreadsChunksAndPasses) {
  const std::vector<KvTrial> trials = {uniform(Codec::affine(4)), uniform(Codec::f16()),
                                       uniform(Codec::affine(3))};
  std::size_t most_done = 0, calls = 0;
  const auto report = [&](int threads, int step_tokens, std::size_t state_bytes) {
    Meter m = storyteller(threads);
    QualityOptions options{.context = 80,
                           .step_tokens = step_tokens,
                           .tokens = kSanitized ? 90u : 200u,
                           .state_bytes = state_bytes};
    options.progress = [&](std::size_t done, std::size_t total) {
      calls++;
      most_done = done;
      EXPECT_LE(done, total);
      if (done == total) most_done = 0;
    };
    QualityReport r = m.measure(trials, options);
    EXPECT_EQ(most_done, 0u) << "the last call says that all is done";
    return r;
  };
  const QualityReport whole = report(1, 512, std::size_t{1} << 30);
  for (const QualityReport& other : {report(2, 7, std::size_t{1} << 30), report(1, 33, 1)}) {
    EXPECT_TRUE(same(whole.reference, other.reference));
    for (std::size_t i = 0; i < trials.size(); i++) {
      EXPECT_TRUE(same(whole.trials[i].divergence, other.trials[i].divergence)) << i;
      EXPECT_EQ(whole.trials[i].attention, other.trials[i].attention) << i;
    }
  }
  EXPECT_GT(calls, 10u);
}

TEST(Quality, TheDivergenceIsThatOfTheLogitsOfSuchAState) {
  Meter m(kTiny, 1);
  const testing::Golden golden(kTiny);
  m.text.ids = golden.ids("prompt");
  const QualityReport r = m.measure({uniform(Codec::affine(4))}, {.context = 64});
  const std::size_t tokens = m.text.ids.size() - 1;  // no start: the first is not scored
  ASSERT_EQ(r.tokens, tokens);
  const Limits limits{.rows = 1, .tokens = 64, .step_tokens = 64};
  testing::Session exact(kTiny, KvChoice(Codec::f32()), limits),
      four(kTiny, KvChoice(Codec::affine(4)), limits);
  const std::vector<float> p = exact.logits(m.text.ids, 64), q = four.logits(m.text.ids, 64);
  const std::size_t vocab = exact.vocab();
  double kld = 0;
  for (std::size_t t = 0; t < tokens; t++) {
    double zp = 0, zq = 0;
    for (std::size_t i = t * vocab; i < (t + 1) * vocab; i++)
      zp += std::exp(double{p[i]}), zq += std::exp(double{q[i]});
    for (std::size_t i = t * vocab; i < (t + 1) * vocab; i++) {
      kld += std::exp(double{p[i]}) / zp * (double{p[i]} - double{q[i]} - std::log(zp) + std::log(zq));
    }
  }
  EXPECT_NEAR(r.trials[0].divergence.kld_mean, kld / static_cast<double>(tokens), 1e-12);
}

TEST(Quality, SharersAndRecurrentLayersArePartOfTheMeasurement) {
  for (const char* name : {"gemma3n", "qwen3_next", "gpt_oss"}) {
    SCOPED_TRACE(name);
    Meter m = family(name);
    const QualityReport r =
        m.measure({uniform(Codec::affine(8, 32)), uniform(Codec::affine(3, 32))}, {.context = 40});
    EXPECT_LT(r.trials[0].divergence.kld_mean, r.trials[1].divergence.kld_mean);
    const std::vector<LayerShape>& layers = m.model.info().layers;
    for (std::size_t i = 0; i < layers.size(); i++) {
      if (layers[i].recurrent) {
        EXPECT_EQ(r.trials[1].attention[i], 0.0) << i;
      } else {
        EXPECT_LT(r.trials[0].attention[i], r.trials[1].attention[i]) << i;
        EXPECT_GT(r.trials[0].attention[i], 0) << i;
      }
    }
  }
}

TEST(Quality, UnitsAreTheLayersThatStoreState) {
  std::vector<LayerShape> layers(5, LayerShape{8, 2, 64});
  layers[1].window = kFullWindow;
  layers[3].donor = 0;
  layers[4].recurrent.emplace();
  EXPECT_EQ(kv_units(layers), (std::vector<std::vector<int>>{{0, 2}, {1}}));
  EXPECT_EQ(kv_units(layers, true), (std::vector<std::vector<int>>{{0}, {1}, {2}}));
}

TEST(Quality, WhatCanNotBeMeasuredIsRefused) {
  Meter m(kTiny, 1);
  const std::vector<KvTrial> one = {uniform(Codec::affine(4))};
  EXPECT_EQ(m.refusal(one, {}), "quality: context is 1024, the model was made for 1 to 512");
  EXPECT_EQ(m.refusal(one, {.context = 64}), "quality: the text has no token to score");
  m.text.ids = {5};
  EXPECT_EQ(m.refusal(one, {.context = 64}), "quality: the text has no token to score");
  m.text.start = {2, 3};
  EXPECT_EQ(m.refusal(one, {.context = 2}),
            "quality: a context of 2 has no room behind the 2 tokens at its start");
  EXPECT_EQ(m.refusal(one, {.context = 3, .step_tokens = 0}),
            "quality: step_tokens is 0, must be at least 1");
  EXPECT_EQ(m.refusal(one, {.context = 3}), "accepted");
  EXPECT_EQ(m.refusal({}, {.context = 3}), "accepted");
  m.text.ids = {5, 320};
  EXPECT_EQ(m.refusal(one, {.context = 64}), "quality: token 1 of the text has id 320, allowed are 0 to 319");
  m.text.ids = {5, 6};
  m.text.start = {-1};
  EXPECT_EQ(m.refusal(one, {.context = 64}), "quality: token 0 of the start has id -1, allowed are 0 to 319");
  m.text.start = {2};
  const Model other = must(Model::load(kStoryteller, m.pool));
  EXPECT_EQ(m.refusal({{.model = &other}}, {.context = 64}),
            "quality: a trial's model has other layers or another vocabulary than the reference");
  EXPECT_NE(m.refusal({uniform(Codec::affine(4, 128))}, {.context = 64}).find("kv choice: layer 0"),
            std::string::npos);
}

TEST(Quality, AnotherModelOfTheSameShapeIsComparedWithF32StateToo) {
  Meter m(kTiny, 1);
  m.text.ids = {5, 6, 7, 8, 9, 10};
  const Model again = must(Model::load(kTiny, m.pool));
  const QualityReport r = m.measure({{.kv = KvChoice(Codec::f32()), .model = &again}}, {.context = 64});
  EXPECT_EQ(r.trials[0].divergence.kld_max, 0.0) << "the same weights give the same logits";
  EXPECT_EQ(r.trials[0].divergence.nll, r.reference.nll);
}

TEST(Quality, ComputeModesDoNotApplyToAModelWithoutQuantizedWeights) {
  Meter m(kTiny, 1);
  m.text.ids = {5, 6, 7};
  const Result<std::vector<ComputeReport>> modes = measure_compute(kTiny, m.text, {.context = 64}, m.pool);
  ASSERT_TRUE(modes.ok()) << modes.status().message();
  EXPECT_TRUE(modes->empty());
  EXPECT_FALSE(measure_compute("/nowhere", m.text, {.context = 64}, m.pool).ok());
}

TEST(Suggest, BeatsTheUniformAssignmentOfEqualBytes) {
  Meter m = storyteller();
  const QualityOptions options{.context = 256, .tokens = kSanitized ? 60u : 256u};
  const ModelInfo& info = m.model.info();
  for (const Codec& codec : {Codec::affine(4), Codec::affine(3)}) {
    SuggestOptions suggest;
    suggest.budget = must(kv_row_bytes(info, KvChoice(codec), options.context));
    suggest.codecs = {Codec::affine(8), Codec::affine(5), Codec::affine(4), Codec::affine(3),
                      Codec::affine(2)};
    suggest.units = kv_units(info.layers);
    const Suggestion s = must(suggest_kv(m.model, m.text, suggest, options, m.pool));
    ASSERT_TRUE(s.uniform.has_value());
    EXPECT_EQ(s.uniform->codec, codec);
    EXPECT_EQ(s.uniform->bytes, suggest.budget);
    EXPECT_LE(s.chosen.bytes, suggest.budget);
    EXPECT_EQ(s.chosen.bytes, must(kv_row_bytes(info, s.chosen.kv, options.context)));
    EXPECT_LT(s.chosen.divergence.kld_mean, s.uniform->divergence.kld_mean);
    EXPECT_NEAR(s.predicted / s.chosen.divergence.kld_mean, 1, 0.3) << "divergences nearly add up";
    // What is told is what is measured.
    const QualityReport again = m.measure({{.kv = s.chosen.kv}, {.kv = KvChoice(codec)}}, options);
    EXPECT_TRUE(same(again.trials[0].divergence, s.chosen.divergence));
    EXPECT_TRUE(same(again.trials[1].divergence, s.uniform->divergence));
  }
}

TEST(Suggest, ABudgetWithoutLimitGivesF32AndTheSmallestGivesTheSmallest) {
  Meter m(kTiny, 1);
  for (int i = 0; i < 40; i++) m.text.ids.push_back(3 + i * 7);
  SuggestOptions suggest{.budget = std::size_t{1} << 40,
                         .codecs = {Codec::f32(), Codec::affine(4)},
                         .units = kv_units(m.model.info().layers, true)};
  const Suggestion large = must(suggest_kv(m.model, m.text, suggest, {.context = 30}, m.pool));
  EXPECT_EQ(large.chosen.divergence.kld_max, 0.0);
  EXPECT_EQ(large.chosen.bytes, must(kv_row_bytes(m.model.info(), KvChoice(Codec::f32()), 30)));
  suggest.budget = must(kv_row_bytes(m.model.info(), KvChoice(Codec::affine(4)), 30));
  const Suggestion small = must(suggest_kv(m.model, m.text, suggest, {.context = 30}, m.pool));
  EXPECT_EQ(small.chosen.bytes, suggest.budget);
  EXPECT_EQ(small.chosen.divergence.kld_mean, small.uniform->divergence.kld_mean);
}

TEST(Suggest, WhatCanNotBeSuggestedIsRefusedWithTheNumbers) {
  Meter m(kTiny, 1);
  m.text.ids = {5, 6, 7, 8};
  SuggestOptions suggest{.budget = 1, .codecs = {Codec::affine(4)}, .units = kv_units(m.model.info().layers)};
  const auto message = [&] {
    const Result<Suggestion> s = suggest_kv(m.model, m.text, suggest, {.context = 64}, m.pool);
    return s.ok() ? "accepted" : s.status().message();
  };
  const std::size_t least = must(kv_row_bytes(m.model.info(), KvChoice(Codec::affine(4)), 64));
  const std::string text = "a budget of {} bytes, a row of 64 positions takes at least {}";
  EXPECT_EQ(message(), fmt::format(fmt::runtime(text), 1, least));
  suggest.budget = least - 1;
  EXPECT_EQ(message(), fmt::format(fmt::runtime(text), least - 1, least));
  suggest.budget = least;
  EXPECT_EQ(message(), "accepted");
  suggest.units = {{0, 1, 2}};
  EXPECT_EQ(message(),
            "suggestion: the units name 3 layers, expected each of the 6 that store keys and values once");
  suggest.units = {{0, 1, 2, 3, 4, 5, 5}};
  EXPECT_EQ(message(),
            "suggestion: the units name 7 layers, expected each of the 6 that store keys and values once");
  suggest.codecs.clear();
  EXPECT_EQ(message(), "suggestion: no codec to choose from");
}

}  // namespace
}  // namespace windrow
