// The keys of published checkpoints, from before transformers 5: what their config.json states, and what it
// leaves to the family.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/config_tests.h"

namespace windrow {
namespace {

using namespace config_tests;

TEST(ConfigPublished, Mistral7BSlidesEverywhereUnlessItsWindowIsNull) {
  const auto text = [](const char* window) {
    return std::string(R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
      "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, )") +
           window + R"("tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
      "vocab_size": 32000})";
  };
  const ModelConfig c = parsed(text(R"("sliding_window": 4096, )"));
  EXPECT_EQ(c.layer_types, Layers(32, S));
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_EQ(c.num_kv_heads, 8);
  EXPECT_EQ(parsed(text(R"("sliding_window": null, )")).layer_types, Layers(32, F));
  EXPECT_EQ(parsed(text("")).sliding_window, 4096) << "the family's default";
}

TEST(ConfigPublished, Llama32At1B) {
  const ModelConfig c = parsed(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
      "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
    "vocab_size": 128256})");
  RopeConfig rope = plain(5e5);
  rope.type = RopeType::kLlama3;
  rope.factor = 32;
  rope.original_max_positions = 8192;
  EXPECT_EQ(c.rope_full, rope);
  EXPECT_EQ(c.rope_sliding, rope);
  EXPECT_EQ(c.layer_types, Layers(16, F));
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.bos_token_ids, Ids{128000});
}

TEST(ConfigPublished, LlamaMayHaveBiases) {
  const ModelConfig c = parsed(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "attention_bias": true, "mlp_bias": true})");
  EXPECT_TRUE(c.attention_bias);
  EXPECT_TRUE(c.mlp_bias);
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.max_position_embeddings, 2048);
}

TEST(ConfigPublished, Qwen3At06B) {
  const auto text = [](const char* window) {
    return std::string(R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
      "max_position_embeddings": 40960, "max_window_layers": 20, "model_type": "qwen3",
      "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 1000000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "use_cache": true, "vocab_size": 151936, )") +
           window + "}";
  };
  const ModelConfig c = parsed(text(R"("sliding_window": null, "use_sliding_window": false)"));
  EXPECT_EQ(c.layer_types, Layers(28, F));
  EXPECT_EQ(c.rope_full, plain(1e6));
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(parsed(text(R"("sliding_window": 4096)")).layer_types, Layers(28, F))
      << "the switch defaults to off";
  Layers upper(28, F);
  std::fill(upper.begin() + 20, upper.end(), S);
  const ModelConfig sliding = parsed(text(R"("sliding_window": 4096, "use_sliding_window": true)"));
  EXPECT_EQ(sliding.layer_types, upper) << "from max_window_layers on";
  EXPECT_EQ(sliding.sliding_window, 4096);
}

TEST(ConfigPublished, QwenWithYarnAsItsReadmeSaysToAddIt) {
  const ModelConfig c = parsed(R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
    "num_hidden_layers": 2, "max_position_embeddings": 131072, "rope_theta": 1000000, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
    "original_max_position_embeddings": 32768}})");
  EXPECT_EQ(c.rope_full.type, RopeType::kYarn);
  EXPECT_EQ(c.rope_full.factor, 4);
  EXPECT_EQ(c.rope_full.original_max_positions, 32768);
  EXPECT_TRUE(c.rope_full.truncate);
  EXPECT_EQ(c.rope_full.attention_factor, 0) << "to be computed";
}

TEST(ConfigPublished, Phi3MiniAt4K) {
  const ModelConfig c = parsed(R"({
    "architectures": ["Phi3ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "embd_pdrop": 0.0,
    "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32, "original_max_position_embeddings": 4096,
    "pad_token_id": 32000, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "use_cache": true, "attention_bias": false, "vocab_size": 32064})");
  EXPECT_EQ(c.layer_types, Layers(32, S));
  EXPECT_EQ(c.sliding_window, 2047);
  EXPECT_EQ(c.head_dim, 96);
  EXPECT_EQ(c.rope_full, plain(1e4));
}

