#include "windrow/threads.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace windrow {
namespace {

// Spins before a waiter sleeps in the kernel. Between the products of one decode step lie a few
// microseconds; a pause is about 40 cycles, so this covers some 40 us and then gives the core back.
constexpr int kSpins = 4000;

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Waits until `word` differs from `old`.
template <typename T>
T wait_change(const std::atomic<T>& word, T old, int spins) {
  for (int i = 0; i < spins; i++) {
    const T now = word.load(std::memory_order_acquire);
    if (now != old) return now;
    pause_cpu();
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::Impl {
  int threads = 1;
  // More threads than processors: spinning would take the core from the one waited for.
  int spins = kSpins;
  std::vector<std::thread> workers;

  // One job at a time; the fields below are published by `generation`.
  std::size_t tasks = 0;
  void (*call)(void*, std::size_t, int) = nullptr;
  void* context = nullptr;
  bool stop = false;
  std::atomic<std::uint32_t> generation{0};
  std::atomic<int> running{0};

  void share(int thread) {
    const std::size_t n = static_cast<std::size_t>(threads), t = static_cast<std::size_t>(thread);
    const std::size_t each = tasks / n, extra = tasks % n;
    const std::size_t begin = t * each + std::min(t, extra);
    const std::size_t end = begin + each + (t < extra ? 1 : 0);
    for (std::size_t i = begin; i < end; i++) call(context, i, thread);
  }

  void work(int thread) {
    std::uint32_t seen = 0;
    for (;;) {
      wait_change(generation, seen, spins);
      seen++;  // the caller waits for every worker, so no generation is skipped
      if (stop) return;
      share(thread);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }

  void publish() {
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }

  ~Impl() {
    stop = true;
    publish();
    for (std::thread& w : workers) w.join();
  }
};

int ThreadPool::available() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::clamp(CPU_COUNT(&set), 1, kMaxThreads);
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

Result<ThreadPool> ThreadPool::create(int threads) {
  if (threads < 1 || threads > kMaxThreads) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("thread pool: {} threads asked for, allowed are 1 to {}", threads, kMaxThreads));
  }
  try {
    auto impl = std::make_unique<Impl>();
    if (threads > available()) impl->spins = 0;
    impl->workers.reserve(static_cast<std::size_t>(threads - 1));
    for (int t = 1; t < threads; t++) impl->workers.emplace_back([p = impl.get(), t] { p->work(t); });
    impl->threads = threads;  // read by workers only after the first publish()
    return ThreadPool(std::move(impl));
  } catch (const std::exception& e) {
    return Status(StatusCode::kResourceExhausted, fmt::format("thread pool of {}: {}", threads, e.what()));
  }
}

ThreadPool::ThreadPool(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
ThreadPool::ThreadPool(ThreadPool&&) noexcept = default;
ThreadPool& ThreadPool::operator=(ThreadPool&&) noexcept = default;
ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const noexcept { return impl_->threads; }

void ThreadPool::run(std::size_t tasks, void (*call)(void*, std::size_t, int), void* context) {
  if (tasks == 0) return;
  Impl& p = *impl_;
  if (p.threads == 1 || tasks == 1) {
    for (std::size_t i = 0; i < tasks; i++) call(context, i, 0);
    return;
  }
  p.tasks = tasks;
  p.call = call;
  p.context = context;
  p.running.store(p.threads - 1, std::memory_order_relaxed);
  p.publish();
  p.share(0);
  int left = p.running.load(std::memory_order_acquire);
  while (left != 0) left = wait_change(p.running, left, p.spins);
}

}  // namespace windrow
