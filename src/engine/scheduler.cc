// Who has a row: submission, admission, setting aside, ends.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>

#include "base/checked.h"
#include "engine/scheduler_impl.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Status check(const Request& r, int vocab_size) {
  if (r.prompt.empty()) return invalid("request: the prompt has no tokens");
  if (r.max_tokens < 1)
    return invalid(fmt::format("request: max_tokens is {}, must be at least 1", r.max_tokens));
  for (std::size_t i = 0; i < r.prompt.size(); i++) {
    if (r.prompt[i] >= 0 && r.prompt[i] < vocab_size) continue;
    return invalid(fmt::format("request: prompt token {} has id {}, allowed are 0 to {}", i, r.prompt[i],
                               vocab_size - 1));
  }
  if (r.deadline && std::isnan(*r.deadline)) return invalid("request: the deadline is no number");
  return {};
}

}  // namespace

Scheduler::Scheduler(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Scheduler::Scheduler(Scheduler&&) noexcept = default;
Scheduler& Scheduler::operator=(Scheduler&&) noexcept = default;
Scheduler::~Scheduler() = default;

Result<Scheduler> Scheduler::create(StepModel& model, StateStore& store, SchedulerOptions options) try {
  const int most = store.plan().limits().step_tokens;
  if (options.step_tokens == 0) options.step_tokens = most;
  if (options.step_tokens < 1 || options.step_tokens > most) {
    return invalid(
        fmt::format("scheduler: step_tokens {}, the plan allows 1 to {}", options.step_tokens, most));
  }
  if (options.prefill_chunk < 1) {
    return invalid(fmt::format("scheduler: prefill_chunk {}, must be at least 1", options.prefill_chunk));
  }
  if (!(options.aging_s >= 0)) return invalid(fmt::format("scheduler: aging_s {}", options.aging_s));
  if (options.draft_tokens < 0)
    return invalid(fmt::format("scheduler: draft_tokens {}", options.draft_tokens));
  if (!options.clock) options.clock = steady_seconds;
  return Scheduler(
      std::unique_ptr<Impl>(new Impl{.model = model, .store = store, .options = std::move(options)}));
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("scheduler: {}", e.what()));
}

std::int64_t Scheduler::Impl::capacity() const {
  const Limits& l = store.plan().limits();
  return l.total_tokens != 0 ? l.total_tokens : static_cast<std::int64_t>(l.rows) * l.tokens;
}

Result<RequestId> Scheduler::submit(Request request) try {
  Impl& s = *impl_;
  if (Status status = check(request, s.model.vocab_size()); !status.ok()) return status;
  const Limits& limits = s.store.plan().limits();
  // The last token is not fed back.
  const std::int64_t length = static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens - 1;
  const std::int64_t page = s.store.plan().page_tokens();
  const std::int64_t positions = (length + page - 1) / page * page;
  if (length > limits.tokens || length > s.capacity()) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("request: a prompt of {} tokens and {} new ones need {} positions; a row may have {}, "
                    "all rows together {}",
                    request.prompt.size(), request.max_tokens, length, limits.tokens, s.capacity()));
  }
  const double deadline = request.deadline.value_or(std::numeric_limits<double>::infinity());
  Result<Sequence> sequence = Sequence::create(std::move(request));
  if (!sequence.ok()) return sequence.status();
  auto entry = std::make_unique<Impl::Entry>(Impl::Entry{.id = s.next_id,
                                                         .sequence = std::move(*sequence),
                                                         .positions = std::min(positions, s.capacity()),
                                                         .waiting_since = s.now(),
                                                         .deadline = deadline});
  s.waiting.push_back(entry.get());
  s.entries.emplace(s.next_id, std::move(entry));
  return s.next_id++;
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("request: {}", e.what()));
}

bool Scheduler::cancel(RequestId id) {
  const auto found = impl_->entries.find(id);
  if (found == impl_->entries.end()) return false;
  found->second->cancelled = true;
  return true;
}

bool Scheduler::idle() const noexcept { return impl_->entries.empty(); }
int Scheduler::running() const noexcept { return static_cast<int>(impl_->running.size()); }
int Scheduler::waiting() const noexcept { return static_cast<int>(impl_->waiting.size()); }
const SchedulerStats& Scheduler::stats() const noexcept { return impl_->stats; }

void Scheduler::Impl::finish(Entry* e, FinishReason reason, std::vector<Event>& events, Status status) {
  events.push_back(
      {.kind = Event::Kind::kFinished, .request = e->id, .reason = reason, .status = std::move(status)});
  if (e->row.valid()) {
    positions -= e->positions;
    std::erase(running, e);
  } else {
    std::erase(waiting, e);
  }
  if (options.drafter != nullptr) options.drafter->forget(e->id);
  entries.erase(e->id);
}

