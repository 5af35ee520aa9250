// Rotary position embedding: the angles of one RoPE configuration.
//
// The leading rotary_dim of a head's D numbers turn in pairs (i, i + rotary_dim / 2) by the angle
// position * f_i; the rest passes through. With base f_i = theta^(-2 i / rotary_dim):
//
//   default       f_i
//   linear        f_i / factor. Chen et al., arXiv 2306.15595
//   dynamic       f_i of the base theta' = theta (factor L / M - (factor - 1))^(r / (r - 2)), r = rotary_dim,
//                 M = original_max_positions, L = max(M, max_positions)
//   llama3        by wavelength w_i = 2 pi / f_i against M / high_freq_factor and M / low_freq_factor: f_i
//   below
//                 the first, f_i / factor beyond the second, between them both mixed by the share s_i =
//                 (M / w_i - low_freq_factor) / (high_freq_factor - low_freq_factor) of f_i
//   yarn          f_i and f_i / factor mixed by a ramp over i between the pairs that turn beta_fast and
//                 beta_slow times within M positions. Peng et al., arXiv 2309.00071
//   longrope      f_i / short_factor[i], or long_factor[i] where max_positions > M. Ding et al.,
//                 arXiv 2402.13753
//   proportional  theta^(-2 i / D) / factor for the first partial_rotary_factor of the pairs (i, i + D / 2),
//   0
//                 for the others: the whole head goes through the rotation (Gemma 4)
//
// rotary_dim = D * partial_rotary_factor, but D for proportional. Cosine and sine of yarn and longrope are
// multiplied by an attention factor: as stated, or 0.1 ln(factor) + 1 (yarn; with mscale, the quotient of two
// such) and sqrt(1 + ln(factor) / ln(M)) (longrope).
//
// What the length of a sequence decides elsewhere, max_positions decides here, once for a model: a row's
// frequencies must not depend on how its tokens come in. transformers recomputes those of dynamic when a
// sequence outgrows M, and takes long_factor from position M on, and leaves the keys that it turned before as
// they are; so its logits depend on the chunking. With max_positions = max_position_embeddings, dynamic is
// the plain rope (as there, within that length) and a model with long factors always uses them, also for
// short texts, as vLLM does for the length that it serves and llama.cpp for its context. A caller that never
// goes beyond M passes M and has the short factors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/config.h"

namespace windrow {

// Of a head of head_dim numbers, how many turn.
int rotary_dim(int head_dim, const RopeConfig& config);

// Frequencies and angles are f32, step by step as in the frameworks the models were trained in: at position
// 4096 an angle's f32 rounding moves it by up to 2.4e-4, so exact angles would be other angles. Cosine and
// sine are those of the f32 angle, correctly rounded but for libm's last bit.
//
// Thread safety: const methods from any thread.
class RopeFrequencies {
 public:
  RopeFrequencies() = default;
  // `max_positions`: the most that a sequence may have. REQUIRES a configuration that parse_config accepts
  // for this head_dim.
  RopeFrequencies(int head_dim, const RopeConfig& config, int max_positions);

  std::size_t size() const noexcept { return frequencies_.size(); }  // pairs
  std::size_t rotary_dim() const noexcept { return 2 * size(); }
  float attention_factor() const noexcept { return attention_factor_; }
  const std::vector<float>& frequencies() const noexcept { return frequencies_; }

  // cosine[size()], sine[size()] of one absolute position, attention factor included.
  void fill(std::int32_t position, float* cosine, float* sine) const;

 private:
  std::vector<float> frequencies_;
  float attention_factor_ = 1;
};

}  // namespace windrow
