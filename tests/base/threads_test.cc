#include "windrow/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace windrow {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceForAnyThreadCount) {
  for (int threads : {1, 2, 3, 8}) {
    Result<ThreadPool> pool = ThreadPool::create(threads);
    ASSERT_TRUE(pool.ok());
    for (std::size_t tasks : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> runs(tasks);
      std::atomic<int> bad_thread{0};
      pool->parallel_for(tasks, [&](std::size_t i, int thread) {
        runs[i]++;
        if (thread < 0 || thread >= threads) bad_thread++;
      });
      for (auto& r : runs) EXPECT_EQ(r.load(), 1);
      EXPECT_EQ(bad_thread.load(), 0);
    }
  }
}

TEST(ThreadPool, ManyShortSectionsSeeEachOthersWrites) {
  Result<ThreadPool> pool = ThreadPool::create(3);
  ASSERT_TRUE(pool.ok());
  std::vector<int> a(64, 0), b(64, 0);
  for (int round = 0; round < 2000; round++) {
    pool->parallel_for(64, [&](std::size_t i, int) { a[i] = b[63 - i] + 1; });
    pool->parallel_for(64, [&](std::size_t i, int) { b[i] = a[63 - i]; });
  }
  for (int v : b) EXPECT_EQ(v, 2000);
}

TEST(ThreadPool, RefusesAbsurdCounts) {
  EXPECT_EQ(ThreadPool::create(0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ThreadPool::create(-1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ThreadPool::create(100000).status().message(),
            "thread pool: 100000 threads asked for, allowed are 1 to 256");
}

}  // namespace
}  // namespace windrow
