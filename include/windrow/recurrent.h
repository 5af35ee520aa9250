// The shape of a recurrent layer's state: a short causal convolution over all channels and one gated delta
// state (Qwen3-Next, Kimi Linear). See causal_conv.h and gated_delta.h for what they compute.
#pragma once

#include <cstddef>

#include "windrow/causal_conv.h"
#include "windrow/export.h"
#include "windrow/gated_delta.h"
#include "windrow/status.h"

namespace windrow {

struct WINDROW_API RecurrentShape {
  GatedDeltaShape delta;
  CausalConvShape conv;

  Status check() const;

  // Bytes of one row's state: the matrices and the tail.
  std::size_t state_bytes() const noexcept;
  // Bytes that one token takes in the record that replays a part of a step: its convolution input, k, v, g
  // and beta, all f32. For Qwen3-Next (16 key, 32 value heads of 128, 8192 channels) 57,600 against 2 MiB
  // of state.
  std::size_t record_bytes_per_token() const noexcept;

  friend bool operator==(const RecurrentShape&, const RecurrentShape&) = default;
};

}  // namespace windrow
