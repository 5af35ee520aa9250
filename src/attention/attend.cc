// The driver: cuts a call into tasks, or segments of tasks where those are few, and shares them out.
#include "attention/attend.h"

#include <atomic>

#include "attention/call.h"
#include "attention/tasks.h"
#include "attention/worker.h"

namespace windrow::internal {
namespace {

// How a call is shared out. Every thread works it out for itself: the same for all.
struct Plan {
  std::int64_t total = 0;
  int heads_per_kv = 1;
  int shares = 1;
  bool cuts_tasks = false;   // else a task is one thread's
  std::size_t segments = 0;  // of tasks that are cut, all together
  float* states = nullptr;   // of these, in order
  std::size_t state_floats = 0;

  // Which of the equal parts of the work a piece of it belongs to: the one that its middle lies in. Grows
  // with `before`, so every share is a contiguous run of pieces.
  int share_of(std::int64_t before, std::int64_t cost) const {
    return static_cast<int>((2 * before + cost) * shares / (2 * total));
  }
};

// Calls visit(task, walk, before) for every task; before: the cost of those before it. Stops when it says so.
template <class Visit>
void for_each_task(const KvRead& read, int heads_per_kv, const Visit& visit) {
  std::int64_t before = 0;
  for (TaskWalk tasks(read, heads_per_kv); !tasks.done(); tasks.next()) {
    const BlockWalk walk(read, tasks.task());
    const std::int64_t cost = cost_of(tasks.task(), walk.tiles());
    if (!visit(tasks.task(), walk, before, cost)) return;
    before += cost;
  }
}

// Calls visit(begin, end, share) for every segment of a task, blocks [begin, end).
template <class Visit>
void for_each_segment(const Plan& plan, const Task& task, const BlockWalk& walk, std::int64_t before,
                      const Visit& visit) {
  for (int b = 0, end; b < walk.blocks(); b = end) {
    end = walk.segment_end(b);
    const std::int64_t cost = cost_of(task, walk.tiles(b, end));
    visit(b, end, plan.share_of(before, cost));
    before += cost;
  }
}

// The segments of a task and who runs them: first and last share, how many.
struct Cut {
  int first = 0, last = 0, segments = 0;
  bool is_cut() const { return first != last; }
};

Cut cut_of(const Plan& plan, const Task& task, const BlockWalk& walk, std::int64_t before,
           std::int64_t cost) {
  if (!plan.cuts_tasks) {
    const int share = plan.share_of(before, cost);
    return {share, share, 1};
  }
  Cut cut;
  for_each_segment(plan, task, walk, before, [&](int begin, int, int share) {
    if (begin == 0) cut.first = share;
    cut.last = share;
    cut.segments++;
  });
  return cut;
}

// Calls visit(piece) for the pieces of a share, in order.
template <class Visit>
void for_each_piece(const KvRead& read, const Plan& plan, int share, const Visit& visit) {
  float* states = plan.states;
  for_each_task(read, plan.heads_per_kv,
                [&](const Task& task, const BlockWalk& walk, std::int64_t before, std::int64_t cost) {
                  const Cut cut = cut_of(plan, task, walk, before, cost);
                  if (cut.first > share) return false;
                  if (!cut.is_cut()) {
                    if (cut.first == share) visit(Piece{task, 0, walk.blocks(), nullptr});
                    return true;
                  }
                  Piece piece{task, 0, 0, nullptr};
                  for_each_segment(plan, task, walk, before, [&](int begin, int end, int its) {
                    if (its == share) {
                      if (piece.states == nullptr) piece = {task, begin, end, states};
                      piece.end = end;
                    }
                    states += plan.state_floats;
                  });
                  if (piece.states != nullptr) visit(piece);
                  return true;
                });
}

void run_piece(Worker& worker, const Piece& piece, const Piece* after) {
  if (piece.states == nullptr) {
    worker.run(piece.task, after);
  } else {
    worker.run_part(piece.task, piece.begin, piece.end, piece.states, after);
  }
}

// One share of the work; false without memory.
bool run_share(const Call& call, const Plan& plan, int share) {
  Worker worker(call);
  if (!worker.ready()) return false;
  Piece waiting;  // a piece is run when its successor is known
  bool any = false;
  for_each_piece(call.read, plan, share, [&](const Piece& piece) {
    if (any) run_piece(worker, waiting, &piece);
    waiting = piece;
    any = true;
  });
  if (any) run_piece(worker, waiting, nullptr);
  return true;
}

// Folds the segments of tasks that were cut; false without memory.
bool join_tasks(const Call& call, const Plan& plan) {
  Worker worker(call);
  if (!worker.ready()) return false;
  float* states = plan.states;
  for_each_task(call.read, plan.heads_per_kv,
                [&](const Task& task, const BlockWalk& walk, std::int64_t before, std::int64_t cost) {
                  const Cut cut = cut_of(plan, task, walk, before, cost);
                  if (!cut.is_cut()) return true;
                  worker.join(task, cut.segments, states);
                  states += sz(cut.segments) * plan.state_floats;
                  return true;
                });
  return true;
}

Plan make_plan(const Call& call, int shares) {
  // Tasks a thread from which on cutting them no longer balances better than it costs.
  constexpr int kEnough = 8;
  Plan plan;
  plan.heads_per_kv = call.params.q_heads / call.read.kv_heads;
  plan.shares = shares;
  int tasks = 0;
  for_each_task(call.read, plan.heads_per_kv,
                [&](const Task&, const BlockWalk&, std::int64_t before, std::int64_t cost) {
                  plan.total = before + cost;
                  tasks++;
                  return true;
                });
  plan.cuts_tasks = shares > 1 && tasks < kEnough * shares;
  plan.state_floats = call.state_shape().floats();
  if (!plan.cuts_tasks) return plan;
  for_each_task(call.read, plan.heads_per_kv,
                [&](const Task& task, const BlockWalk& walk, std::int64_t before, std::int64_t cost) {
                  const Cut cut = cut_of(plan, task, walk, before, cost);
                  if (cut.is_cut()) plan.segments += sz(cut.segments);
                  return true;
                });
  return plan;
}

}  // namespace

Status attend_with(const Kernels& kernels, const KvRead& read, std::span<const float> q,
                   const AttentionParams& params, std::span<float> out, ThreadPool* pool) {
  const auto no_memory = [] {
    return Status(StatusCode::kResourceExhausted, "attention: no memory for the working buffers");
  };
  const Call call(kernels, read, q, params, out);
  Plan plan = make_plan(call, pool == nullptr ? 1 : pool->threads());
  if (plan.total == 0) return {};
  if (plan.segments > 0) {
    thread_local Buffer states;
    plan.states = reinterpret_cast<float*>(states.grow(plan.segments * plan.state_floats * sizeof(float)));
    if (plan.states == nullptr) return no_memory();
  }
  std::atomic<bool> ok = true;
  const auto body = [&](std::size_t share, int) {
    if (!run_share(call, plan, static_cast<int>(share))) ok.store(false, std::memory_order_relaxed);
  };
  if (pool == nullptr) {
    body(0, 0);
  } else {
    pool->parallel_for(sz(plan.shares), body);
  }
  if (!ok.load(std::memory_order_relaxed)) return no_memory();
  return plan.segments == 0 || join_tasks(call, plan) ? Status{} : no_memory();
}

}  // namespace windrow::internal
