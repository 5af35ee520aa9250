// What all layers share when they go over the tokens of a step: scratch memory and loops.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/checked.h"
#include "windrow/threads.h"

namespace windrow {

// Below this many tokens the elementwise work of a section (some microseconds) costs less than
// waking the pool for it.
inline constexpr std::size_t kParallelTokens = 16;

// Runs body(token) for each token: here, or on the pool where there is enough to do.
template <class Body>
void each_token(ThreadPool& pool, std::size_t tokens, const Body& body) {
  if (tokens < kParallelTokens) {
    for (std::size_t t = 0; t < tokens; t++) body(t);
  } else {
    pool.parallel_for(tokens, [&](std::size_t t, int) { body(t); });
  }
}

// Keeps row wanted[i] as row i. In place: wanted ascends, so no row is overwritten before it is read.
inline void keep_rows(float* rows, std::size_t width, std::span<const std::int32_t> wanted) {
  for (std::size_t i = 0; i < wanted.size(); i++) {
    std::memmove(rows + i * width, rows + static_cast<std::size_t>(wanted[i]) * width, width * sizeof(float));
  }
}

// Cuts arrays out of a runner's scratch. Without memory it only counts, so that the same code says how much
// is needed. A copy goes on from where it was made and tells its origin nothing: what a layer cuts from its
// copy is free again when the layer is done.
class Carver {
 public:
  explicit Carver(float* base = nullptr) : base_(base) {}
  // [tokens, width], 64-byte aligned as the base is.
  float* cut(std::size_t tokens, std::size_t width) {
    float* result = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(tokens * width, 16);
    return result;
  }
  std::size_t used() const noexcept { return used_; }

 private:
  float* base_;
  std::size_t used_ = 0;
};

}  // namespace windrow
