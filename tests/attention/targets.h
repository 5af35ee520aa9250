// Runs a test body on every instruction set that this build has and this machine supports.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "attention/attend.h"
#include "support/simd_targets.h"

namespace windrow::testing {

// The kernels of each of them, the scalar baseline included.
inline const std::vector<internal::Kernels>& all_kernels() {
  static const std::vector<internal::Kernels> all = [] {
    std::vector<internal::Kernels> kernels;
    on_every_target([&] { kernels.push_back(internal::select_kernels()); });
    return kernels;
  }();
  return all;
}

template <typename Body>
void for_each_target(Body&& body) {
  for (const internal::Kernels& kernels : all_kernels()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, kernels.target);
    body(kernels);
  }
}

}  // namespace windrow::testing
