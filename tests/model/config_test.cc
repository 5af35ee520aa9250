// config.json key by key: styles, fallbacks, token ids, messages.
#include "model/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/config_tests.h"
#include "support/temp_folder.h"

namespace windrow {
namespace {

using namespace config_tests;

// A small good configuration of `type` with `members` replaced or added; null removes a key.
std::string config_text(const std::string& type, const nlohmann::json& members = nlohmann::json::object()) {
  nlohmann::json config = {{"model_type", type},       {"hidden_size", 64},
                           {"intermediate_size", 96},  {"num_hidden_layers", 3},
                           {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                           {"vocab_size", 320},        {"max_position_embeddings", 512}};
  config["hidden_act"] = type.starts_with("gemma") ? "gelu_pytorch_tanh" : "silu";
  config.update(members);
  return config.dump();
}

TEST(Config, ReadsTheStorytellerInTheNewKeyStyle) {
  const Result<ModelConfig> config = load_config(WINDROW_MODELS "/storyteller");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->model_type, "gemma3_text");
  EXPECT_FALSE(config->nested);
  EXPECT_EQ(config->hidden_size, 256);
  EXPECT_EQ(config->intermediate_size, 768);
  EXPECT_EQ(config->num_layers, 6);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->vocab_size, 2048);
  EXPECT_EQ(config->max_position_embeddings, 4096);
  EXPECT_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_EQ(config->query_pre_attn_scalar, 64);
  EXPECT_EQ(config->attn_logit_softcapping, 0);
  EXPECT_EQ(config->final_logit_softcapping, 0);
  EXPECT_EQ(config->sliding_window, 64);
  EXPECT_EQ(config->layer_types, (Layers{S, S, S, S, S, F}));
  EXPECT_EQ(config->rope_full.theta, 1e6);
  EXPECT_EQ(config->rope_full.factor, 1);
  EXPECT_EQ(config->rope_sliding.theta, 1e4);
  EXPECT_EQ(config->hidden_activation, "gelu_pytorch_tanh");
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->dtype, DType::kBF16);
  EXPECT_EQ(config->bos_token_ids, Ids{2});
  EXPECT_EQ(config->eos_token_ids, Ids{1});
}

TEST(Config, ReadsTheTinyGemma) {
  const Result<ModelConfig> config = load_config(WINDROW_TEST_DATA "/hf/gemma3");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->sliding_window, 8);
  EXPECT_EQ(config->vocab_size, 320);
}

// The key style of the published 1B checkpoint: everything stated, the layer types by a pattern.
TEST(Config, ReadsTheOldKeyStyleOfGemma3At1B) {
  const ModelConfig config = parsed(R"({
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
    "eos_token_id": [1, 106], "final_logit_softcapping": null, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
    "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null,
    "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "float16",
    "use_cache": true, "vocab_size": 262144})");
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_EQ(config.sliding_window, 512);
  EXPECT_EQ(config.max_position_embeddings, 32768);
  EXPECT_EQ(config.rope_full.theta, 1e6);
  EXPECT_EQ(config.rope_sliding.theta, 1e4);
  EXPECT_EQ(config.dtype, DType::kF16);
  EXPECT_EQ(config.eos_token_ids, (Ids{1, 106}));
  ASSERT_EQ(config.layer_types.size(), 26u);
  for (std::size_t i = 0; i < 26; i++) EXPECT_EQ(config.layer_types[i], i % 6 == 5 ? F : S) << i;
}

// The key style of the published 4B checkpoint: a text_config of six keys, the rest is the family's.
TEST(Config, ReadsTheNestedKeyStyleOfGemma3At4B) {
  const ModelConfig config = parsed(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
    "eos_token_id": [1, 106], "image_token_index": 262144, "mm_tokens_per_image": 256, "model_type": "gemma3",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
      "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
    "torch_dtype": "float32", "vision_config": {"hidden_size": 1152, "num_attention_heads": 16}})");
  EXPECT_EQ(config.model_type, "gemma3_text");
  EXPECT_TRUE(config.nested);
  EXPECT_EQ(config.hidden_size, 2560);
  EXPECT_EQ(config.num_layers, 34);
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_EQ(config.query_pre_attn_scalar, 256);
  EXPECT_EQ(config.hidden_activation, "gelu_pytorch_tanh");
  EXPECT_EQ(config.rope_full.theta, 1e6);
  EXPECT_EQ(config.rope_full.factor, 8);
  EXPECT_EQ(config.rope_sliding.theta, 1e4);
  EXPECT_EQ(config.rope_sliding.factor, 1) << "the scaling is of full layers only";
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::kF32);
  EXPECT_EQ(config.bos_token_ids, Ids{2});
  EXPECT_EQ(config.eos_token_ids, (Ids{1, 106}));
  EXPECT_EQ(std::count(config.layer_types.begin(), config.layer_types.end(), F), 5);
}

