// How the program fails: inside it errors travel as exceptions, caught once in main; a Failure ends the
// run with one line on stderr and its exit code.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "windrow/status.h"

namespace windrow::cli {

enum ExitCode : int {
  kSuccess = 0,
  kFailure = 1,        // the run failed: a file, the model, memory
  kUsage = 2,          // the command line is wrong
  kInterrupted = 130,  // Ctrl-C: what was written is whole, as far as it went (128 + SIGINT)
};

struct Failure {
  ExitCode code;
  std::string message;
};

// The value, or a Failure with the status' message.
template <class T>
T need(Result<T> result) {
  if (!result.ok()) throw Failure{kFailure, result.status().message()};
  return std::move(*result);
}
inline void need(const Status& status) {
  if (!status.ok()) throw Failure{kFailure, status.message()};
}

// A wrong flag: `FLAG: WHAT`.
[[noreturn]] inline void usage_error(std::string_view flag, const std::string& what) {
  throw Failure{kUsage, std::string(flag) + ": " + what};
}

}  // namespace windrow::cli
