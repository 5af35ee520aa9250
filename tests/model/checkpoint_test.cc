// Checkpoints as they come: other weight types, untied heads, shards, multimodal names; and broken ones.
#include <gtest/gtest.h>

#include "model/checkpoint.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

constexpr Limits kRoom{.rows = 1, .tokens = 64, .step_tokens = 64, .rollback = 0, .total_tokens = 0};

std::vector<float> prompt_logits(const std::string& folder) {
  Session s(folder, KvChoice(Codec::f32()), kRoom);
  return s.logits(Golden(kTiny).ids("prompt"), 64);
}

TEST(Checkpoint, WeightsInF32GiveTheBitsOfTheSameWeightsInBf16) {
  Checkpoint c;
  for (OwnedTensor& t : c.tensors) t = Checkpoint::converted(t, DType::kF32);
  c.save();
  EXPECT_TRUE(same_bits(prompt_logits(c.folder), prompt_logits(kTiny)));
}

TEST(Checkpoint, WeightsInF16GiveTheLogitsOfTransformers) {
  Checkpoint c;
  for (OwnedTensor& t : c.tensors) t = Checkpoint::converted(t, DType::kF16);
  c.save();
  EXPECT_LT(relative_error(prompt_logits(c.folder), Golden(kTiny).floats("prompt_logits")), 2e-5);
}

TEST(Checkpoint, TypesMayDifferFromTensorToTensor) {
  Checkpoint c;
  for (std::size_t i = 0; i < c.tensors.size(); i += 2)
    c.tensors[i] = Checkpoint::converted(c.tensors[i], DType::kF32);
  c.save();
  EXPECT_TRUE(same_bits(prompt_logits(c.folder), prompt_logits(kTiny)));
}

TEST(Checkpoint, ShardsGiveTheSameBits) {
  Checkpoint c;
  c.save(3);
  EXPECT_TRUE(same_bits(prompt_logits(c.folder), prompt_logits(kTiny)));
}

TEST(Checkpoint, AnUntiedHeadIsUsedAndATiedOneIsNot) {
  const std::vector<float> tied = prompt_logits(kTiny);
  Checkpoint c;
  OwnedTensor head = c.tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  c.tensors.push_back(head);
  c.save();
  EXPECT_TRUE(same_bits(prompt_logits(c.folder), tied));  // tied: the extra head is not read
  // Untied, with the rows of tokens 0 and 1 changed about: so are their logits, and no others.
  c.replace("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  std::vector<std::byte>& rows = c.tensor("lm_head.weight").bytes;
  std::swap_ranges(rows.begin(), rows.begin() + 128, rows.begin() + 128);
  c.save();
  std::vector<float> got = prompt_logits(c.folder);
  EXPECT_FALSE(same_bits(got, tied));
  for (std::size_t t = 0; t < 48; t++) std::swap(got[t * 320], got[t * 320 + 1]);
  EXPECT_TRUE(same_bits(got, tied));
}

TEST(Checkpoint, TheTextPartOfAMultimodalFolderIsFoundUnderBothPrefixes) {
  const std::vector<float> want = prompt_logits(kTiny);
  for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
    Checkpoint c;
    for (OwnedTensor& t : c.tensors) t.name = prefix + t.name.substr(6);
    c.tensors.push_back({"vision_tower.patch.weight", DType::kBF16, {2}, std::vector<std::byte>(4)});
    c.config = "{\"model_type\": \"gemma3\", \"text_config\": " + c.config + "}";
    c.save();
    EXPECT_TRUE(same_bits(prompt_logits(c.folder), want)) << prefix;
  }
}

TEST(Checkpoint, AFinalSoftcapBoundsTheLogits) {
  Checkpoint c;
  c.replace("\"final_logit_softcapping\": null", "\"final_logit_softcapping\": 0.5");
  c.save();
  const std::vector<float> got = prompt_logits(c.folder), plain = prompt_logits(kTiny);
  for (std::size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i], 0.5 * std::tanh(plain[i] / 0.5), 1e-6);
}

TEST(Checkpoint, WhatIsWrongWithATensorIsSaidWithItsName) {
  {
    Checkpoint c;
    std::erase_if(c.tensors,
                  [](const OwnedTensor& t) { return t.name.ends_with("2.self_attn.q_norm.weight"); });
    c.save();
    // The path once, not once for each of the readers it came through.
    EXPECT_EQ(c.load_error(),
              "/model.safetensors: tensor \"model.layers.2.self_attn.q_norm.weight\" of shape "
              "[64] is missing");
  }
  {
    Checkpoint c;
    OwnedTensor& t = c.tensor("model.layers.2.mlp.up_proj.weight");
    t.shape = {64, 96};
    c.save();
    const std::string error = c.load_error();
    EXPECT_NE(error.find("model.layers.2.mlp.up_proj.weight"), std::string::npos) << error;
    EXPECT_NE(error.find("[64, 96]"), std::string::npos) << error;
    EXPECT_NE(error.find("[96, 64]"), std::string::npos) << error;
  }
  {
    Checkpoint c;
    OwnedTensor& t = c.tensor("model.layers.3.self_attn.q_norm.weight");
    t.dtype = DType::kI16;
    c.save();
    const std::string error = c.load_error();
    EXPECT_NE(error.find("model.layers.3.self_attn.q_norm.weight"), std::string::npos) << error;
    EXPECT_NE(error.find("I16"), std::string::npos) << error;
  }
}

TEST(Checkpoint, ATensorThatTheFamilyDoesNotKnowIsRefusedByName) {
  Checkpoint c;
  c.tensors.push_back(
      {"model.layers.0.self_attn.q_proj.bias", DType::kBF16, {256}, std::vector<std::byte>(512)});
  c.save();
  EXPECT_EQ(c.load_error(),
            "/model.safetensors: tensor \"model.layers.0.self_attn.q_proj.bias\": this model family has no "
            "use for it");
}

TEST(Checkpoint, OldBuffersAreNoReasonToRefuse) {
  Checkpoint c;
  c.tensors.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {32}, std::vector<std::byte>(128)});
  c.save();
  EXPECT_EQ(c.load_error(), "");
}

TEST(Checkpoint, WithoutEmbeddingsTheThreePrefixesAreNamed) {
  Checkpoint c;
  for (OwnedTensor& t : c.tensors) t.name = "transformer." + t.name;
  c.save();
  EXPECT_EQ(c.load_error(),
            "/model.safetensors: no tensor \"model.embed_tokens.weight\" (nor under "
            "\"language_model.model.\" or \"model.language_model.\")");
}

TEST(Checkpoint, LoadingTellsItsProgressUpToTheEnd) {
  ThreadPool pool = must(ThreadPool::create(1));
  std::size_t calls = 0, before = 0, total = 0;
  LoadOptions options;
  options.progress = [&](std::size_t done, std::size_t all) {
    EXPECT_LE(before, done);
    EXPECT_LE(done, all);
    before = done, total = all;
    calls++;
  };
  const Model model = must(Model::load(kTiny, pool, options));
  EXPECT_EQ(before, total);
  EXPECT_GT(calls, 10u);
  // 320 x 64 embeddings, a final norm, and six layers.
  const std::size_t layer = 64 * (256 + 128 + 128 + 256) + 3 * 64 * 96 + 4 * 64 + 2 * 64;
  EXPECT_EQ(model.parameters(), 320 * 64 + 64 + 6 * layer);
}

}  // namespace
}  // namespace windrow
