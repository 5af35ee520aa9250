// How much memory a run may take.
#pragma once

#include <cstddef>

namespace windrow::cli {

// Bytes that can be had without swapping (MemAvailable, and what the control group still allows); 0 where the
// system does not say.
std::size_t available_memory();

}  // namespace windrow::cli