TEST(ConfigPublished, Phi3MiniAt128KHasLongRopeUnderThreeNames) {
  for (const char* type : {"longrope", "su", "yarn"}) {
    const ModelConfig c = parsed(std::string(R"({"model_type": "phi3", "hidden_size": 3072,
      "intermediate_size": 8192, "max_position_embeddings": 131072, "num_attention_heads": 32,
      "num_hidden_layers": 2, "num_key_value_heads": 32, "original_max_position_embeddings": 4096,
      "rope_theta": 10000.0, "sliding_window": 262144, "rope_scaling": {"long_factor": )") +
                                 repeated(48, "1.5") + R"(, "short_factor": )" + repeated(48, "1.05") +
                                 R"(, "type": ")" + type + "\"}}");
    EXPECT_EQ(c.rope_full.type, RopeType::kLongRope);
    EXPECT_EQ(c.rope_full.original_max_positions, 4096) << "stated beside the rope";
    EXPECT_EQ(c.rope_full.factor, 32) << "the quotient of both lengths";
    EXPECT_EQ(c.rope_full.long_factor, std::vector<double>(48, 1.5));
    EXPECT_EQ(c.rope_full.short_factor, std::vector<double>(48, 1.05));
  }
}

TEST(ConfigPublished, Phi4MiniTurnsThreeQuartersOfAHead) {
  const ModelConfig c =
      parsed(std::string(R"({"model_type": "phi3", "hidden_size": 3072,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "num_attention_heads": 24,
    "num_hidden_layers": 2, "num_key_value_heads": 8, "original_max_position_embeddings": 4096,
    "partial_rotary_factor": 0.75, "rope_theta": 10000.0, "rope_scaling": {"long_factor": )") +
             repeated(48, "2") + R"(, "short_factor": )" + repeated(48, "1.0") + R"(, "type": "longrope"}})");
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.rope_full.partial_rotary_factor, 0.75);
  EXPECT_EQ(c.layer_types, (Layers{F, F}));
}

TEST(ConfigPublished, Olmo3At7BScalesTheRopeOfFullLayersOnly) {
  const ModelConfig c = parsed(R"({
    "architectures": ["Olmo3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 11008, "max_position_embeddings": 65536, "model_type": "olmo3",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277,
    "rms_norm_eps": 1e-06, "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32.0,
      "beta_slow": 1.0, "factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "yarn"},
    "rope_theta": 500000, "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "use_cache": false, "vocab_size": 100278})");
  EXPECT_EQ(c.layer_types, every(32, 4, S));
  RopeConfig yarn = plain(5e5);
  yarn.type = RopeType::kYarn;
  yarn.factor = 8;
  yarn.original_max_positions = 8192;
  yarn.attention_factor = 1.2079441541679836;
  EXPECT_EQ(c.rope_full, yarn);
  EXPECT_EQ(c.rope_sliding, plain(5e5));
}

// gpt-oss-20b without its quantization_config; with it the file is refused by that name.
TEST(ConfigPublished, GptOssAt20B) {
  const std::string text = R"({
    "architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
    "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
    "initial_context_length": 4096, "initializer_range": 0.02, "intermediate_size": 2880,
    "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
    "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
    "output_router_logits": false, "pad_token_id": 199999, "rms_norm_eps": 1e-05, "rope_scaling": {
      "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
      "rope_type": "yarn", "truncate": false}, "rope_theta": 150000, "router_aux_loss_coef": 0.9,
    "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false, "use_cache": true,
    "vocab_size": 201088)";
  const ModelConfig c = parsed(text + "}");
  EXPECT_EQ(c.layer_types, every(24, 2, S));
  EXPECT_EQ(c.moe.experts, 32);
  EXPECT_EQ(c.moe.experts_per_token, 4);
  EXPECT_EQ(c.moe.intermediate_size, 2880);
  EXPECT_EQ(c.moe.layers, std::vector<bool>(24, true));
  EXPECT_EQ(c.rope_full.type, RopeType::kYarn);
  EXPECT_FALSE(c.rope_full.truncate);
  EXPECT_EQ(c.rope_sliding, c.rope_full);
  EXPECT_EQ(parse_config(text + R"(, "quantization_config": {"quant_method": "mxfp4"}})", "").status().code(),
            StatusCode::kUnsupported);
}

