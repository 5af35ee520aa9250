// An attention layer of any family: projections, norms of queries and keys, RoPE, the state, attention.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/block.h"
#include "model/config.h"
#include "windrow/model.h"

namespace windrow {

struct AttentionSpec {
  enum class QkNorm {
    kNone,
    kHead,  // of each head's vector, weights [head_dim] (Gemma 3, Qwen3)
    kAll,   // of all heads together, weights [heads * head_dim] (OLMo)
  };
  QkNorm qk_norm = QkNorm::kNone;
  float norm_plus = 0;        // added to the norms' weights: 1 where checkpoints store w - 1
  bool value_norm = false;    // of each head's value, without weights (Gemma 3n, 4)
  bool key_is_value = false;  // values are the keys' projection (Gemma 4)
  bool fused = false;         // "qkv_proj" holds the rows of q, k and v (Phi-3)
  bool bias = false;          // of q, k and v
  bool output_bias = false;
  bool sinks = false;        // a learned logit a head (gpt-oss)
  bool output_gate = false;  // q_proj holds a gate after each head's query (Qwen3-Next)
  float scale = 1;
  float softcap = 0;
};

// `prefix`: "layers.3.self_attn". The layer's donor, window, heads and head_dim are in `shape`.
Result<std::unique_ptr<Mixer>> read_attention(WeightReader& weights, const std::string& prefix, int layer,
                                              const LayerShape& shape, const AttentionSpec& spec,
                                              const ModelConfig& config);

}  // namespace windrow
