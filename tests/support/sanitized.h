// Whether this build is instrumented: 10 to 20 times slower, and blind to limits on address space.
#pragma once

namespace windrow::testing {

#ifdef WINDROW_SANITIZED  // the build says so (cmake/WindrowTargets.cmake)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace windrow::testing
