#include "base/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace windrow {

Result<Arena> Arena::create(std::size_t bytes, const char* what) {
  Arena arena;
  if (bytes == 0) return arena;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{}: can't map {} bytes: {}", what, bytes, std::strerror(errno)));
  }
  // Only advice: where transparent huge pages are off the call fails and nothing changes.
  (void)madvise(p, bytes, MADV_HUGEPAGE);
  arena.data_ = static_cast<std::byte*>(p);
  arena.size_ = bytes;
  return arena;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace windrow
