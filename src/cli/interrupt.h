// Ctrl-C: the first asks the running command to end well, the second ends the program at once.
#pragma once

#include <atomic>

namespace windrow::cli {

// From here on. A program started with SIGINT ignored (in the background of a script) keeps ignoring it.
void catch_interrupt();

// Set by the first Ctrl-C.
const std::atomic<bool>& interrupted();

}  // namespace windrow::cli
