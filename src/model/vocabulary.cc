#include "model/vocabulary.h"

#include "model/layers.h"
#include "model/tokens.h"

namespace windrow {

Status VocabularyLayers::read(WeightReader& weights, const ModelConfig& config, float scale,
                              float norm_plus) {
  const auto vocab = static_cast<std::size_t>(config.vocab_size);
  const auto hidden = static_cast<std::size_t>(config.hidden_size);
  scale_ = scale;
  softcap_ = static_cast<float>(config.final_logit_softcapping);
  if (Status s = put(weights.row_table("embed_tokens.weight", vocab, hidden), embedding_); !s.ok()) return s;
  if (Status s = put(weights.vector("norm.weight", hidden, norm_plus), final_norm_); !s.ok()) return s;
  return put(config.tie_word_embeddings ? weights.matrix("embed_tokens.weight", vocab, hidden)
                                        : weights.head(vocab, hidden),
             head_.weight);
}

void VocabularyLayers::logits(const Pass& pass, const float* h, std::size_t tokens, LapClock& clock) const {
  float* out = pass.logits.data();
  linear(head_, h, tokens, out, pass.pool);
  clock.lap(&ForwardProfile::products);
  if (softcap_ == 0) return;
  const std::size_t vocab = head_.outputs();
  each_token(pass.pool, tokens, [&](std::size_t t) { softcap(out + t * vocab, vocab, softcap_); });
  clock.lap(&ForwardProfile::layers);
}

}  // namespace windrow
