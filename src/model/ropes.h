// The rotations of a step's tokens, of full and sliding layers.
#pragma once

#include "model/block.h"
#include "model/config.h"
#include "model/rope.h"

namespace windrow {

class Ropes {
 public:
  Ropes(const ModelConfig& c)  // NOLINT
      : of_{RopeFrequencies(c.global_head_dim != 0 ? c.global_head_dim : c.head_dim, c.rope_full,
                            c.max_position_embeddings),
            RopeFrequencies(c.head_dim, c.rope_sliding, c.max_position_embeddings)} {}

  struct Buffers {
    float *cosine[2], *sine[2];
  };
  Buffers carve(Carver& scratch, std::size_t tokens) const {
    Buffers b{};
    for (const std::size_t kind : {kRopeFull, kRopeSliding}) {
      b.cosine[kind] = scratch.cut(tokens, of_[kind].size());
      b.sine[kind] = scratch.cut(tokens, of_[kind].size());
    }
    return b;
  }
  void fill(std::int32_t position, std::size_t token, const Buffers& b) const {
    for (const std::size_t kind : {kRopeFull, kRopeSliding}) {
      const std::size_t at = token * of_[kind].size();
      of_[kind].fill(position, b.cosine[kind] + at, b.sine[kind] + at);
    }
  }
  RopeAngles angles(const Buffers& b) const {
    return {{b.cosine[0], b.cosine[1]}, {b.sine[0], b.sine[1]}, {of_[0].size(), of_[1].size()}};
  }

 private:
  RopeFrequencies of_[2];
};

}  // namespace windrow
