#include "cli/memory.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

namespace windrow::cli {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// The first number that `format` finds in a line of the file.
std::optional<std::size_t> read_number(const char* path, const char* format) {
  const File file(std::fopen(path, "re"), &std::fclose);
  char line[256];
  unsigned long long value = 0;
  while (file != nullptr && std::fgets(line, sizeof line, file.get()) != nullptr) {
    if (std::sscanf(line, format, &value) == 1) return value;
  }
  return std::nullopt;
}

}  // namespace

std::size_t available_memory() {
  const std::optional<std::size_t> kib = read_number("/proc/meminfo", "MemAvailable: %llu kB");
  if (!kib) return 0;
  std::size_t bytes = *kib * 1024;
  const auto limit = read_number("/sys/fs/cgroup/memory.max", "%llu");  // "max": no number
  const auto used = read_number("/sys/fs/cgroup/memory.current", "%llu");
  if (limit && used) bytes = std::min(bytes, *limit > *used ? *limit - *used : std::size_t{1});
  return bytes;
}

}  // namespace windrow::cli
