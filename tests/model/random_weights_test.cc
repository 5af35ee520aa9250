// Random weights: the same by name whatever was asked for before, of a size that keeps activations sound.
#include "model/random_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/load_float.h"
#include "model/model_fixture.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

std::vector<float> values_of(const MatrixRows& m) {
  std::vector<float> values(m.rows * m.cols);
  for (std::size_t r = 0; r < m.rows; r++) {
    const MatrixRows row = m.part({r, 1});
    for (std::size_t c = 0; c < m.cols && !m.format; c++)
      values[r * m.cols + c] = load_float(m.dtype, row.data.codes + 2 * c);
    if (m.format) dequantize_row(*m.format, m.dtype, row.data, m.cols, 1.0f, &values[r * m.cols]);
  }
  return values;
}

TEST(RandomWeights, AreCentredWithAMeanSquareOfOneOverTheColumns) {
  ThreadPool pool = must(ThreadPool::create(2));
  const std::size_t shape[] = {64, 512};
  for (const auto& format : {std::optional<AffineFormat>(), std::optional(AffineFormat{4, 64}),
                             std::optional(AffineFormat{8, 32}), std::optional(AffineFormat{3, 128})}) {
    const std::vector<float> w =
        values_of(must(RandomWeights(format, false, pool).matrix("a.weight", shape)));
    double sum = 0, squares = 0;
    for (const float x : w) sum += x, squares += static_cast<double>(x) * x;
    EXPECT_NEAR(sum / static_cast<double>(w.size()), 0, 0.003);
    EXPECT_GT(squares / static_cast<double>(w.size()) * 512, 0.3);
    EXPECT_LT(squares / static_cast<double>(w.size()) * 512, 3.5);
  }
}

TEST(RandomWeights, FollowFromNameAndRowAlone) {
  ThreadPool one = must(ThreadPool::create(1)), three = must(ThreadPool::create(3));
  const std::size_t shape[] = {4, 10, 64};
  const RandomWeights a({{4, 64}}, false, one), b({{4, 64}}, false, three);
  const std::vector<float> all = values_of(must(a.matrix("x.weight", shape)));
  const RowRange some[] = {{7, 3}, {30, 2}};
  const std::vector<float> cut = values_of(must(b.rows("x.weight", shape, some)));
  EXPECT_TRUE(same_bits(slice(cut, 0, 3 * 64), slice(all, 7 * 64, 3 * 64)));
  EXPECT_TRUE(same_bits(slice(cut, 3 * 64, 2 * 64), slice(all, 30 * 64, 2 * 64)));
  EXPECT_FALSE(same_bits(values_of(must(a.matrix("y.weight", shape))), all));
}

TEST(RandomWeights, AMatrixThatTheGroupDoesNotDivideIsPlain) {
  ThreadPool pool = must(ThreadPool::create(1));
  const std::size_t shape[] = {3, 96};
  const MatrixRows m = must(RandomWeights({{4, 64}}, false, pool).matrix("x.weight", shape));
  EXPECT_FALSE(m.format);
  EXPECT_EQ(m.bytes(), 3u * 96 * 2);
}

TEST(RandomModel, HasFiniteLogitsAndTheBytesThatWereForetold) {
  ThreadPool pool = must(ThreadPool::create(1));
  for (const std::string family : {"gemma3", "gemma3n", "gpt_oss", "qwen3_next", "llama"}) {
    SCOPED_TRACE(family);
    std::ifstream file(WINDROW_TEST_DATA "/hf/" + family + "/config.json");
    const std::string config{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const RandomWeightsFormat format{4, 32};
    const Model model = must(Model::random(config, family, format, pool));
    EXPECT_GE(must(Model::random_bytes(config, family, format)), model.weight_bytes() * 9 / 10);
    EXPECT_LE(model.weight_bytes_read(1), model.weight_bytes());
    EXPECT_LE(model.weight_bytes_read(1), model.weight_bytes_read(8));
    const StatePlan plan =
        must(model.plan(KvChoice(Codec::f32()), {.rows = 1, .tokens = 8, .step_tokens = 8}));
    StateStore store = must(StateStore::create(plan));
    Runner runner = must(Runner::create(model, plan, pool));
    Row row = must(store.new_row());
    Row* const rows[] = {&row};
    const int lengths[] = {5};
    const std::int32_t ids[] = {1, 2, 3, 4, 5}, wanted[] = {4};
    Step step = must(store.begin(rows, lengths));
    std::vector<float> logits(static_cast<std::size_t>(model.info().vocab_size));
    must(runner.forward(step, ids, wanted, logits));
    for (const float x : logits) ASSERT_TRUE(std::isfinite(x));
    EXPECT_GT(*std::max_element(logits.begin(), logits.end()), 1e-3f) << "and not all 0";
  }
}

TEST(RandomModel, RefusesFormatsAndConfigsByName) {
  ThreadPool pool = must(ThreadPool::create(1));
  EXPECT_EQ(Model::random("{}", "shape", {7, 64}, pool).status().message(),
            "shape: codec q7:64: affine bits are 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(Model::random("{}", "shape", {}, pool).status().message().substr(0, 7), "shape: ");
  EXPECT_FALSE(Model::random_bytes("[", "shape", {}).ok());
}

}  // namespace
}  // namespace windrow
