// Models whose numbers break: a clear end instead of fluent nonsense, with every codec.
#include <gtest/gtest.h>

#include "cli/program.h"
#include "model/checkpoint.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

constexpr std::uint16_t kNaN = 0x7fc0, kInf = 0x7f80, kHuge = 0x7f00;  // bf16

// The first numbers of a tensor replaced.
void poison(Checkpoint& c, const std::string& name, std::size_t count, std::uint16_t value) {
  OwnedTensor& t = c.tensor(name);
  for (std::size_t i = 0; i < count; i++) std::memcpy(&t.bytes.at(2 * i), &value, 2);
}

constexpr const char* kReason = "its weights hold NaN or infinities, or its numbers exceed f32";

void expect_told(const Checkpoint& c, const std::string& codec) {
  for (const char* temperature : {"0", "0.8"}) {
    const Ended end =
        run_program(on_one_thread({"generate", "--model", c.folder, "--ids", "1,2,3", "--max-tokens", "4",
                                   "--kv", codec, "--temperature", temperature, "--ignore-eos"}));
    EXPECT_EQ(end.code, 1);
    EXPECT_EQ(end.out, "");
    EXPECT_EQ(end.err.rfind("windrow: the model gives no probabilities for position 3: ", 0), 0u) << end.err;
    EXPECT_NE(end.err.find(kReason), std::string::npos) << end.err;
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
  }
}

TEST(CliBrokenModel, WeightsThatAreNoNumbersAreToldWithEveryCodec) {
  const struct {
    std::string tensor;
    std::size_t count;
    std::uint16_t value;
  } cases[] = {
      {"model.layers.0.self_attn.v_proj.weight", 1, kNaN},  // one number of the values: codecs pass over it
      {"model.layers.1.self_attn.v_proj.weight", 1, kInf},  //
      {"model.layers.0.self_attn.k_norm.weight", 1, kNaN},  // one number of each key
      {"model.layers.2.self_attn.k_proj.weight", 2, kInf},  // the norm makes zeros and a NaN of it
      {"model.layers.3.mlp.down_proj.weight", 64, kHuge},   // finite, its products are not
      {"model.norm.weight", 1, kNaN},                       // behind all state
      {"model.embed_tokens.weight", 2 * 64, kNaN},          // ids 0 and 1
  };
  for (const auto& bad : cases) {
    Checkpoint c;
    poison(c, bad.tensor, bad.count, bad.value);
    c.save();
    for (const char* codec : {"f32", "bf16", "q8", "q4", "q2:32"}) {
      SCOPED_TRACE(bad.tensor + " " + codec);
      expect_told(c, codec);
    }
  }
}

TEST(CliBrokenModel, TheErrorStandsOnALineOfItsOwnBehindWhatWasWritten) {
  const std::vector<std::string> args = {"generate", "--ids",        "1,2,3",   "--max-tokens",
                                         "4",        "--ignore-eos", "--quiet", "--model"};
  const auto run = [&](const std::string& folder) {
    std::vector<std::string> all = args;
    all.push_back(folder);
    return run_program(on_one_thread(all));
  };
  const std::string sound = run(kTiny).out;
  const std::string first = sound.substr(0, sound.find(','));
  // An embedding that breaks when the first token comes back in; the head is another tensor.
  Checkpoint c;
  c.replace("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  OwnedTensor head = c.tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  OwnedTensor& embedding = c.tensor("model.embed_tokens.weight");
  std::memcpy(&embedding.bytes.at(2 * 64 * std::stoul(first)), &kNaN, 2);
  c.tensors.push_back(head);
  c.save();
  const Ended end = run(c.folder);
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.out, first + "\n");
  EXPECT_EQ(end.err.rfind("windrow: the model gives no probabilities for position 4: ", 0), 0u) << end.err;
}

TEST(CliBrokenModel, LogitsAreNotWritten) {
  Checkpoint c;
  poison(c, "model.layers.0.self_attn.v_proj.weight", 1, kNaN);
  c.save();
  const TempFolder dir;
  const Ended end = run_program({"logits", "--model", c.folder, "--ids", "1,2,3", "--kv", "q4", "--out",
                                 dir.path("l"), "--threads", "1"});
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.err,
            "windrow: the logits of position 0 are not finite (id 0: NaN): the model's weights hold NaN or "
            "infinities, or its numbers exceed f32\n");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace windrow
