// Continuous batching: many requests over one store, joining and leaving between steps.
//
//   Result<Scheduler> s = Scheduler::create(model, store, {.step_tokens = 256});
//   Result<RequestId> id = s->submit({.prompt = ids, .max_tokens = 100});
//   std::vector<Event> events;
//   while (!s->idle()) {
//     s->step(events);                      // one forward pass; what happened is appended
//     ...
//   }
//
// A request's tokens depend on its own prompt and options only: neither on its neighbours, nor on when it
// joined, was set aside or in which pieces its prompt was run (row determinism), nor on drafts.
//
// Admission goes by the plan. A request holds at most prompt + max_tokens - 1 positions; one that exceeds the
// plan alone is refused by submit, with the numbers; one that does not fit beside the others waits. Rows that
// were admitted always have room, so no step fails for want of pages.
//
// Order: higher priority first, then first come. A waiting request gains a priority for every `aging_s`
// seconds that it waits, and keeps it while it runs, so none waits for ever. Where a waiting request has a
// higher priority than a running one and no room, the running one of least priority (of equals the one that
// came last) is set aside: its state leaves the store as records and comes back bit for bit, nothing is
// computed again.
//
// Rows from outside and for outside: a request may begin in a row that holds the start of its prompt already
// (a restored session, a cached beginning), and its row may be kept for the caller when it ends. Rows that
// the caller has in the store count against the plan's rows; their pages are the caller's to plan for, with a
// Limits::total_tokens that leaves room for them (0 does).
//
// Thread safety: one call at a time. There are no threads in here; the model may have some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "windrow/engine.h"
#include "windrow/export.h"
#include "windrow/speculation.h"
#include "windrow/status.h"
#include "windrow/step_model.h"
#include "windrow/store.h"

namespace windrow {

using RequestId = std::uint64_t;  // from 1, in order of submission

struct Request {
  std::vector<std::int32_t> prompt = {};  // at least one id, each in the model's vocabulary
  int max_tokens = 256;                   // 0: the prompt is run and no token chosen
  SamplerOptions sampling = {};
  std::vector<std::int32_t> stop_ids = {};  // ends the text; the id itself is not part of the result
  // Asked after every token with all new ones so far; true ends the text (stop strings). Must not throw.
  std::function<bool(std::span<const std::int32_t> ids)> stop = {};
  int logprobs = -1;                    // of every token: its own and this many of the best; -1: none
  int priority = 0;                     // higher goes first
  std::optional<double> deadline = {};  // on the scheduler's clock; then what there is ends with kDeadline
  int draft_tokens = -1;                // most drafted a step, 0: none; -1: what the scheduler's options say
  bool keep_row = false;                // take_row() gets its row at the end, unless it fails
};

struct TokenLogprob {
  std::int32_t id = 0;
  float logprob = 0;  // natural, of the model's distribution before temperature and filters
};

struct Event {
  enum class Kind {
    kAdmitted,  // has a row now
    kPrefill,   // a part of its prompt was run: `done` of its tokens are in the row
    kToken,
    kSetAside,  // its state waits outside the store
    kResumed,
    kFinished,  // reason; `status` where it is kFailed. The last event of a request.
  };
  Kind kind = Kind::kToken;
  RequestId request = 0;
  std::int32_t token = 0;
  int done = 0;
  std::optional<float> logprob = {};    // where asked for
  std::vector<TokenLogprob> best = {};  // best first, the lower id of equals
  FinishReason reason = FinishReason::kStop;
  Status status = {};
};

struct SchedulerOptions {
  int step_tokens = 0;      // budget of one step, at most the plan's limit, which 0 means
  int prefill_chunk = 128;  // most prompt tokens of one request in a step beside others
  double aging_s = 30;      // 0: no aging
  // Seconds, never falling. Default: the steady clock.
  std::function<double()> clock = {};
  // Seconds by which steps and drafts are weighed against each other. Default: `clock` if given, else the
  // processor time of the calling thread, which other load does not stretch; a model that computes elsewhere
  // (a GPU) needs one of real time.
  std::function<double()> cost_clock = {};
  int draft_tokens = 8;        // most drafted tokens of a row and step, where there is a drafter
  Drafter* drafter = nullptr;  // must outlive the scheduler; null: no speculation
};

struct SchedulerStats {
  std::int64_t steps = 0;
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;  // emitted
  std::int64_t row_steps = 0;      // rows of all steps added up: / steps = mean occupancy
  std::int64_t set_aside = 0;
  DraftStats drafts = {};
};

class WINDROW_API Scheduler {
 public:
  // `model` and `store` must outlive it. Nobody else opens steps on its rows.
  static Result<Scheduler> create(StepModel& model, StateStore& store, SchedulerOptions options);
  Scheduler(Scheduler&&) noexcept;
  Scheduler& operator=(Scheduler&&) noexcept;
  ~Scheduler();

  // kInvalidArgument for a request that is wrong in itself; kResourceExhausted, with the numbers, for one
  // that can never fit.
  Result<RequestId> submit(Request request);
  // A request whose row holds the first row.length() tokens of its prompt already, at least one less than
  // all; they are not run again. The row is one of the store, and moved from only if the request is taken.
  // One that has to wait does so outside of the store, as if it had been set aside.
  Result<RequestId> submit(Request request, Row&& row);
  // Ends a request with kCancelled at the next step. False if it is unknown or has ended.
  bool cancel(RequestId id);
  // The row of a request with keep_row that has ended, which holds the prompt and the new tokens as far as
  // they were fed (the last new one was not). Until it is taken it counts as the request's.
  // kFailedPrecondition if there is none: the request is unknown, goes on, failed, or never had a row;
  // kResourceExhausted if it was set aside and there is no room for it now.
  Result<Row> take_row(RequestId id);

  // Admits, sets aside, resumes, runs one forward pass over what there is and appends what happened to
  // `events`. An error of the model itself ends every request of the step with kFailed and is returned; the
  // scheduler stays usable.
  Status step(std::vector<Event>& events);

  bool idle() const noexcept;    // no request waits or runs
  int running() const noexcept;  // requests with a row
  int waiting() const noexcept;  // those without, set-aside ones included
  const SchedulerStats& stats() const noexcept;

 private:
  struct Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace windrow
