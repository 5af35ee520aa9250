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
