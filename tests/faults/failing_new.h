// operator new that fails on demand: this program replaces the global one (failing_new.cc).
#pragma once

#include <cstddef>

namespace windrow::testing {

// From here on the n-th allocation from now (0: the next) throws bad_alloc, once or, `for_ever`, with all
// that come after it. Per process; the tests run on one thread.
void fail_allocation(long n, bool for_ever = false);
// Ends that; whether a failure happened.
bool stop_failing();
// Allocations that were not freed yet.
long live_allocations();

}  // namespace windrow::testing
