// What the subcommands share: how they register and how flags are read.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.h"

namespace windrow::cli {

// Flags whose text is checked while the command line is read; the error names the flag, the text and
// what is allowed, and the help says the same range and the default: what `to` holds, or `default_text`
// where the number does not tell it ("" for a flag that is required).
CLI::Option* int_flag(CLI::App& app, const std::string& flag, int* to, int low, int high,
                      const std::string& help, const char* default_text = nullptr);
CLI::Option* seed_flag(CLI::App& app, const std::string& flag, std::uint64_t* to, const std::string& help);

// NaN is in no range.
struct FloatRange {
  float low, high;
  bool low_open = false, high_open = false;
  bool holds(float x) const { return (low_open ? x > low : x >= low) && (high_open ? x < high : x <= high); }
  std::string text() const;  // "from 0 to 1", "above 0 to 1", "from 0, below 1"
};
CLI::Option* float_flag(CLI::App& app, const std::string& flag, float* to, const FloatRange& range,
                        const std::string& help);

CLI::Option* ids_flag(CLI::App& app, const std::string& flag, std::vector<std::int32_t>* to,
                      const std::string& help);
CLI::Option* text_flag(CLI::App& app, const std::string& flag, std::string* to, const char* type,
                       const std::string& help);
// A text that can't be empty.
CLI::Option* path_flag(CLI::App& app, const std::string& flag, std::string* to, const char* type,
                       const std::string& help);
// One of some words, the first being the default; `chosen` gets its number.
CLI::Option* choice_flag(CLI::App& app, const std::string& flag, std::vector<std::string> words,
                         const std::string& help, std::function<void(std::size_t)> chosen);
// Present or not; `--flag=value` is an error.
CLI::Option* bool_flag(CLI::App& app, const std::string& flag, bool* to, const std::string& help);

// What is wrong with a command line that CLI11 refused, in this program's words; `app` is the chosen
// subcommand, or the program where there is none.
std::string explain(const CLI::ParseError& error, const CLI::App& app, int argc, char** argv);

// Each adds its subcommand to `app`; the one that is named on the command line leaves its work in `run`.
using Run = std::function<int()>;
void add_generate(CLI::App& app, Run& run);
void add_chat(CLI::App& app, Run& run);
void add_session(CLI::App& app, Run& run);
void add_logits(CLI::App& app, Run& run);
void add_convert(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_plan(CLI::App& app, Run& run);
void add_quality(CLI::App& app, Run& run);
void add_batch(CLI::App& app, Run& run);
void add_tokenize(CLI::App& app, Run& run);
void add_detokenize(CLI::App& app, Run& run);

}  // namespace windrow::cli
