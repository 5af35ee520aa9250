// Ctrl-C, a request to end (SIGTERM) or a closed terminal (SIGHUP): the first asks the running command to end
// well, the second ends the program at once.
#pragma once

#include <atomic>

namespace windrow::cli {

// From here on. A signal that is ignored at the start (SIGINT in the background of a script, SIGHUP under
// nohup) stays ignored.
void catch_interrupt();

// Set by the first Ctrl-C.
const std::atomic<bool>& interrupted();

}  // namespace windrow::cli
