// Sizes as the config.json of the published checkpoints states them.
#include "cli/shapes.h"

#include <algorithm>

namespace windrow::cli {
namespace {

constexpr Shape kShapes[] = {
    {"gemma3-1b", R"({"model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912,
      "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
      "vocab_size": 262144, "sliding_window": 512, "sliding_window_pattern": 6, "query_pre_attn_scalar": 256,
      "max_position_embeddings": 32768, "rope_theta": 1000000, "rope_local_base_freq": 10000})"},
    {"gemma3-4b", R"({"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
      "num_hidden_layers": 34, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
      "vocab_size": 262208, "sliding_window": 1024, "sliding_window_pattern": 6, "query_pre_attn_scalar": 256,
      "max_position_embeddings": 131072, "rope_theta": 1000000, "rope_local_base_freq": 10000,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0}})"},
    {"gemma3-12b", R"({"model_type": "gemma3_text", "hidden_size": 3840, "intermediate_size": 15360,
      "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
      "vocab_size": 262208, "sliding_window": 1024, "sliding_window_pattern": 6, "query_pre_attn_scalar": 256,
      "max_position_embeddings": 131072, "rope_theta": 1000000, "rope_local_base_freq": 10000,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0}})"},
    {"mistral-7b", R"({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
      "sliding_window": 4096, "max_position_embeddings": 32768, "rope_theta": 10000, "rms_norm_eps": 1e-5,
      "hidden_act": "silu", "tie_word_embeddings": false})"},
    {"llama3-8b", R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
      "max_position_embeddings": 131072, "rope_theta": 500000, "rms_norm_eps": 1e-5, "hidden_act": "silu",
      "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 8192}, "tie_word_embeddings": false})"},
    {"qwen3-0.6b", R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
      "vocab_size": 151936, "max_position_embeddings": 40960, "rope_theta": 1000000, "rms_norm_eps": 1e-6,
      "hidden_act": "silu", "tie_word_embeddings": true})"},
    {"qwen3-4b", R"({"model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728,
      "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
      "vocab_size": 151936, "max_position_embeddings": 40960, "rope_theta": 1000000, "rms_norm_eps": 1e-6,
      "hidden_act": "silu", "tie_word_embeddings": true})"},
    {"qwen3-8b", R"({"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288,
      "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
      "vocab_size": 151936, "max_position_embeddings": 40960, "rope_theta": 1000000, "rms_norm_eps": 1e-6,
      "hidden_act": "silu", "tie_word_embeddings": false})"},
    {"gpt-oss-20b", R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
      "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
      "vocab_size": 201088, "sliding_window": 128, "num_local_experts": 32, "num_experts_per_tok": 4,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention",
        "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
        "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
        "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
        "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
      "max_position_embeddings": 131072, "rope_theta": 150000, "rms_norm_eps": 1e-5, "hidden_act": "silu",
      "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                       "original_max_position_embeddings": 4096, "truncate": false},
      "attention_bias": true, "swiglu_limit": 7.0, "tie_word_embeddings": false})"},
    {"phi3-mini", R"({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064,
      "sliding_window": 2047, "max_position_embeddings": 4096, "rope_theta": 10000, "rms_norm_eps": 1e-5,
      "hidden_act": "silu", "tie_word_embeddings": false})"},
    {"olmo3-7b", R"({"model_type": "olmo3", "hidden_size": 4096, "intermediate_size": 11008,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100278,
      "sliding_window": 4096, "max_position_embeddings": 65536, "rope_theta": 500000, "rms_norm_eps": 1e-6,
      "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
        "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
        "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
        "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
        "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
        "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
        "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
        "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
      "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.2079441541679836,
                       "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 8192},
      "hidden_act": "silu", "tie_word_embeddings": false})"},
    {"qwen3-next-80b", R"({"model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120,
      "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
      "vocab_size": 151936, "max_position_embeddings": 262144, "rope_theta": 10000000,
      "partial_rotary_factor": 0.25, "full_attention_interval": 4, "linear_num_key_heads": 16,
      "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
      "linear_conv_kernel_dim": 4, "num_experts": 512, "num_experts_per_tok": 10,
      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "norm_topk_prob": true,
      "decoder_sparse_step": 1, "mlp_only_layers": [], "rms_norm_eps": 1e-6, "hidden_act": "silu",
      "tie_word_embeddings": false})"},
};

}  // namespace

std::span<const Shape> shapes() { return kShapes; }

const Shape* find_shape(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Shape& s) { return s.name == name; });
  return found == std::end(kShapes) ? nullptr : found;
}

}  // namespace windrow::cli
