// The keys of published checkpoints, from before transformers 5: what their config.json states, and what it
// leaves to the family: the Gemmas.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/config_tests.h"

namespace windrow {
namespace {

using namespace config_tests;

TEST(ConfigPublished, Gemma2At2B) {
  const ModelConfig c = parsed(R"({
    "architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
    "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02,
    "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2",
    "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096,
    "torch_dtype": "float32", "use_cache": true, "vocab_size": 256000})");
  EXPECT_EQ(c.layer_types, every(26, 2, S));
  EXPECT_EQ(c.sliding_window, 4096);
  EXPECT_EQ(c.dtype, DType::kF32);
  EXPECT_EQ(c.rope_full, plain(1e4));
  EXPECT_TRUE(c.tie_word_embeddings) << "the family's default";
}

TEST(ConfigPublished, Gemma2LeavesWhatItLeaves) {
  const std::string sizes = R"("model_type": "gemma2", "hidden_size": 64, "intermediate_size": 96,
                               "num_hidden_layers": 4)";
  const ModelConfig c = parsed("{" + sizes + "}");
  EXPECT_EQ(c.attn_logit_softcapping, 50);
  EXPECT_EQ(c.final_logit_softcapping, 30);
  EXPECT_EQ(c.layer_types, (Layers{S, F, S, F}));
  EXPECT_EQ(c.vocab_size, 256000);
  const ModelConfig off =
      parsed("{" + sizes + R"(, "attn_logit_softcapping": null, "sliding_window": null})");
  EXPECT_EQ(off.attn_logit_softcapping, 0) << "null is none, absent is the default";
  EXPECT_EQ(off.final_logit_softcapping, 30);
  EXPECT_EQ(off.layer_types, (Layers{F, F, F, F}));
}

TEST(ConfigPublished, Gemma3nE2B) {
  std::string sparsity = "[";
  for (int i = 0; i < 30; i++) sparsity += (i == 0 ? "" : ", ") + std::string(i < 10 ? "0.95" : "0.0");
  const ModelConfig c = parsed(R"({
    "architectures": ["Gemma3nForConditionalGeneration"], "audio_config": {"hidden_size": 1536},
    "eos_token_id": [1, 106], "model_type": "gemma3n", "text_config": {
      "activation_sparsity_pattern": )" +
                               sparsity + R"(], "altup_active_idx": 0, "altup_coef_clip": 120.0,
      "altup_correct_scale": true, "altup_lr_multiplier": 1.0, "altup_num_inputs": 4, "attention_bias": false,
      "attention_dropout": 0.0, "final_logit_softcapping": 30.0, "head_dim": 256,
      "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2048, "hidden_size_per_layer_input": 256,
      "intermediate_size": )" + repeated(30, "8192") +
                               R"(, "laurel_rank": 64,
      "max_position_embeddings": 32768, "model_type": "gemma3n_text", "num_attention_heads": 8,
      "num_hidden_layers": 30, "num_key_value_heads": 2, "num_kv_shared_layers": 10, "query_pre_attn_scalar": 256,
      "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_scaling": null, "rope_theta": 1000000.0,
      "sliding_window": 512, "torch_dtype": "bfloat16", "vocab_size": 262400,
      "vocab_size_per_layer_input": 262144}, "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 2048}})");
  EXPECT_TRUE(c.nested);
  EXPECT_EQ(c.layer_types, every(30, 5, S)) << "layer_types may be absent";
  EXPECT_EQ(c.num_kv_shared_layers, 10);
  EXPECT_EQ(c.query_pre_attn_scalar, 1) << "Gemma 3n does not scale, whatever the file says";
  EXPECT_EQ(c.intermediate_size, 8192);
  EXPECT_TRUE(c.intermediate_sizes.empty());
  EXPECT_EQ(c.altup.sparsity[9], 0.95);
  EXPECT_EQ(c.altup.sparsity[10], 0);
  EXPECT_EQ(c.vocab_size_per_layer_input, 262144);
  EXPECT_EQ(c.rope_full, plain(1e6));
  EXPECT_EQ(c.rope_sliding, plain(1e4));
  EXPECT_EQ(c.eos_token_ids, (Ids{1, 106}));
}

