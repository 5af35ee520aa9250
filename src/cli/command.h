// What the subcommands share: how they register, how they fail, how flags are read.
//
// Inside the program errors travel as exceptions, caught once in main: a Failure ends the run with
// one line on stderr and its exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

// Flags whose text is checked while the command line is read; the error names the flag, the text and
// what is allowed. Bounds are inclusive; NaN is never allowed.
CLI::Option* int_flag(CLI::App& app, const std::string& flag, int* to, int low, int high,
                      const std::string& help);
CLI::Option* seed_flag(CLI::App& app, const std::string& flag, std::uint64_t* to, const std::string& help);
CLI::Option* float_flag(CLI::App& app, const std::string& flag, float* to, float low, float high,
                        const std::string& help);
CLI::Option* ids_flag(CLI::App& app, const std::string& flag, std::vector<std::int32_t>* to,
                      const std::string& help);
CLI::Option* text_flag(CLI::App& app, const std::string& flag, std::string* to, const char* type,
                       const std::string& help);

// Each adds its subcommand to `app`; the one that is named on the command line leaves its work in `run`.
using Run = std::function<int()>;
void add_generate(CLI::App& app, Run& run);
void add_logits(CLI::App& app, Run& run);
void add_plan(CLI::App& app, Run& run);
void add_tokenize(CLI::App& app, Run& run);
void add_detokenize(CLI::App& app, Run& run);

}  // namespace windrow::cli
