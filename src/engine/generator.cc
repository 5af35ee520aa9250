// Generation: one request of a scheduler, in a row that the generator keeps between calls.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "windrow/engine.h"
#include "windrow/scheduler.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

}  // namespace

const char* finish_reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kDeadline: return "deadline";
    case FinishReason::kFailed: return "failed";
  }
  return "unknown";
}

struct Generator::Impl {
  Model model;
  StatePlan plan;
  StateStore store;
  Runner runner;
  Row row;
  std::vector<std::int32_t> row_ids = {};  // the tokens at the row's positions

  class Watch;
  Status check(std::span<const std::int32_t> prompt, const GenerateOptions& options) const;
  void drop_row();
  Status open_row(std::span<const std::int32_t> prompt, bool reuse, Generation& g);
  Result<Generation> run(std::span<const std::int32_t> prompt, const GenerateOptions& options);
};

Generator::Generator(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;
Generator::~Generator() = default;

Result<Generator> Generator::create(const Model& model, const KvChoice& kv, const Limits& limits,
                                    ThreadPool& pool) try {
  if (limits.rows != 1) return invalid(fmt::format("generator: limits.rows is {}, must be 1", limits.rows));
  Result<StatePlan> plan = model.plan(kv, limits);
  if (!plan.ok()) return plan.status();
  Result<Runner> runner = Runner::create(model, *plan, pool);
  if (!runner.ok()) return runner.status();
  Result<StateStore> store = StateStore::create(*plan);
  if (!store.ok()) return store.status();
  return Generator(
      std::make_unique<Impl>(Impl{model, std::move(*plan), std::move(*store), std::move(*runner), Row()}));
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("generator: {}", e.what()));
}

Status Generator::Impl::check(std::span<const std::int32_t> prompt, const GenerateOptions& o) const {
  if (prompt.empty()) return invalid("generate: the prompt has no tokens");
  if (o.max_tokens < 0)
    return invalid(fmt::format("generate: max_tokens is {}, must be at least 0", o.max_tokens));
  if (o.prefill_chunk < 1) {
    return invalid(fmt::format("generate: prefill_chunk is {}, must be at least 1", o.prefill_chunk));
  }
  const std::size_t most = static_cast<std::size_t>(plan.limits().tokens);
  const std::size_t fed_back = static_cast<std::size_t>(std::max(o.max_tokens, 1) - 1);
  if (prompt.size() > most || fed_back > most - prompt.size()) {
    return invalid(
        fmt::format("generate: a prompt of {} tokens and {} new ones need {} positions, the state has {}",
                    prompt.size(), o.max_tokens, prompt.size() + fed_back, most));
  }
  return {};
}

void Generator::Impl::drop_row() {
  row = Row();
  row_ids.clear();
}

// Makes `row` hold a beginning of the prompt, at least one token less than all: the last one's logits are
// wanted.
Status Generator::Impl::open_row(std::span<const std::int32_t> prompt, bool reuse, Generation& g) {
  if (reuse && row.valid()) {
    const auto end = std::mismatch(prompt.begin(), prompt.end() - 1, row_ids.begin(), row_ids.end()).first;
    const int common = static_cast<int>(end - prompt.begin());
    const Status cut = common < row.length() ? row.truncate(common) : Status();
    if (cut.ok()) {
      row_ids.resize(static_cast<std::size_t>(common));
      g.reused = common;
      return {};
    }
    g.lost = common;
    if (common > 0) g.lost_because = cut.message();
  }
  drop_row();  // its pages come back before new ones are taken
  Result<Row> fresh = store.new_row();
  if (!fresh.ok()) return fresh.status();
  row = std::move(*fresh);
  return {};
}

// What a run tells its caller on the way, and when its parts ended.
class Generator::Impl::Watch {
 public:
  Watch(const GenerateOptions& options, std::size_t prompt, Generation& g)
      : options_(options), prompt_(static_cast<int>(prompt)), g_(g) {}

  bool prefilled() const { return prefilled_; }
  bool refused() const { return refused_; }

