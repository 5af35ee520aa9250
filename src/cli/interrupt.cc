#include "cli/interrupt.h"

#include <csignal>

namespace windrow::cli {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

}  // namespace

void catch_interrupt() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = [](int) { flag.store(true); };
    // RESETHAND: the second one kills. RESTART: a write that waits for a slow reader of stdout goes on.
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

const std::atomic<bool>& interrupted() { return flag; }

}  // namespace windrow::cli
