// The two ends of a language model: the embedding of ids, and the logits of hidden vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/family.h"
#include "model/linear.h"

namespace windrow {

class VocabularyLayers {
 public:
  // embed_tokens, norm and the head (lm_head, or embed_tokens again where they are tied). `scale` multiplies
  // embeddings, `norm_plus` is added to the final norm's weights.
  Status read(WeightReader& weights, const ModelConfig& config, float scale, float norm_plus);

  void embed(std::int32_t id, float* x) const { embedding_.row(static_cast<std::size_t>(id), scale_, x); }
  const std::vector<float>& final_norm() const noexcept { return final_norm_; }
  // pass.logits from h [tokens, hidden], which went through final_norm().
  void logits(const Pass& pass, const float* h, std::size_t tokens, LapClock& clock) const;

 private:
  RowTable embedding_;
  Linear head_;
  std::vector<float> final_norm_;
  float scale_ = 1;
  float softcap_ = 0;
};

}  // namespace windrow
