#include "faults/failing_new.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace windrow::testing {
namespace {

constexpr long kNever = -1;
std::atomic<long> countdown{kNever};
std::atomic<bool> failed{false}, goes_on{false};
std::atomic<long> live{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (countdown.load() != kNever && countdown.fetch_sub(1) == 0) {
    countdown.store(goes_on.load() ? 0 : kNever);
    failed.store(true);
    throw std::bad_alloc();
  }
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(bytes == 0 ? 1 : bytes)
                : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  live.fetch_add(1);
  return p;
}

void release(void* p) {
  if (p == nullptr) return;
  live.fetch_sub(1);
  std::free(p);
}

}  // namespace

void fail_allocation(long n, bool for_ever) {
  failed.store(false);
  goes_on.store(for_ever);
  countdown.store(n);
}
bool stop_failing() {
  countdown.store(kNever);
  return failed.load();
}
long live_allocations() { return live.load(); }

}  // namespace windrow::testing

void* operator new(std::size_t n) { return windrow::testing::allocate(n, alignof(std::max_align_t)); }
void* operator new[](std::size_t n) { return windrow::testing::allocate(n, alignof(std::max_align_t)); }
void* operator new(std::size_t n, std::align_val_t a) {
  return windrow::testing::allocate(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return windrow::testing::allocate(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { windrow::testing::release(p); }
void operator delete[](void* p) noexcept { windrow::testing::release(p); }
void operator delete(void* p, std::size_t) noexcept { windrow::testing::release(p); }
void operator delete[](void* p, std::size_t) noexcept { windrow::testing::release(p); }
void operator delete(void* p, std::align_val_t) noexcept { windrow::testing::release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { windrow::testing::release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { windrow::testing::release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { windrow::testing::release(p); }
