// Standard streams with the errors that matter noticed, the terminal's abilities, and the progress bar.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace windrow::cli {

// Throw a Failure (cli/failure.h) when the system refuses (a closed pipe, a full disk).
void write_stdout(std::string_view text);
void flush_stdout();

// A side channel: what can't be written there is lost, not an error.
void write_stderr(std::string_view text);
// All of a stream, up to `limit` bytes; throws a Failure that names it.
std::string read_all(std::FILE* stream, const std::string& name, std::size_t limit);

// All of a file, a pipe (a process substitution) or, as "-", stdin.
std::string read_input(const std::string& path, std::size_t limit);

// Control characters (of a file's content, of an argument) made visible: an error stays one line.
std::string one_line(std::string_view text);

// Is stderr a terminal that wants colours and moving bars (NO_COLOR unset)?
bool lively_stderr();

// "1.2 KiB", "38.0 MiB": three digits are enough to compare.
std::string human_bytes(std::size_t bytes);

// "0-4" for consecutive layers, "0,2,5" else.
std::string layers_text(const std::vector<int>& layers);

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
