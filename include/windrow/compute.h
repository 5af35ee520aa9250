// How products over quantized weights are computed. A property of the loaded model, never chosen by the
// size of a step, so that row determinism holds.
#pragma once

#include <cstdint>

namespace windrow {

enum class Compute : std::uint8_t {
  kDefault,  // activations as fixed point of 22 to 24 bits a group, integer products: the error of f32
  kFast,     // activations of 16 bits: relative error about 7e-5, up to twice as fast
  kF32,      // codes widened to f32, one chain of FMAs a group
};

}  // namespace windrow
