// The generation loop: prefill in chunks, then one token a step.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>

#include "engine/sequence.h"
#include "windrow/engine.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

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
  std::vector<float> logits = {};

  Status check(std::span<const std::int32_t> prompt, const GenerateOptions& options) const;
  Status step(std::span<const std::int32_t> ids, bool want_last);
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
  std::vector<float> logits(static_cast<std::size_t>(model.info().vocab_size));
  return Generator(std::make_unique<Impl>(
      Impl{model, std::move(*plan), std::move(*store), std::move(*runner), Row(), {}, std::move(logits)}));
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

// Feeds ids to the row; `logits` are those of the last one if wanted.
Status Generator::Impl::step(std::span<const std::int32_t> ids, bool want_last) {
  Row* const rows[] = {&row};
  const int lengths[] = {static_cast<int>(ids.size())};
  Result<Step> step = store.begin(rows, lengths);
  if (!step.ok()) return step.status();
  const std::int32_t last[] = {lengths[0] - 1};
  const std::size_t wanted = want_last ? 1 : 0;
  if (Status s = runner.forward(*step, ids, {last, wanted}, {logits.data(), wanted * logits.size()});
      !s.ok()) {
    return s;
  }
  row_ids.reserve(row_ids.size() + ids.size());  // nothing may fail behind resolve
  if (Status s = step->resolve(); !s.ok()) return s;
  row_ids.insert(row_ids.end(), ids.begin(), ids.end());
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

Result<Generation> Generator::Impl::run(std::span<const std::int32_t> prompt, const GenerateOptions& o) {
  if (Status s = check(prompt, o); !s.ok()) return s;
  Result<Sequence> sequence = Sequence::create({.prompt = {prompt.begin(), prompt.end()},
                                                .max_tokens = o.max_tokens,
                                                .sampling = o.sampling,
                                                .stop_ids = o.stop_ids});
  if (!sequence.ok()) return sequence.status();
  Generation g;
  if (Status s = open_row(prompt, o.reuse, g); !s.ok()) return s;

  const auto cancelled = [&] { return o.cancel != nullptr && o.cancel->load(std::memory_order_relaxed); };
  const auto start = std::chrono::steady_clock::now();
  const std::size_t chunk = static_cast<std::size_t>(std::min(o.prefill_chunk, plan.limits().step_tokens));
  std::size_t done = static_cast<std::size_t>(g.reused);
  while (done < prompt.size() && !cancelled()) {
    const std::size_t n = std::min(chunk, prompt.size() - done);
    const bool last = done + n == prompt.size() && o.max_tokens > 0;
    if (Status s = step(prompt.subspan(done, n), last); !s.ok()) return s;
    done += n;
    if (o.on_prefill) o.on_prefill(static_cast<int>(done), static_cast<int>(prompt.size()));
  }
  g.prefill_s = seconds_since(start);

  const auto decode_start = std::chrono::steady_clock::now();
  const auto decode = [&]() -> Status {
    for (int n = 0; n < o.max_tokens; n++) {
      if (cancelled() || done < prompt.size()) {
        g.finish_reason = FinishReason::kCancelled;
        return {};
      }
      if (n > 0) {
        if (Status s = step({&sequence->tokens().back(), 1}, true); !s.ok()) return s;
        g.decode_steps++;
      }
      const Result<std::int32_t> id = sequence->choose(logits);
      if (!id.ok()) return id.status();
      bool taken = false;
      const std::optional<FinishReason> ended = sequence->take(*id, taken);
      if (taken && o.on_token && !o.on_token(*id)) {
        g.finish_reason = FinishReason::kCancelled;
        return {};
      }
      if (ended) {
        g.finish_reason = *ended;
        return {};
      }
    }
    return {};
  };
  if (Status s = decode(); !s.ok()) return s;
  if (done < prompt.size()) g.finish_reason = FinishReason::kCancelled;
  g.decode_s = seconds_since(decode_start);
  g.ids.assign(sequence->new_tokens().begin(), sequence->new_tokens().end());
  g.length = row.length();
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
