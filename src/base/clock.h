// Seconds of clocks that never fall, for differences.
#pragma once

#include <time.h>

#include <chrono>

namespace windrow {

inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The calling thread's processor time, which other load on the machine does not stretch.
inline double thread_seconds() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace windrow
