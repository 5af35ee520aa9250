// Runs a check on every instruction set that this machine and build support.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>

namespace windrow::testing {

// Returns how many targets ran: a test can insist on more than the baseline.
template <class Check>
int on_every_target(const Check& check) {
  int count = 0;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check();
    count++;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return count;
}

}  // namespace windrow::testing
