// config.json of every family: the reference models of transformers 5 (tests/data/hf).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/config.h"
#include "model/config_tests.h"

namespace windrow {
namespace {

using namespace config_tests;

// What the reference models have in common; the rest is compared by the tests.
ModelConfig reference(const std::string& folder) {
  const Result<ModelConfig> result = load_config(WINDROW_TEST_DATA "/hf/" + folder);
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok()) return {};
  EXPECT_FALSE(result->nested);
  EXPECT_EQ(result->intermediate_size, 96);
  EXPECT_TRUE(result->intermediate_sizes.empty());
  EXPECT_EQ(result->num_heads, 4);
  EXPECT_EQ(result->num_kv_heads, 2);
  EXPECT_EQ(result->vocab_size, 320);
  EXPECT_EQ(result->max_position_embeddings, 512);
  EXPECT_EQ(result->dtype, DType::kBF16);
  EXPECT_EQ(result->bos_token_ids, Ids{2});
  EXPECT_EQ(result->eos_token_ids, Ids{1});
  return *result;
}

TEST(ConfigFamilies, AllElevenReferenceModelsAreRead) {
  for (const char* folder : {"gemma2", "gemma3", "gemma3n", "gemma4", "gpt_oss", "llama", "mistral", "olmo3",
                             "phi3", "qwen3", "qwen3_next"}) {
    SCOPED_TRACE(folder);
    reference(folder);
  }
}

TEST(ConfigFamilies, Gemma2AlternatesAndCapsBothLogits) {
  const ModelConfig c = reference("gemma2");
  EXPECT_EQ(c.model_type, "gemma2");
  EXPECT_EQ(c.layer_types, (Layers{S, F, S, F}));
  EXPECT_EQ(c.sliding_window, 8);
  EXPECT_EQ(c.attn_logit_softcapping, 50);
  EXPECT_EQ(c.final_logit_softcapping, 30);
  EXPECT_EQ(c.query_pre_attn_scalar, 64);
  EXPECT_EQ(c.rope_full, plain(1e4));
  EXPECT_EQ(c.rope_sliding, plain(1e4));
  EXPECT_TRUE(c.tie_word_embeddings);
}

TEST(ConfigFamilies, Gemma3nSharesKeysAndHasAltupAndPerLayerInputs) {
  const ModelConfig c = reference("gemma3n");
  EXPECT_EQ(c.model_type, "gemma3n_text");
  EXPECT_EQ(c.layer_types, (Layers{S, S, F, S, S, F}));
  EXPECT_EQ(c.num_kv_shared_layers, 2);
  EXPECT_EQ(c.query_pre_attn_scalar, 1);
  EXPECT_EQ(c.attn_logit_softcapping, 0);
  EXPECT_EQ(c.final_logit_softcapping, 30);
  EXPECT_EQ(c.hidden_size_per_layer_input, 16);
  EXPECT_EQ(c.vocab_size_per_layer_input, 320);
  EXPECT_EQ(c.altup.inputs, 4);
  EXPECT_EQ(c.altup.active, 0);
  EXPECT_EQ(c.altup.coef_clip, 120);
  EXPECT_TRUE(c.altup.correct_scale);
  EXPECT_EQ(c.altup.laurel_rank, 8);
  EXPECT_EQ(c.altup.sparsity, std::vector<double>(6, 0.0));
  EXPECT_EQ(c.rope_full, plain(1e6));
  EXPECT_EQ(c.rope_sliding, plain(1e4));
}

TEST(ConfigFamilies, Gemma4HasAProportionalRopeAndHeadsOfOneSizeHere) {
  const ModelConfig c = reference("gemma4");
  EXPECT_EQ(c.model_type, "gemma4_text");
  EXPECT_EQ(c.layer_types, (Layers{S, S, F, S, S, F}));
  EXPECT_EQ(c.num_kv_shared_layers, 2);
  EXPECT_EQ(c.query_pre_attn_scalar, 1);
  EXPECT_EQ(c.hidden_size_per_layer_input, 16);
  EXPECT_EQ(c.vocab_size_per_layer_input, 320);
  EXPECT_EQ(c.global_head_dim, 0) << "an empty per_layer_config: as head_dim";
  EXPECT_EQ(c.num_global_kv_heads, 0);
  EXPECT_FALSE(c.attention_k_eq_v);
  EXPECT_EQ(c.altup.inputs, 0);
  EXPECT_EQ(c.final_logit_softcapping, 0);
  RopeConfig full = plain(1e6);
  full.type = RopeType::kProportional;
  full.partial_rotary_factor = 0.25;
  EXPECT_EQ(c.rope_full, full);
  EXPECT_EQ(c.rope_sliding, plain(1e4));
}

TEST(ConfigFamilies, GptOssHasExpertsBiasesAndYarn) {
  const ModelConfig c = reference("gpt_oss");
  EXPECT_EQ(c.layer_types, (Layers{S, F, S, F}));
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_TRUE(c.attention_bias);
  EXPECT_EQ(c.moe.experts, 4);
  EXPECT_EQ(c.moe.experts_per_token, 2);
  EXPECT_EQ(c.moe.intermediate_size, 96);
  EXPECT_EQ(c.moe.shared_intermediate_size, 0);
  EXPECT_TRUE(c.moe.norm_topk_prob);
  EXPECT_EQ(c.moe.layers, std::vector<bool>(4, true));
  EXPECT_EQ(c.moe.swiglu_limit, 7);
  RopeConfig yarn = plain(150000);
  yarn.type = RopeType::kYarn;
  yarn.factor = 32;
  yarn.original_max_positions = 4096;
  yarn.truncate = false;
  EXPECT_EQ(c.rope_full, yarn);
  EXPECT_EQ(c.rope_sliding, yarn);
}

TEST(ConfigFamilies, LlamaHasItsOwnRopeScaling) {
  const ModelConfig c = reference("llama");
  EXPECT_EQ(c.layer_types, (Layers{F, F, F}));
  EXPECT_FALSE(c.attention_bias);
  EXPECT_FALSE(c.mlp_bias);
  EXPECT_FALSE(c.tie_word_embeddings);
  RopeConfig rope = plain(5e5);
  rope.type = RopeType::kLlama3;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_positions = 64;
  EXPECT_EQ(c.rope_full, rope);
}

TEST(ConfigFamilies, MistralAndPhi3SlideInEveryLayer) {
  for (const char* folder : {"mistral", "phi3"}) {
    const ModelConfig c = reference(folder);
    EXPECT_EQ(c.model_type, folder);
    EXPECT_EQ(c.layer_types, (Layers{S, S, S}));
    EXPECT_EQ(c.sliding_window, 8);
    EXPECT_EQ(c.rope_full, plain(1e4));
    EXPECT_EQ(c.hidden_activation, "silu");
  }
  EXPECT_EQ(reference("phi3").head_dim, 32) << "hidden_size / heads";
}

TEST(ConfigFamilies, Olmo3HasThreeSlidingLayersForAFullOne) {
  const ModelConfig c = reference("olmo3");
  EXPECT_EQ(c.layer_types, (Layers{S, S, S, F}));
  EXPECT_EQ(c.sliding_window, 8);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_EQ(c.rope_full, plain(5e5));
  EXPECT_EQ(c.rope_sliding, plain(5e5));
}

TEST(ConfigFamilies, Qwen3IsFullThroughout) {
  const ModelConfig c = reference("qwen3");
  EXPECT_EQ(c.layer_types, (Layers{F, F, F}));
  EXPECT_EQ(c.sliding_window, 0);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.rope_full, plain(1e4));
}

TEST(ConfigFamilies, Qwen3NextHasLinearLayersAndASharedExpert) {
  const ModelConfig c = reference("qwen3_next");
  EXPECT_EQ(c.layer_types, (Layers{L, L, L, F}));
  EXPECT_EQ(c.linear.key_heads, 2);
  EXPECT_EQ(c.linear.value_heads, 4);
  EXPECT_EQ(c.linear.key_dim, 32);
  EXPECT_EQ(c.linear.value_dim, 32);
  EXPECT_EQ(c.linear.conv_taps, 4);
  EXPECT_EQ(c.moe.experts, 4);
  EXPECT_EQ(c.moe.experts_per_token, 2);
  EXPECT_EQ(c.moe.intermediate_size, 48);
  EXPECT_EQ(c.moe.shared_intermediate_size, 48);
  EXPECT_TRUE(c.moe.norm_topk_prob);
  EXPECT_EQ(c.moe.layers, (std::vector<bool>{false, true, true, true})) << "mlp_only_layers";
  RopeConfig rope = plain(1e4);
  rope.partial_rotary_factor = 0.25;
  EXPECT_EQ(c.rope_full, rope);
}

}  // namespace
}  // namespace windrow