TEST(Config, ATextConfigWithoutATypeTakesTheOuterOne) {
  const ModelConfig config = parsed(
      R"({"model_type": "gemma3", "text_config": {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}})");
  EXPECT_EQ(config.model_type, "gemma3_text");
}

TEST(Config, TheOuterTokenIdsAreTheCompleteOnes) {
  const ModelConfig config =
      parsed(R"({"model_type": "gemma3", "eos_token_id": [1, 106], "tie_word_embeddings": false,
    "text_config": {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "eos_token_id": 1,
                    "tie_word_embeddings": true}})");
  EXPECT_EQ(config.eos_token_ids, (Ids{1, 106}));
  EXPECT_TRUE(config.tie_word_embeddings) << "any other key: text_config wins";
}

TEST(Config, RopeParametersPerLayerTypeTakeTheirBaseFromOldKeysAndThenTheFamily) {
  const char* linear =
      R"({"full_attention": {"rope_type": "linear", "factor": 8}, "sliding_attention": null})";
  ModelConfig config = parsed(
      config_text("gemma3_text", {{"rope_parameters", nlohmann::json::parse(linear)}, {"rope_theta", 5e5}}));
  EXPECT_EQ(config.rope_full.theta, 5e5);
  EXPECT_EQ(config.rope_full.factor, 8);
  EXPECT_EQ(config.rope_sliding.theta, 1e4);
  EXPECT_EQ(config.rope_sliding.factor, 1);
  config =
      parsed(config_text("gemma3_text", {{"rope_parameters", {{"full_attention", {{"rope_theta", 3e6}}}}},
                                         {"rope_theta", 5e5},
                                         {"rope_local_base_freq", 2e4}}));
  EXPECT_EQ(config.rope_full.theta, 3e6) << "rope_parameters go before older keys";
  EXPECT_EQ(config.rope_sliding.theta, 2e4);
}

TEST(Config, BothScalingKeysMayStandIfTheyAgree) {
  const nlohmann::json scaling = {{"type", "linear"}, {"factor", 8}};
  const nlohmann::json parameters = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}}}};
  const ModelConfig config =
      parsed(config_text("gemma3_text", {{"rope_scaling", scaling}, {"rope_parameters", parameters}}));
  EXPECT_EQ(config.rope_full.factor, 8);
}

