#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "cli/failure.h"

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

void write_stderr(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
  (void)std::fflush(stderr);
}

std::string read_all(std::FILE* stream, const std::string& name, std::size_t limit) {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, stream)) {
    text.append(buffer, n);
    if (text.size() > limit) throw Failure{kFailure, fmt::format("{}: more than {} bytes", name, limit)};
  }
  if (std::ferror(stream) != 0) throw Failure{kFailure, fmt::format("{}: {}", name, std::strerror(errno))};
  return text;
}

std::string read_input(const std::string& path, std::size_t limit) {
  if (path == "-") return read_all(stdin, "stdin", limit);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (file == nullptr)
    throw Failure{kFailure, fmt::format("{}: cannot open: {}", path, std::strerror(errno))};
  return read_all(file.get(), path, limit);
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

std::string layers_text(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) end++;
    if (!text.empty()) text += ",";
    text += end - i > 2 ? fmt::format("{}-{}", layers[i], layers[end - 1]) : std::to_string(layers[i]);
    i = end - i > 2 ? end : i + 1;
  }
  return text;
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
  write_stderr(fmt::format("\r{} {} {:3.0f} %", label_, bar, share * 100));
}

void ProgressBar::clear() {
  if (!shown_) return;
  write_stderr("\r\x1b[2K");
  shown_ = false;
}

}  // namespace windrow::cli