TEST(ConfigPublished, GptOssDefaultsAreThoseOfItsClass) {
  const ModelConfig c = parsed(R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
    "num_hidden_layers": 36, "num_experts": 16, "experts_per_token": 2})");
  EXPECT_TRUE(c.attention_bias);
  EXPECT_EQ(c.moe.experts, 16) << "num_experts is another name of num_local_experts";
  EXPECT_EQ(c.moe.experts_per_token, 2);
  EXPECT_EQ(c.rope_full.type, RopeType::kYarn);
  EXPECT_EQ(c.rope_full.theta, 150000);
  EXPECT_EQ(c.rope_full.factor, 32);
  EXPECT_EQ(c.rope_full.original_max_positions, 4096);
  EXPECT_FALSE(c.rope_full.truncate);
  EXPECT_EQ(c.sliding_window, 128);
}

TEST(ConfigPublished, Qwen3NextAt80B) {
  const ModelConfig c = parsed(R"({
    "architectures": ["Qwen3NextForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "full_attention_interval": 4,
    "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 5120, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
    "max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_next",
    "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16, "num_experts": 512,
    "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2, "output_router_logits": false,
    "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000000,
    "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
  EXPECT_EQ(c.layer_types, every(48, 4, L));
  EXPECT_EQ(c.sliding_window, 0);
  EXPECT_EQ(c.linear.value_heads, 32);
  EXPECT_EQ(c.linear.key_dim, 128);
  EXPECT_EQ(c.moe.experts, 512);
  EXPECT_EQ(c.moe.experts_per_token, 10);
  EXPECT_EQ(c.moe.shared_intermediate_size, 512);
  EXPECT_EQ(c.moe.layers, std::vector<bool>(48, true));
  RopeConfig rope = plain(1e7);
  rope.partial_rotary_factor = 0.25;
  EXPECT_EQ(c.rope_full, rope);
}

TEST(ConfigPublished, Qwen3NextPutsExpertsWhereTheStepSays) {
  const std::string sizes = R"("model_type": "qwen3_next", "hidden_size": 64, "intermediate_size": 96,
                               "num_hidden_layers": 6, "full_attention_interval": 3)";
  const ModelConfig c = parsed("{" + sizes + R"(, "decoder_sparse_step": 2, "mlp_only_layers": [3]})");
  EXPECT_EQ(c.moe.layers, (std::vector<bool>{false, true, false, false, false, true}));
  EXPECT_EQ(c.layer_types, (Layers{L, L, F, L, L, F}));
  EXPECT_EQ(c.rope_full.partial_rotary_factor, 0.25) << "the family's default";
  EXPECT_EQ(parsed("{" + sizes + R"(, "num_experts": 0})").moe.experts, 0);
  const ModelConfig dense = parsed("{" + sizes + R"(, "mlp_only_layers": [0, 1, 2, 3, 4, 5]})");
  EXPECT_EQ(dense.moe.experts, 0) << "experts that no layer has";
}

TEST(ConfigPublished, MinistralListsItsLayers) {
  const ModelConfig c = parsed(R"({"model_type": "ministral", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 4, "sliding_window": 8,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]})");
  EXPECT_EQ(c.layer_types, (Layers{F, S, S, S}));
}

TEST(ConfigPublished, DynamicRopesStartFromTheModelsLength) {
  const ModelConfig c = parsed(R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 2, "rope_scaling": {"type": "dynamic", "factor": 2.0}})");
  EXPECT_EQ(c.rope_full.type, RopeType::kDynamic);
  EXPECT_EQ(c.rope_full.factor, 2);
  EXPECT_EQ(c.rope_full.original_max_positions, 2048);
}

}  // namespace
}  // namespace windrow
