#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace windrow::cli {
namespace {

[[noreturn]] void stdout_failed() {
  throw Failure{kFailure, fmt::format("stdout: {}", std::strerror(errno))};
}

}  // namespace

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) stdout_failed();
}

void flush_stdout() {
  if (std::fflush(stdout) != 0) stdout_failed();
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += ' ';  // CLI11 ends some messages with one
    } else if (byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string help_text(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app.help() : chosen[0]->help("windrow " + chosen[0]->get_name());
}

bool lively_stderr() {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(STDERR_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
}

std::string human_bytes(std::size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024; unit++) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

ProgressBar::ProgressBar(std::string label, bool enabled) : label_(std::move(label)), enabled_(enabled) {}

void ProgressBar::update(double done, double total) {
  constexpr auto kPatience = std::chrono::milliseconds(300);  // shorter work shows no bar
  constexpr auto kInterval = std::chrono::milliseconds(50);
  constexpr int kCells = 30;
  const Clock::time_point now = Clock::now();
  if (!enabled_ || total <= 0 || now - start_ < kPatience || now - drawn_ < kInterval) return;
  drawn_ = now;
  shown_ = true;
  const double share = std::min(1.0, done / total);
  const int full = static_cast<int>(share * kCells);
  std::string bar;
  for (int i = 0; i < kCells; i++) bar += i < full ? "█" : "░";
  fmt::print(stderr, "\r{} {} {:3.0f} %", label_, bar, share * 100);
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[2K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace windrow::cli
