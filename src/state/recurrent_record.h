// What a step leaves behind in a recurrent layer so that resolve can replay any part of it exactly.
//
// A recurrent state can't be rolled back: the step works on a state of its own (gated_delta_advance
// writes to another place than it reads from) and records what depends on the token alone. Keeping
// everything takes the step's state, keeping nothing the old one, anything between replays the kept
// tokens from the old state: the same arithmetic on the same numbers, so the same bits as having fed
// only those. q and the outputs are not needed for that. Slots are in append order; a token tree keeps a
// path of slots, a linear step the first ones.
//
// Thread safety: a record is a view of memory; the usual rules for that memory.
#pragma once

#include <cstddef>
#include <span>

#include "windrow/recurrent.h"

namespace windrow {

class RecurrentRecord {
 public:
  // Over memory [capacity * shape.record_bytes_per_token()] that starts at a multiple of 4 and outlives
  // the record; it is neither read nor written before something is put.
  RecurrentRecord(const RecurrentShape& shape, std::byte* memory, std::size_t capacity);

  std::size_t capacity() const noexcept { return capacity_; }
  // Stores at slots slot, slot + 1, ...: what enters the convolution, x [count, channels], and what enters
  // the state, all of tokens but q. A layer knows the second only after it has the first convolved.
  void put_conv(std::size_t slot, const float* x, std::size_t count);
  void put_tokens(std::size_t slot, const GatedDeltaTokens& tokens);

  // Replays slots [0, keep) into the state and the tail: from -> to, where to is from or does not overlap
  // it. Both kinds must have been put there.
  void replay(std::size_t keep, const float* from_state, const float* from_tail, float* to_state,
              float* to_tail) const;
  // Only the state, by the given slots in the given order.
  void replay_state(std::span<const int> path, const float* from, float* to) const;
  const float* conv_input(std::size_t slot) const { return conv_ + slot * shape_.conv.input_floats(); }

  // Replays the given slots in the given order.
  void replay(std::span<const int> path, const float* from_state, const float* from_tail, float* to_state,
              float* to_tail) const;

 private:
  GatedDeltaTokens tokens(std::size_t slot, std::size_t count) const;
  void replay_run(std::size_t slot, std::size_t count, const float* from_state, const float* from_tail,
                  float* to_state, float* to_tail) const;

  RecurrentShape shape_;
  std::size_t capacity_;
  float *conv_, *k_, *v_, *g_, *beta_;  // each [capacity, ...]: a run of slots is packed as advance wants it
};

}  // namespace windrow
