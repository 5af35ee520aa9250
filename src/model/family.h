// What a model family implements, and the registry that finds it by model_type.
//
// A family is an immutable set of weights with a forward pass. Only families know tensor names
// and the order of layers; they stand on products, layers, step and attention.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/weights.h"
#include "windrow/attention.h"
#include "windrow/model.h"
#include "windrow/store.h"
#include "windrow/threads.h"

namespace windrow {

// One forward pass. The arguments were checked by Runner::forward.
struct Pass {
  Step& step;
  std::span<const std::int32_t> ids;
  std::span<const std::int32_t> wanted;
  std::span<float> logits;
  const AttentionKernels& kernels;
  ThreadPool& pool;
  std::span<float> scratch;           // scratch_floats(largest step), 64-byte aligned
  std::size_t max_tokens;             // of the largest step
  ForwardProfile* profile;            // or null
  const AttentionObserver& observer;  // may be empty

  // To be called after each attention layer.
  Status observe(const AttentionTrace& trace) const { return observer ? observer(trace) : Status(); }
};

class Family {
 public:
  virtual ~Family() = default;
  virtual std::size_t scratch_floats(std::size_t max_tokens) const = 0;
  virtual Status forward(const Pass& pass) const = 0;
};

// Adds the time since the last lap to one part of a profile; without a profile it does nothing.
class LapClock {
 public:
  explicit LapClock(ForwardProfile* profile) : profile_(profile) {
    if (profile_ != nullptr) last_ = std::chrono::steady_clock::now();
  }
  void lap(double ForwardProfile::*part) {
    if (profile_ == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    profile_->*part += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  ForwardProfile* profile_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace windrow
