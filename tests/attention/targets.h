// Runs a test body on every instruction set that this build has and this machine supports.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "attention/attend.h"
#include "hwy/targets.h"

namespace windrow::testing {

// The kernels of each of them, the scalar baseline included.
inline const std::vector<internal::Kernels>& all_kernels() {
  static const std::vector<internal::Kernels> all = [] {
    std::vector<internal::Kernels> kernels;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      kernels.push_back(internal::select_kernels());
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
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
