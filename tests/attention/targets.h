// Runs a test body on every instruction set that this machine supports.
#pragma once

#include <gtest/gtest.h>

#include "attention/attend.h"
#include "hwy/targets.h"

namespace windrow::testing {

template <typename Body>
void for_each_target(Body&& body) {
  const std::int64_t supported = hwy::SupportedTargets();
  int targets = 0;
  for (std::int64_t left = supported; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    const internal::Kernels kernels = internal::select_kernels();
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, kernels.target);
    body(kernels);
    targets++;
  }
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_GE(targets, 2);
}

}  // namespace windrow::testing