TEST(ConfigPublished, Gemma3nDefaultsAreThoseOfItsClass) {
  const ModelConfig c = parsed(R"({"model_type": "gemma3n_text", "hidden_size": 2048, "num_hidden_layers": 35,
    "intermediate_size": 16384})");
  EXPECT_EQ(c.num_kv_shared_layers, 15);
  EXPECT_EQ(c.altup.inputs, 4);
  EXPECT_EQ(c.altup.laurel_rank, 64);
  EXPECT_EQ(std::count(c.altup.sparsity.begin(), c.altup.sparsity.end(), 0.95), 10);
  EXPECT_EQ(c.hidden_size_per_layer_input, 256);
  const ModelConfig wide = parsed(R"({"model_type": "gemma3n_text", "hidden_size": 64, "num_hidden_layers": 3,
    "num_kv_shared_layers": 0, "intermediate_size": [96, 96, 192]})");
  EXPECT_EQ(wide.intermediate_size, 96);
  EXPECT_EQ(wide.intermediate_sizes, (std::vector<int>{96, 96, 192}));
  EXPECT_EQ(wide.altup.sparsity, std::vector<double>(3, 0.0)) << "small models are dense";
}

TEST(ConfigPublished, Gemma4E2BHasWideHeadsAndWideSharedLayers) {
  const ModelConfig c =
      parsed(R"({"model_type": "gemma4", "tie_word_embeddings": true, "eos_token_id": [1, 106],
    "text_config": {"attention_bias": false, "attention_k_eq_v": false, "enable_moe_block": false,
      "final_logit_softcapping": 30.0, "global_head_dim": 512, "head_dim": 256, "hidden_size": 1536,
      "hidden_size_per_layer_input": 256, "intermediate_size": 6144, "max_position_embeddings": 131072,
      "model_type": "gemma4_text", "num_attention_heads": 8, "num_global_key_value_heads": null,
      "num_hidden_layers": 35, "num_key_value_heads": 1, "num_kv_shared_layers": 20,
      "layer_types": )" +
             [] {
               std::string types = "[";
               for (int i = 0; i < 35; i++) {
                 types += (i == 0 ? "\"" : ", \"") +
                          std::string(i % 5 == 4 ? "full_attention\"" : "sliding_attention\"");
               }
               return types + "]";
             }() +
             R"(, "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
      "sliding_window": 512, "use_bidirectional_attention": null, "use_double_wide_mlp": true,
      "vocab_size": 262144, "vocab_size_per_layer_input": 262144}})");
  EXPECT_TRUE(c.nested);
  EXPECT_EQ(c.layer_types, every(35, 5, S));
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.global_head_dim, 512);
  EXPECT_EQ(c.num_global_kv_heads, 0);
  EXPECT_EQ(c.num_kv_shared_layers, 20);
  ASSERT_EQ(c.intermediate_sizes.size(), 35u);
  for (std::size_t i = 0; i < 35; i++) EXPECT_EQ(c.intermediate_sizes[i], i < 15 ? 6144 : 12288) << i;
  EXPECT_EQ(c.query_pre_attn_scalar, 1);
  EXPECT_EQ(c.rope_full.type, RopeType::kProportional);
}

TEST(ConfigPublished, Gemma4DefaultsAreThoseOfItsClass) {
  const std::string sizes = R"("model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96,
                               "num_hidden_layers": 7)";
  const ModelConfig c = parsed("{" + sizes + R"(, "use_bidirectional_attention": "vision"})");
  EXPECT_EQ(c.layer_types, (Layers{S, S, S, S, S, F, F})) << "the last one is always full";
  EXPECT_EQ(c.global_head_dim, 512);
  EXPECT_EQ(c.num_kv_shared_layers, 0);
  EXPECT_EQ(c.rope_full.type, RopeType::kProportional);
  EXPECT_EQ(c.rope_full.partial_rotary_factor, 0.25);
  EXPECT_EQ(c.rope_full.theta, 1e6);
  EXPECT_EQ(c.rope_sliding, plain(1e4));

  const ModelConfig shared =
      parsed("{" + sizes + R"(, "attention_k_eq_v": true, "num_global_key_value_heads": 2,
    "hidden_size_per_layer_input": 0})");
  EXPECT_TRUE(shared.attention_k_eq_v);
  EXPECT_EQ(shared.num_global_kv_heads, 2);
  EXPECT_EQ(shared.hidden_size_per_layer_input, 0) << "sizes without per-layer inputs";
  EXPECT_EQ(shared.vocab_size_per_layer_input, 0);
  EXPECT_EQ(parsed("{" + sizes + R"(, "num_global_key_value_heads": 2})").num_global_kv_heads, 0)
      << "counts only where values are keys";
}

// The same facts as transformers writes them from 5.15 on.
TEST(ConfigPublished, Gemma4StatesHeadsOfFullLayersOneByOne) {
  const ModelConfig c = parsed(R"({"model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 12, "attention_k_eq_v": true, "per_layer_config": {
      "5": {"head_dim": 512, "num_key_value_heads": 2}, "11": {"head_dim": 512, "num_key_value_heads": 2}}})");
  EXPECT_EQ(c.global_head_dim, 512);
  EXPECT_EQ(c.num_global_kv_heads, 2);
}

}  // namespace
}  // namespace windrow
