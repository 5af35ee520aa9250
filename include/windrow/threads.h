// A fixed team of threads for the short parallel sections of a forward pass.
//
// Results never depend on the number of threads: callers split work into tasks whose
// arithmetic is fixed, and the pool only decides who runs which task.
//
// Thread safety: one parallel_for at a time per pool; calls from several threads or
// from inside a task are not allowed.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include "windrow/export.h"
#include "windrow/status.h"

namespace windrow {

class WINDROW_API ThreadPool {
 public:
  // `threads` counts the caller, so 1 starts no thread. 1 <= threads <= kMaxThreads.
  static Result<ThreadPool> create(int threads);
  static constexpr int kMaxThreads = 256;
  // The processors this process may run on (its affinity mask), at least 1.
  static int available() noexcept;

  ThreadPool(ThreadPool&&) noexcept;
  ThreadPool& operator=(ThreadPool&&) noexcept;
  ~ThreadPool();

  int threads() const noexcept;

  // Runs body(task, thread) for every task in [0, tasks), thread in [0, threads()), and
  // returns when all have run. Tasks are dealt out as contiguous ranges of equal length,
  // one a thread: equal tasks cost no synchronization but the final barrier, and thread t
  // gets the same range each time, so its caches stay warm. The body must not throw.
  template <typename Body>
  void parallel_for(std::size_t tasks, Body&& body) {
    using B = std::remove_reference_t<Body>;
    run(
        tasks, [](void* context, std::size_t task, int thread) { (*static_cast<B*>(context))(task, thread); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  struct Impl;
  explicit ThreadPool(std::unique_ptr<Impl> impl) noexcept;
  void run(std::size_t tasks, void (*call)(void*, std::size_t, int), void* context);
  std::unique_ptr<Impl> impl_;
};

}  // namespace windrow