  void prefill(int done) {
    if (prefilled_) return;
    prefilled_ = done == prompt_;
    if (prefilled_) g_.prefill_s = lap();
    if (options_.on_prefill) options_.on_prefill(done, prompt_);
  }
  // False ends the text. The first token comes before the event of the step that ran the prompt's last.
  bool token(std::int32_t id) {
    prefill(prompt_);
    g_.ids.push_back(id);
    refused_ = options_.on_token && !options_.on_token(id);
    return !refused_;
  }
  // Seconds since the last call, or the beginning.
  double lap() {
    const auto before = std::exchange(start_, Clock::now());
    return std::chrono::duration<double>(start_ - before).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  const GenerateOptions& options_;
  int prompt_;
  Generation& g_;
  bool prefilled_ = false, refused_ = false;
  Clock::time_point start_ = Clock::now();
};

// A scheduler with one request.
Result<Generation> Generator::Impl::run(std::span<const std::int32_t> prompt, const GenerateOptions& o) {
  if (Status s = check(prompt, o); !s.ok()) return s;
  RunnerModel step_model(runner, model.info());
  SchedulerOptions options{.draft_tokens = o.draft_tokens, .drafter = o.drafter};
  const int verified = o.drafter != nullptr ? o.draft_tokens + 1 : 1;
  options.step_tokens = std::min(std::max(o.prefill_chunk, verified), plan.limits().step_tokens);
  Result<Scheduler> scheduler = Scheduler::create(step_model, store, std::move(options));
  if (!scheduler.ok()) return scheduler.status();
  Generation g;
  if (Status s = open_row(prompt, o.reuse, g); !s.ok()) return s;

  Watch watch(o, prompt.size(), g);
  Request request{.prompt = {prompt.begin(), prompt.end()},
                  .max_tokens = o.max_tokens,
                  .sampling = o.sampling,
                  .stop_ids = o.stop_ids};
  request.stop = [&](std::span<const std::int32_t> ids) { return !watch.token(ids.back()); };
  request.keep_row = true;
  const Result<RequestId> id = scheduler->submit(std::move(request), std::move(row));
  if (!id.ok()) return id.status();
  std::vector<Event> events;
  std::int64_t prefill_steps = 0;
  while (!scheduler->idle()) {
    if (o.cancel != nullptr && o.cancel->load(std::memory_order_relaxed)) scheduler->cancel(*id);
    events.clear();
    if (Status s = scheduler->step(events); !s.ok()) return s;
    for (const Event& e : events) {
      if (e.kind == Event::Kind::kPrefill) {
        watch.prefill(e.done);
        prefill_steps = scheduler->stats().steps;
      } else if (e.kind == Event::Kind::kFinished) {
        if (e.reason == FinishReason::kFailed) return e.status;
        g.finish_reason = watch.refused() ? FinishReason::kCancelled : e.reason;
      }
    }
  }
  (watch.prefilled() ? g.decode_s : g.prefill_s) = watch.lap();
  g.decode_steps = static_cast<int>(scheduler->stats().steps - prefill_steps);
  g.drafts = scheduler->stats().drafts;
  Result<Row> kept = scheduler->take_row(*id);
  if (!kept.ok()) return kept.status();
  row = std::move(*kept);
  g.length = row.length();
  row_ids.assign(prompt.begin(), prompt.end());
  row_ids.insert(row_ids.end(), g.ids.begin(), g.ids.end());
  row_ids.resize(static_cast<std::size_t>(g.length));
  return g;
}

Result<Generation> Generator::generate(std::span<const std::int32_t> prompt,
                                       const GenerateOptions& options) try {
  Result<Generation> g = impl_->run(prompt, options);
  if (!g.ok()) impl_->drop_row();
  return g;
} catch (const std::exception& e) {
  impl_->drop_row();
  return Status(StatusCode::kResourceExhausted, fmt::format("generate: {}", e.what()));
}

const StatePlan& Generator::plan() const noexcept { return impl_->plan; }
const Row& Generator::row() const noexcept { return impl_->row; }
std::span<const std::int32_t> Generator::row_ids() const noexcept { return impl_->row_ids; }
StateStore& Generator::store() noexcept { return impl_->store; }

Status Generator::set_row(Row row, std::span<const std::int32_t> ids) try {
  const std::size_t length = row.valid() ? static_cast<std::size_t>(row.length()) : 0;
  if (ids.size() != length)
    return invalid(fmt::format("generator: {} tokens for a row of {} positions", ids.size(), length));
  std::vector<std::int32_t> own(ids.begin(), ids.end());
  impl_->row = std::move(row);
  impl_->row_ids = std::move(own);
  return {};
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("generator: {}", e.what()));
}

PoolUse Generator::pool_use(int group) const noexcept { return impl_->store.pool_use(group); }
void Generator::set_profile(ForwardProfile* profile) noexcept { impl_->runner.set_profile(profile); }

}  // namespace windrow
