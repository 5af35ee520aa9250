// stdout with its errors noticed, the terminal's abilities, and the progress bar.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace windrow::cli {

// Throw a Failure when the system refuses (a closed pipe, a full disk).
void write_stdout(std::string_view text);
void flush_stdout();

// Control characters (of a file's content, of an argument) made visible: an error stays one line.
std::string one_line(std::string_view text);

// The help of the chosen subcommand, or of the program.
std::string help_text(const CLI::App& app);

// Is stderr a terminal that wants colours and moving bars (NO_COLOR unset)?
bool lively_stderr();

// "1.2 KiB", "38.0 MiB": three digits are enough to compare.
std::string human_bytes(std::size_t bytes);

// A bar on stderr that appears when the work takes long enough to notice, and vanishes at the end.
class ProgressBar {
 public:
  ProgressBar(std::string label, bool enabled);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(double done, double total);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool enabled_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
};

}  // namespace windrow::cli
