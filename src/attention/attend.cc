// The driver: cuts a call into tasks and shares them out.
#include "attention/attend.h"

#include <atomic>

#include "attention/call.h"
#include "attention/tasks.h"
#include "attention/worker.h"

namespace windrow::internal {
namespace {

// The tasks of one share of the work; false without memory.
bool run_share(const Call& call, int heads_per_kv, std::int64_t total, int share, int shares) {
  Worker worker(call);
  if (!worker.ready()) return false;
  std::int64_t before = 0;
  Task waiting;  // a task is run when its successor is known
  bool any = false;
  for (TaskWalk walk(call.read, heads_per_kv); !walk.done(); walk.next()) {
    const std::int64_t cost = walk.cost();
    const int its = share_of(before, cost, total, shares);
    before += cost;
    if (its < share) continue;
    if (its > share) break;
    if (any) worker.run(waiting, &walk.task());
    waiting = walk.task();
    any = true;
  }
  if (any) worker.run(waiting, nullptr);
  return true;
}

}  // namespace

Status attend_with(const Kernels& kernels, const KvRead& read, std::span<const float> q,
                   const AttentionParams& params, std::span<float> out, ThreadPool* pool) {
  const Call call(kernels, read, q, params, out);
  const int heads_per_kv = params.q_heads / read.kv_heads;
  std::int64_t total = 0;
  for (TaskWalk walk(read, heads_per_kv); !walk.done(); walk.next()) total += walk.cost();
  if (total == 0) return {};
  const int shares = pool == nullptr ? 1 : pool->threads();
  std::atomic<bool> ok = true;
  const auto body = [&](std::size_t share, int) {
    if (!run_share(call, heads_per_kv, total, static_cast<int>(share), shares))
      ok.store(false, std::memory_order_relaxed);
  };
  if (pool == nullptr) {
    body(0, 0);
  } else {
    pool->parallel_for(sz(shares), body);
  }
  if (ok.load(std::memory_order_relaxed)) return {};
  return Status(StatusCode::kResourceExhausted, "attention: no memory for the working buffers");
}

}  // namespace windrow::internal
