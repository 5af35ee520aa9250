// Recording and replay of a recurrent layer's step.
#include "state/recurrent_record.h"

#include <cassert>
#include <cstdint>
#include <cstring>

namespace windrow {
namespace {

void copy(float* array, std::size_t slot, std::size_t count, std::size_t width, const float* values) {
  if (count != 0) std::memcpy(array + slot * width, values, count * width * sizeof(float));
}

}  // namespace

Status RecurrentShape::check() const {
  if (Status status = delta.check(); !status.ok()) return status;
  return conv.check();
}

std::size_t RecurrentShape::state_bytes() const noexcept {
  return (delta.state_floats() + conv.tail_floats()) * sizeof(float);
}

std::size_t RecurrentShape::record_bytes_per_token() const noexcept {
  return (conv.input_floats() + delta.key_floats() + delta.value_floats() + delta.decay_floats() +
          delta.beta_floats()) *
         sizeof(float);
}

RecurrentRecord::RecurrentRecord(const RecurrentShape& shape, std::byte* memory, std::size_t capacity)
    : shape_(shape), capacity_(capacity) {
  assert(shape.check().ok() && reinterpret_cast<std::uintptr_t>(memory) % alignof(float) == 0);
  conv_ = reinterpret_cast<float*>(memory);
  k_ = conv_ + capacity * shape.conv.input_floats();
  v_ = k_ + capacity * shape.delta.key_floats();
  g_ = v_ + capacity * shape.delta.value_floats();
  beta_ = g_ + capacity * shape.delta.decay_floats();
}

void RecurrentRecord::put_conv(std::size_t slot, const float* x, std::size_t count) {
  assert(slot <= capacity_ && count <= capacity_ - slot);
  copy(conv_, slot, count, shape_.conv.input_floats(), x);
}

void RecurrentRecord::put_tokens(std::size_t slot, const GatedDeltaTokens& tokens) {
  assert(slot <= capacity_ && tokens.count <= capacity_ - slot);
  copy(k_, slot, tokens.count, shape_.delta.key_floats(), tokens.k);
  copy(v_, slot, tokens.count, shape_.delta.value_floats(), tokens.v);
  copy(g_, slot, tokens.count, shape_.delta.decay_floats(), tokens.g);
  copy(beta_, slot, tokens.count, shape_.delta.beta_floats(), tokens.beta);
}

GatedDeltaTokens RecurrentRecord::tokens(std::size_t slot, std::size_t count) const {
  assert(slot <= capacity_ && count <= capacity_ - slot);
  return {.count = count,
          .q = nullptr,
          .k = k_ + slot * shape_.delta.key_floats(),
          .v = v_ + slot * shape_.delta.value_floats(),
          .g = g_ + slot * shape_.delta.decay_floats(),
          .beta = beta_ + slot * shape_.delta.beta_floats()};
}

void RecurrentRecord::replay_run(std::size_t slot, std::size_t count, const float* from_state,
                                 const float* from_tail, float* to_state, float* to_tail) const {
  gated_delta_advance(shape_.delta, tokens(slot, count), from_state, to_state, nullptr);
  advance_conv_tail(shape_.conv, from_tail, conv_input(slot), count, to_tail);
}

void RecurrentRecord::replay_state(std::span<const int> path, const float* from, float* to) const {
  if (path.empty()) return gated_delta_advance(shape_.delta, tokens(0, 0), from, to, nullptr);
  for (const int slot : path) {
    gated_delta_advance(shape_.delta, tokens(static_cast<std::size_t>(slot), 1), from, to, nullptr);
    from = to;
  }
}

void RecurrentRecord::replay(std::size_t keep, const float* from_state, const float* from_tail,
                             float* to_state, float* to_tail) const {
  replay_run(0, keep, from_state, from_tail, to_state, to_tail);
}

void RecurrentRecord::replay(std::span<const int> path, const float* from_state, const float* from_tail,
                             float* to_state, float* to_tail) const {
  if (path.empty()) return replay_run(0, 0, from_state, from_tail, to_state, to_tail);
  // Runs of consecutive slots go in one call each, so that the state moves through memory once a run.
  for (std::size_t begin = 0, end; begin < path.size(); begin = end) {
    for (end = begin + 1; end < path.size() && path[end] == path[end - 1] + 1;) end++;
    replay_run(static_cast<std::size_t>(path[begin]), end - begin, from_state, from_tail, to_state, to_tail);
    from_state = to_state;
    from_tail = to_tail;
  }
}

}  // namespace windrow
