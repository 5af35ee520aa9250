// Invariant 8 with models: save, lose everything, restore and go on is going on, bit for bit.
#include "windrow/session.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/model_fixture.h"
#include "support/temp_folder.h"
#include "windrow/engine.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

constexpr int kTokens = 400;

struct Engine {
  ThreadPool pool;
  Model model;
  Generator generator;
  Engine(const std::string& folder, const std::string& codec, int threads = 1)
      : pool(must(ThreadPool::create(threads))),
        model(must(Model::load(folder, pool))),
        generator(must(Generator::create(
            model, KvChoice(must(parse_kv_codec(codec, model.info().layers))),
            {.rows = 1, .tokens = kTokens, .step_tokens = 64, .rollback = 0, .total_tokens = 0}, pool))) {}
};

const SessionIdentity kIdentity{
    .model = "m", .tokenizer = "", .rope = "", .adapter = "", .numerics = "1", .tenant = ""};

std::vector<std::int32_t> prompt_of(int length, const ModelInfo& info) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < length; i++) ids.push_back((i * 37 + 11) % info.vocab_size);
  return ids;
}

GenerateOptions greedy(int tokens, bool reuse) {
  GenerateOptions options;
  options.max_tokens = tokens;
  options.reuse = reuse;
  return options;
}

// The text of `prompt` and `first` + `then` new tokens: in one go, and in two lives with a file between them.
void expect_two_lives_are_one(const std::string& folder, const std::string& codec, int length, int first,
                              int then) {
  SCOPED_TRACE(fmt::format("{} {} {} + {} + {}", folder, codec, length, first, then));
  const TempFolder files;
  std::vector<std::int32_t> text;
  {
    Engine e(folder, codec);
    text = prompt_of(length, e.model.info());
    const Generation g = must(e.generator.generate(text, greedy(first, false)));
    text.insert(text.end(), g.ids.begin(), g.ids.end());
    SessionWriter writer = must(SessionWriter::create(e.generator.plan(), kIdentity));
    must(writer.add(e.generator.row(), text));
    must(writer.save(files.path("s")));
  }
  Engine second(folder, codec, 2);
  const SessionFile file = must(SessionFile::open(files.path("s")));
  ASSERT_EQ(file.row(0).tokens, text);
  std::vector<Row> rows = must(file.restore(second.generator.store(), kIdentity));
  must(second.generator.set_row(std::move(rows[0]),
                                std::span(text).first(static_cast<std::size_t>(file.row(0).length))));
  const Generation g = must(second.generator.generate(text, greedy(then, true)));
  // field-notes row 3: a restored text costs one token, the one that was chosen last. If none was chosen, the
  // last of the prompt is run again, which a recurrent state, that can't be cut, has to begin anew for.
  const bool recurrent = second.generator.plan().recurrent_count() > 0;
  EXPECT_EQ(static_cast<int>(text.size()) - g.reused, first == 0 && recurrent ? length : 1);
  text.insert(text.end(), g.ids.begin(), g.ids.end());

  Engine whole(folder, codec);
  std::vector<std::int32_t> expected = prompt_of(length, whole.model.info());
  const Generation all = must(whole.generator.generate(expected, greedy(first + then, false)));
  expected.insert(expected.end(), all.ids.begin(), all.ids.end());
  EXPECT_EQ(text, expected);
  EXPECT_TRUE(must(second.generator.row().extract()) == must(whole.generator.row().extract()));
}

class TwoLives : public ::testing::TestWithParam<std::string> {};

// Windows of 8 (hf) and 64 (storyteller): inside the first one, at its edge, and wrapped several times.
TEST_P(TwoLives, AreOneForEveryCodec) {
  const std::string folder = GetParam();
  for (const char* codec : {"q4", "bf16"}) {
    expect_two_lives_are_one(folder, codec, 5, 0, 10);
    expect_two_lives_are_one(folder, codec, 4, 2, 12);
    expect_two_lives_are_one(folder, codec, 7, 2, 12);
    expect_two_lives_are_one(folder, codec, 60, 31, 30);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TwoLives,
                         ::testing::Values(kStoryteller, kTiny, WINDROW_TEST_DATA "/hf/gemma4",
                                           WINDROW_TEST_DATA "/hf/gpt_oss",
                                           WINDROW_TEST_DATA "/hf/qwen3_next"));

TEST(Fingerprints, TellFoldersApartAndAreTheSameOnAnyNumberOfThreads) {
  ThreadPool one = must(ThreadPool::create(1)), three = must(ThreadPool::create(3));
  const std::string a = must(model_fingerprint(kTiny, one));
  EXPECT_EQ(a.size(), 64u);
  EXPECT_EQ(must(model_fingerprint(kTiny, three)), a);
  EXPECT_NE(must(model_fingerprint(WINDROW_TEST_DATA "/hf/gemma4", one)), a);
  EXPECT_NE(must(rope_parameters(kTiny)).find("rope"), std::string::npos);
  EXPECT_FALSE(model_fingerprint("/nowhere", one).ok());
  EXPECT_FALSE(file_fingerprint("/nowhere").ok());
}

// Every byte of the weights counts, and of the config what it says, not how it is written.
TEST(Fingerprints, SeeAOneBitChangeOfAWeightAndNoWhiteSpace) {
  ThreadPool pool = must(ThreadPool::create(2));
  const TempFolder folder;
  const std::string config = read_whole_file(kTiny + "/config.json");
  std::string weights = read_whole_file(kTiny + "/model.safetensors");
  folder.write("config.json", config);
  folder.write("model.safetensors", weights);
  const std::string a = must(model_fingerprint(folder.path(), pool));
  folder.write("config.json", "\n " + config + "\n\n");
  EXPECT_EQ(must(model_fingerprint(folder.path(), pool)), a);
  weights[weights.size() - 7] ^= 1;
  folder.write("model.safetensors", weights);
  EXPECT_NE(must(model_fingerprint(folder.path(), pool)), a);
}

}  // namespace
}  // namespace windrow