TEST(Config, AFamilyWithOneRopeUsesItInEveryLayer) {
  const ModelConfig flat =
      parsed(config_text("mistral", {{"rope_parameters", {{"rope_theta", 5e5}, {"rope_type", "default"}}},
                                     {"sliding_window", 8}}));
  EXPECT_EQ(flat.rope_full.theta, 5e5);
  EXPECT_EQ(flat.rope_sliding.theta, 5e5);
  const ModelConfig old = parsed(
      config_text("llama", {{"rope_theta", 5e5}, {"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}));
  EXPECT_EQ(old.rope_full.theta, 5e5);
  EXPECT_EQ(old.rope_sliding.factor, 2);
  EXPECT_EQ(parsed(config_text("llama")).rope_full.theta, 1e4);
}

TEST(Config, LayersSlideByPatternByWindowOrNotAtAll) {
  const auto layers = [](const std::string& type, const nlohmann::json& members) {
    return parsed(config_text(type, members)).layer_types;
  };
  EXPECT_EQ(layers("gemma3_text", {{"sliding_window_pattern", 2}}), (Layers{S, F, S}));
  EXPECT_EQ(layers("gemma3_text", {{"_sliding_window_pattern", 3}}), (Layers{S, S, F}));
  EXPECT_EQ(layers("gemma3_text", {{"sliding_window_pattern", 1}}), (Layers{F, F, F}));
  EXPECT_EQ(layers("mistral", {{"sliding_window", 8}}), (Layers{S, S, S}));
  EXPECT_EQ(layers("mistral", {{"sliding_window", nullptr}}), (Layers{F, F, F}));
  EXPECT_EQ(layers("qwen3", {{"sliding_window", 8}, {"use_sliding_window", false}}), (Layers{F, F, F}));
  EXPECT_EQ(layers("llama", nlohmann::json::object()), (Layers{F, F, F}));
  EXPECT_EQ(layers("qwen2", {{"sliding_window", 8}, {"use_sliding_window", true}, {"max_window_layers", 2}}),
            (Layers{F, F, S}));
  EXPECT_EQ(parse_config(config_text("qwen2", {{"sliding_window", 8}, {"use_sliding_window", true}}), "")
                .status()
                .message(),
            "config.json: \"max_window_layers\" is missing");
}

TEST(Config, TheWindowIsZeroWhereNoLayerSlides) {
  const ModelConfig config = parsed(config_text(
      "gemma3_text",
      {{"sliding_window", 8}, {"layer_types", {"full_attention", "full_attention", "full_attention"}}}));
  EXPECT_EQ(config.sliding_window, 0);
}

TEST(Config, AnUnknownFamilyIsReadWithGenericRules) {
  const ModelConfig config =
      parsed(config_text("some_llama", {{"num_key_value_heads", nullptr}, {"attention_bias", true}}));
  EXPECT_EQ(config.model_type, "some_llama");
  EXPECT_EQ(config.head_dim, 16) << "hidden_size / heads";
  EXPECT_EQ(config.num_kv_heads, 4) << "as many as heads";
  EXPECT_EQ(config.query_pre_attn_scalar, 16) << "head_dim";
  EXPECT_EQ(config.hidden_activation, "silu");
  EXPECT_TRUE(config.attention_bias);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_TRUE(config.bos_token_ids.empty());
  EXPECT_TRUE(config.eos_token_ids.empty());
}

TEST(Config, SoftcapsAndTheActivationThatCountsAreRead) {
  const ModelConfig config = parsed(config_text("gemma2", {{"attn_logit_softcapping", 50.0},
                                                           {"final_logit_softcapping", 30},
                                                           {"hidden_act", "gelu"},
                                                           {"hidden_activation", "gelu_pytorch_tanh"}}));
  EXPECT_EQ(config.attn_logit_softcapping, 50);
  EXPECT_EQ(config.final_logit_softcapping, 30);
  EXPECT_EQ(config.hidden_activation, "gelu_pytorch_tanh");
}

TEST(Config, EqualSizesPerLayerAreOneSize) {
  EXPECT_EQ(parsed(config_text("gemma3_text", {{"intermediate_size", {96, 96, 96}}})).intermediate_size, 96);
}

TEST(Config, GenerationConfigWinsForTokenIdsOnly) {
  const std::string config = config_text("gemma3_text", {{"eos_token_id", 5}, {"bos_token_id", 6}});
  EXPECT_EQ(parsed(config).eos_token_ids, Ids{5});
  EXPECT_EQ(parsed(config, R"({"eos_token_id": [1, 106], "temperature": 0.7})").eos_token_ids, (Ids{1, 106}));
  EXPECT_EQ(parsed(config, R"({"eos_token_id": [1, 106]})").bos_token_ids, Ids{6});
  EXPECT_EQ(parsed(config, R"({"eos_token_id": null})").eos_token_ids, Ids{5});
  EXPECT_EQ(parsed(config, R"({"bos_token_id": 7})").bos_token_ids, Ids{7});
}

TEST(Config, AFamilysTokenIdsBeyondATinyVocabularyAreLeftOut) {
  EXPECT_TRUE(parsed(config_text("gemma3_text", {{"vocab_size", 2}})).bos_token_ids.empty());
}

TEST(Config, LoadNamesTheFileInItsFolder) {
  const TempFolder folder;
  folder.write("config.json", config_text("gemma3_text", {{"head_dim", 7}}));
  EXPECT_EQ(load_config(folder.path()).status().message(),
            folder.path("config.json") + ": \"head_dim\" is 7, expected an even number");
  folder.write("config.json", config_text("gemma3_text"));
  EXPECT_TRUE(load_config(folder.path()).ok()) << "generation_config.json may be absent";
  folder.write("generation_config.json", "");
  EXPECT_EQ(load_config(folder.path()).status().message(),
            folder.path("generation_config.json") + ": the file is empty");
}

TEST(Config, CodesTellBrokenFilesFromUnsupportedOnes) {
  const auto code = [](const nlohmann::json& members) {
    return parse_config(config_text("gemma3_text", members), "").status().code();
  };
  EXPECT_EQ(code({{"hidden_size", -1}}), StatusCode::kCorrupt);
  EXPECT_EQ(code({{"quantization", {{"mode", "mxfp4"}}}}), StatusCode::kUnsupported);
  EXPECT_EQ(code({{"rope_scaling", {{"rope_type", "mrope"}}}}), StatusCode::kUnsupported);
  EXPECT_EQ(code({{"use_bidirectional_attention", true}}), StatusCode::kUnsupported);
  EXPECT_EQ(load_config("/no/such/folder").status().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace windrow
