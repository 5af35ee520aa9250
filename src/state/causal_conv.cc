// Shapes, weights, tail and the scalar definition of the causal convolution.
#include "windrow/causal_conv.h"

#include <fmt/format.h>

#include <bit>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "base/checked.h"
#include "state/silu.h"

namespace windrow {
namespace {

std::size_t size(int n) { return static_cast<std::size_t>(n); }

float silu(float s) {
  using namespace silu_constants;
  float z = -s;
  if (!(z > kLow)) z = kLow;  // NaN too: s itself brings it back
  if (z > kHigh) z = kHigh;
  const float shifted = z * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (z - n * kLn2High) - n * kLn2Low;
  float p = kTaylor[0];
  for (std::size_t i = 1; i < std::size(kTaylor); i++) p = p * r + kTaylor[i];
  // 2^(n - 1), whose exponent is in range for all n, then twice, which may overflow to infinity.
  const std::uint32_t half_power = (std::bit_cast<std::uint32_t>(shifted) << 23) + (126u << 23);
  const float e = (p * std::bit_cast<float>(half_power)) * 2.0f;
  return s / (1.0f + e);
}

}  // namespace

Status CausalConvShape::check() const {
  if (channels < 1 || taps < 1) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("causal convolution: {} channels and {} taps, expected 1 or more of each",
                              channels, taps));
  }
  if (!checked_product({size(channels), size(taps), sizeof(float)})) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("causal convolution: {} channels x {} taps exceed the address space", channels, taps));
  }
  return {};
}

std::size_t CausalConvShape::tail_floats() const noexcept { return size(taps - 1) * size(channels); }
std::size_t CausalConvShape::input_floats() const noexcept { return size(channels); }

std::vector<float> conv_weights_by_tap(const CausalConvShape& shape, const float* weights) {
  const std::size_t channels = size(shape.channels), taps = size(shape.taps);
  std::vector<float> out(channels * taps);
  for (std::size_t c = 0; c < channels; c++) {
    for (std::size_t j = 0; j < taps; j++) out[j * channels + c] = weights[c * taps + j];
  }
  return out;
}

void causal_conv_scalar(const CausalConvShape& shape, const float* tail, const float* x, std::size_t count,
                        const float* weights_by_tap, Activation activation, float* out) {
  assert(shape.check().ok());
  const std::size_t channels = size(shape.channels), taps = size(shape.taps);
  // The newest token first: an output may lie where its input lay, which older ones don't need.
  for (std::size_t t = count; t-- > 0;) {
    for (std::size_t c = 0; c < channels; c++) {
      float sum = 0;
      for (std::size_t j = 0; j < taps; j++) {
        const std::size_t row = t + j;  // of the window
        const float in = row + 1 < taps ? tail[row * channels + c] : x[(row + 1 - taps) * channels + c];
        const float term = weights_by_tap[j * channels + c] * in;
        sum = j == 0 ? term : sum + term;
      }
      out[t * channels + c] = activation == Activation::kSilu ? silu(sum) : sum;
    }
  }
}

void advance_conv_tail(const CausalConvShape& shape, const float* from, const float* x, std::size_t count,
                       float* to) {
  assert(shape.check().ok());
  const std::size_t channels = size(shape.channels), rows = size(shape.taps - 1);
  const std::size_t fresh = count < rows ? count : rows, kept = rows - fresh;
  if (kept != 0) std::memmove(to, from + fresh * channels, kept * channels * sizeof(float));
  if (fresh != 0) {
    std::memcpy(to + kept * channels, x + (count - fresh) * channels, fresh * channels * sizeof(float));
  }
}

}  // namespace windrow