void Scheduler::Impl::end_expired(double time, std::vector<Event>& events) {
  std::vector<Entry*> ended;
  for (const auto& [id, entry] : entries) {
    if (entry->cancelled || entry->deadline <= time) ended.push_back(entry.get());
  }
  for (Entry* e : ended) {
    finish(e, e->cancelled ? FinishReason::kCancelled : FinishReason::kDeadline, events);
  }
}

double Scheduler::Impl::rank(const Entry& e, double time) const {
  const double aged = options.aging_s > 0 ? std::floor((time - e.waiting_since) / options.aging_s) : 0;
  return e.sequence.request().priority + aged;
}

bool Scheduler::Impl::fits(const Entry& e) const {
  return static_cast<int>(running.size()) < store.plan().limits().rows &&
         positions + e.positions <= capacity();
}

// Takes a row's state out of the store. False, with the row as it was, without memory for it.
bool Scheduler::Impl::set_aside(Entry* e, std::vector<Event>& events) {
  Result<RowRecords> records = e->row.extract();
  if (!records.ok()) return false;
  e->records = std::move(*records);
  e->row = Row();
  positions -= e->positions;
  std::erase(running, e);
  waiting.push_back(e);
  e->waiting_since = now();
  stats.set_aside++;
  events.push_back({.kind = Event::Kind::kSetAside, .request = e->id});
  return true;
}

// Sets running requests that came in with less than the priority of `e` aside until it fits; nothing is done
// unless that is enough. The age of `e` does not count here: two would set each other aside for ever.
bool Scheduler::Impl::make_room(const Entry& e, std::vector<Event>& events) {
  std::vector<Entry*> less;
  for (Entry* r : running) {
    if (r->admitted_rank < e.sequence.request().priority) less.push_back(r);
  }
  std::stable_sort(less.begin(), less.end(), [](const Entry* a, const Entry* b) {
    return a->admitted_rank != b->admitted_rank ? a->admitted_rank < b->admitted_rank : a->id > b->id;
  });
  std::size_t count = 0;
  std::int64_t freed = 0;
  const int rows = store.plan().limits().rows;
  const auto enough = [&] {
    return static_cast<int>(running.size() - count) < rows && positions - freed + e.positions <= capacity();
  };
  while (!enough() && count < less.size()) freed += less[count++]->positions;
  if (!enough()) return false;
  for (std::size_t i = 0; i < count; i++) {
    if (!set_aside(less[i], events)) return false;
  }
  return true;
}

Status Scheduler::Impl::open(Entry* e, double rank_now, std::vector<Event>& events) {
  const bool resumed = e->records.has_value();
  Result<Row> row = resumed ? store.adopt(*e->records) : store.new_row();
  if (!row.ok()) return row.status();
  running.reserve(running.size() + 1);
  e->row = std::move(*row);
  e->records.reset();
  e->admitted_rank = rank_now;
  std::erase(waiting, e);
  running.push_back(e);
  positions += e->positions;
  events.push_back({.kind = resumed ? Event::Kind::kResumed : Event::Kind::kAdmitted, .request = e->id});
  return {};
}

// The first in order goes first, also when a later one would fit beside it already: else a large request
// might wait for ever.
Status Scheduler::Impl::admit(std::vector<Event>& events) {
  while (!waiting.empty()) {
    const double time = now();
    Entry* first = *std::min_element(waiting.begin(), waiting.end(), [&](const Entry* a, const Entry* b) {
      const double x = rank(*a, time), y = rank(*b, time);
      return x != y ? x > y : a->id < b->id;
    });
    if (!fits(*first) && !make_room(*first, events)) return {};
    if (Status s = open(first, rank(*first, time), events); !s.ok()) {
      // Reads that outlive their steps may hold pages beyond the plan: wait for them.
      return s.code() == StatusCode::kResourceExhausted ? Status() : s;
    }
  }
  return {};
}

Status Scheduler::step(std::vector<Event>& events) try {
  Impl& s = *impl_;
  s.end_expired(s.now(), events);
  if (Status status = s.admit(events); !status.ok()) return status;
  std::vector<Impl::Part> parts = s.choose_parts();
  if (parts.empty()) return {};
  return s.run(parts, events);
} catch (const std::exception& e) {
  return {StatusCode::kResourceExhausted, fmt::format("scheduler: {}", e.what())};
}

}  // namespace windrow
