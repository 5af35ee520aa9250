// The two halves of a transformer layer as the decoders see them: a mixer, which looks at other tokens
// through the state, and a feed-forward part, which does not.
#pragma once

#include <cstddef>

#include "model/family.h"
#include "model/linear.h"
#include "model/tokens.h"

namespace windrow {

// The rotations of a step's tokens, [tokens, pairs], of full and of sliding layers.
struct RopeAngles {
  const float* cosine[2];
  const float* sine[2];
  std::size_t pairs[2];
};
inline constexpr std::size_t kRopeFull = 0, kRopeSliding = 1;

// One layer's mixer. Immutable; all calls are const and work in scratch.
class Mixer {
 public:
  virtual ~Mixer() = default;
  // What mix() hands to the output projection: [tokens, output().weight.cols()].
  virtual const Linear& output() const = 0;
  virtual std::size_t scratch_floats(std::size_t tokens) const = 0;
  // mixed [tokens, output().weight.cols()] from h [tokens, hidden]; the step gets this layer's state.
  virtual Status mix(const Pass& pass, const float* h, const RopeAngles& angles, Carver scratch, float* mixed,
                     LapClock& clock) const = 0;
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual std::size_t scratch_floats(std::size_t tokens) const = 0;
  // y [tokens, hidden] from h [tokens, hidden]; they do not overlap.
  virtual void run(const Pass& pass, const float* h, std::size_t tokens, Carver scratch, float* y,
                   LapClock& clock) const = 0;
};

}  // namespace windrow
