// Who has a row: submission, admission, setting aside, ends.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "base/checked.h"
#include "base/clock.h"
#include "engine/scheduler_impl.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

Status check(const Request& r, int vocab_size) {
  if (r.prompt.empty()) return invalid("request: the prompt has no tokens");
  if (r.max_tokens < 0)
    return invalid(fmt::format("request: max_tokens is {}, must be at least 0", r.max_tokens));
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
  if (!options.cost_clock) options.cost_clock = options.clock ? options.clock : thread_seconds;
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

// What is wrong with a row that a request is to begin in.
Status Scheduler::Impl::check_row(const Request& r, Row& row) const {
  if (!row.valid()) return invalid("request: its row is none");
  if (static_cast<std::size_t>(row.length()) >= r.prompt.size()) {
    return invalid(
        fmt::format("request: its row holds {} positions and its prompt has {} tokens, one more is needed",
                    row.length(), r.prompt.size()));
  }
  const StepRow standing_by{.row = &row};
  Result<StepPreview> preview = store.peek({&standing_by, 1});
  return preview.ok() ? preview->status : preview.status();
}

Result<RequestId> Scheduler::Impl::submit(Request request, Row* row) {
  if (Status status = check(request, model.vocab_size()); !status.ok()) return status;
  if (row != nullptr) {
    if (Status status = check_row(request, *row); !status.ok()) return status;
  }
  const Limits& limits = store.plan().limits();
  // The last token is not fed back.
  const std::int64_t length =
      static_cast<std::int64_t>(request.prompt.size()) + std::max(request.max_tokens, 1) - 1;
  const std::int64_t page = store.plan().page_tokens();
  const std::int64_t whole = std::min((length + page - 1) / page * page, capacity());
  if (length > limits.tokens || length > capacity()) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("request: a prompt of {} tokens and {} new ones need {} positions; a row may have {}, "
                    "all rows together {}",
                    request.prompt.size(), request.max_tokens, length, limits.tokens, capacity()));
  }
  const double deadline = request.deadline.value_or(std::numeric_limits<double>::infinity());
  Result<Sequence> sequence = Sequence::create(std::move(request));
  if (!sequence.ok()) return sequence.status();
  auto entry = std::make_unique<Entry>(Entry{.id = next_id,
                                             .sequence = std::move(*sequence),
                                             .positions = whole,
                                             .waiting_since = now(),
                                             .deadline = deadline});
  Entry* e = entry.get();
  // A row that can't run now gives its place to those that wait before it.
  const bool runs = row != nullptr && waiting.empty() && positions + e->positions <= capacity();
  if (row != nullptr) {
    e->sequence.add_fed(static_cast<std::size_t>(row->length()));
    if (!runs) {
      Result<RowRecords> records = row->extract_retained();
      if (!records.ok()) return records.status();
      e->records = std::move(*records);
    }
  }
  early.reserve(early.size() + 1);
  running.reserve(running.size() + 1);
  waiting.reserve(waiting.size() + 1);
  entries.emplace(next_id, std::move(entry));
  // From here on nothing fails.
  if (row != nullptr) e->row = std::move(*row);
  if (runs) {
    start(e, e->sequence.request().priority, early);
  } else {
    e->row = Row();
    waiting.push_back(e);
  }
  return next_id++;
}

Result<RequestId> Scheduler::submit(Request request) try {
  return impl_->submit(std::move(request), nullptr);
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("request: {}", e.what()));
}

Result<RequestId> Scheduler::submit(Request request, Row&& row) try {
  return impl_->submit(std::move(request), &row);
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("request: {}", e.what()));
}

Result<Row> Scheduler::take_row(RequestId id) {
  const auto found = impl_->kept.find(id);
  if (found == impl_->kept.end())
    return Status(StatusCode::kFailedPrecondition, fmt::format("request {}: no row is kept of it", id));
  Impl::Kept& k = found->second;
  if (k.records) {
    Result<Row> row = impl_->store.adopt(*k.records);
    if (!row.ok()) return row.status();
    k.row = std::move(*row);
  }
  Row row = std::move(k.row);
  impl_->positions -= k.positions;
  impl_->kept.erase(found);
  return row;
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
  const bool ran = e->row.valid();
  if (e->sequence.request().keep_row && reason != FinishReason::kFailed && (ran || e->records)) {
    kept.emplace(e->id, Kept{std::move(e->row), std::move(e->records), ran ? e->positions : 0});
  } else if (ran) {
    positions -= e->positions;
  }
  std::erase(ran ? running : waiting, e);
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
  return store.live_rows() < store.plan().limits().rows && positions + e.positions <= capacity();
}

// Takes a row's state out of the store. False, with the row as it was, without memory for it.
bool Scheduler::Impl::set_aside(Entry* e, std::vector<Event>& events) {
  Result<RowRecords> records = e->sequence.request().keep_row ? e->row.extract_retained() : e->row.extract();
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
  const int live = store.live_rows(), rows = store.plan().limits().rows;
  const auto enough = [&] {
    return live - static_cast<int>(count) < rows && positions - freed + e.positions <= capacity();
  };
  while (!enough() && count < less.size()) freed += less[count++]->positions;
  if (!enough()) return false;
  for (std::size_t i = 0; i < count; i++) {
    if (!set_aside(less[i], events)) return false;
  }
  return true;
}

Status Scheduler::Impl::open(Entry* e, double rank_now, std::vector<Event>& events) {
  Result<Row> row = e->records ? store.adopt(*e->records) : store.new_row();
  if (!row.ok()) return row.status();
  running.reserve(running.size() + 1);
  e->row = std::move(*row);
  e->records.reset();
  std::erase(waiting, e);
  start(e, rank_now, events);
  return {};
}

// It has its row. `running` has room for one more.
void Scheduler::Impl::start(Entry* e, double rank_now, std::vector<Event>& events) {
  const Event::Kind kind = e->admitted ? Event::Kind::kResumed : Event::Kind::kAdmitted;
  e->admitted = true;
  e->admitted_rank = rank_now;
  running.push_back(e);
  positions += e->positions;
  events.push_back({.kind = kind, .request = e->id});
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
  events.insert(events.end(), s.early.begin(), s.early.end());
  s.early.clear();
  s.end_expired(s.now(), events);
  if (Status status = s.admit(events); !status.ok()) return status;
  std::vector<Impl::Part> parts = s.choose_parts();
  if (parts.empty()) return {};
  return s.run(parts, events);
} catch (const std::exception& e) {
  return {StatusCode::kResourceExhausted, fmt::format("scheduler: {}", e.what())};
}

}  // namespace windrow
