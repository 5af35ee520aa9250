// The quality meter: a reference and its trials go over a text side by side.
#include "windrow/quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "engine/divergence.h"
#include "engine/lane.h"
#include "engine/shadow.h"
#include "engine/text_windows.h"

namespace windrow {
namespace {

// Logits of one chunk, of one model; their probabilities take twice as much.
constexpr std::size_t kMaxLogitsBytes = std::size_t{32} << 20;

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

Status broken(std::string_view whose, std::size_t token, std::size_t id) {
  return Status(
      StatusCode::kCorrupt,
      fmt::format("the logits of {} are not finite at scored token {}, id {} (the model's weights hold "
                  "NaN or infinities, or its numbers exceed f32)",
                  whose, token, id));
}

// A trial on its way over the text.
struct Trial {
  std::size_t index = 0;     // in the caller's list
  std::optional<Lane> lane;  // none: it is the reference itself
  std::unique_ptr<Shadow> shadow;
  DivergenceSum sum;
};

class Meter {
 public:
  Meter(const Model& reference, const QualityText& text, std::span<const KvTrial> trials,
        const QualityOptions& options, ThreadPool& pool)
      : model_(reference), text_(text), wanted_(trials), options_(options), pool_(pool) {}

  Result<QualityReport> run() {
    if (Status s = check(); !s.ok()) return s;
    windows_ = cut_windows(text_, static_cast<std::size_t>(options_.context), options_.tokens);
    if (windows_.empty()) return invalid("quality: the text has no token to score");
    if (Status s = prepare(); !s.ok()) return s;
    report_.windows = windows_.size();
    report_.trials.resize(wanted_.size());
    for (std::size_t next = 0, pass = 0; pass == 0 || next < wanted_.size(); pass++) {
      if (Status s = take_trials(&next); !s.ok()) return s;
      if (Status s = run_pass(); !s.ok()) return s;
    }
    return std::move(report_);
  }

 private:
  Status check() const;
  Status prepare();
  Status take_trials(std::size_t* next);
  Status run_pass();
  Status run_chunk(const TextWindow& w, std::size_t begin, std::size_t end);
  Status run_reference(std::span<const std::int32_t> ids, std::span<const std::int32_t> wanted,
                       std::span<const std::int32_t> targets);

  const Model& model_of(const KvTrial& t) const { return t.model != nullptr ? *t.model : model_; }
  // What is stored as the reference's need not be run again: a step's logits are reproducible to the bit.
  bool is_reference(std::size_t trial) const {
    return wanted_[trial].model == nullptr && plans_[trial].signature() == reference_->plan.signature();
  }
  // Of its states; a shadow holds them once more.
  std::size_t state_bytes(std::size_t trial) const {
    return plans_[trial].bytes() * ((is_reference(trial) ? 0 : 1) + (wanted_[trial].attention ? 1 : 0));
  }
  // The trials of the pass that starts with trial `first`: up to the returned one.
  std::size_t pass_end(std::size_t first) const {
    std::size_t end = first, bytes = 0;
    for (; end < wanted_.size(); end++) {
      bytes += state_bytes(end);
      if (end > first && bytes > options_.state_bytes) break;
    }
    return end;
  }

  Status broken_at(const std::string& whose, std::size_t index) const {
    const std::size_t vocab = reference_logits_->vocab();
    return broken(whose, scored_ + index / vocab, index % vocab);
  }
  void advance(std::size_t positions) {
    done_ += positions;
    if (options_.progress) options_.progress(done_, total_);
  }

  const Model& model_;
  const QualityText& text_;
  std::span<const KvTrial> wanted_;
  const QualityOptions& options_;
  ThreadPool& pool_;

  std::vector<TextWindow> windows_;
  std::vector<StatePlan> plans_;  // of each trial
  std::size_t chunk_ = 0;
  std::optional<Lane> reference_;
  std::optional<ReferenceLogits> reference_logits_;
  std::vector<Trial> trials_;  // of this pass
  std::vector<float> logits_;  // of the trial that runs
  DivergenceSum reference_sum_;
  std::size_t scored_ = 0;  // in this pass
  std::size_t done_ = 0, total_ = 0;
  QualityReport report_;
};

Status Meter::check() const {
  const ModelInfo& info = model_.info();
  if (options_.context < 1 || options_.context > info.max_positions) {
    return invalid(fmt::format("quality: context is {}, the model was made for 1 to {}", options_.context,
                               info.max_positions));
  }
  if (text_.start.size() >= static_cast<std::size_t>(options_.context)) {
    return invalid(fmt::format("quality: a context of {} has no room behind the {} tokens at its start",
                               options_.context, text_.start.size()));
  }
  if (options_.step_tokens < 1) {
    return invalid(fmt::format("quality: step_tokens is {}, must be at least 1", options_.step_tokens));
  }
  for (const std::vector<std::int32_t>* ids : {&text_.start, &text_.ids}) {
    for (std::size_t i = 0; i < ids->size(); i++) {
      if ((*ids)[i] >= 0 && (*ids)[i] < info.vocab_size) continue;
      return invalid(fmt::format("quality: token {} of the {} has id {}, allowed are 0 to {}", i,
                                 ids == &text_.ids ? "text" : "start", (*ids)[i], info.vocab_size - 1));
    }
  }
  for (const KvTrial& t : wanted_) {
    const ModelInfo& other = model_of(t).info();
    if (other.layers == info.layers && other.vocab_size == info.vocab_size) continue;
    return invalid("quality: a trial's model has other layers or another vocabulary than the reference");
  }
  return {};
}

Status Meter::prepare() {
  const std::size_t vocab = static_cast<std::size_t>(model_.info().vocab_size);
  std::size_t longest = 0, positions = 0;
  for (const TextWindow& w : windows_) {
    longest = std::max(longest, w.inputs.size());
    positions += w.inputs.size();
  }
  const std::size_t most = std::max<std::size_t>(1, kMaxLogitsBytes / (vocab * sizeof(float)));
  chunk_ = std::min({static_cast<std::size_t>(options_.step_tokens), longest, most});
  const Limits limits{
      .rows = 1, .tokens = static_cast<int>(longest), .step_tokens = static_cast<int>(chunk_)};
  reference_logits_.emplace(chunk_, vocab);
  logits_.resize(wanted_.empty() ? 0 : chunk_ * vocab);

  Result<StatePlan> plan = model_.plan(KvChoice(Codec::f32()), limits);
  if (!plan.ok()) return plan.status();
  Result<Lane> reference = Lane::create(model_, std::move(*plan));
  if (!reference.ok()) return reference.status();
  reference_.emplace(std::move(*reference));
  for (const KvTrial& t : wanted_) {
    Result<StatePlan> trial_plan = model_of(t).plan(t.kv, limits);
    if (!trial_plan.ok()) return trial_plan.status();
    plans_.push_back(std::move(*trial_plan));
  }
  std::size_t lanes = 0;
  for (std::size_t i = 0; i < wanted_.size(); i++) lanes += is_reference(i) ? 0 : 1;
  for (std::size_t i = 0, pass = 0; pass == 0 || i < wanted_.size(); pass++, i = pass_end(i)) lanes++;
  total_ = positions * lanes;
  return {};
}

// Opens the states of the next trials, as many as may stand side by side.
Status Meter::take_trials(std::size_t* next) {
  trials_.clear();
  for (const std::size_t end = pass_end(*next); *next < end; ++*next) {
    const KvTrial& wanted = wanted_[*next];
    Trial trial;
    trial.index = *next;
    if (!is_reference(*next)) {
      Result<Lane> lane = Lane::create(model_of(wanted), plans_[*next]);
      if (!lane.ok()) return lane.status();
      trial.lane.emplace(std::move(*lane));
    }
    if (wanted.attention) {
      Result<std::unique_ptr<Shadow>> shadow =
          Shadow::create(plans_[*next], model_.info().layers.size(), pool_);
      if (!shadow.ok()) return shadow.status();
      trial.shadow = std::move(*shadow);
    }
    trials_.push_back(std::move(trial));
  }
  return {};
}

// All of the text, with the trials that are open.
Status Meter::run_pass() {
  scored_ = 0;
  reference_sum_ = DivergenceSum();
  for (const TextWindow& w : windows_) {
    if (Status s = reference_->restart(); !s.ok()) return s;
    for (Trial& t : trials_) {
      if (Status s = t.lane ? t.lane->restart() : Status(); !s.ok()) return s;
      if (Status s = t.shadow ? t.shadow->restart() : Status(); !s.ok()) return s;
    }
    for (std::size_t begin = 0; begin < w.inputs.size(); begin += chunk_) {
      if (Status s = run_chunk(w, begin, std::min(begin + chunk_, w.inputs.size())); !s.ok()) return s;
    }
  }
  for (const Trial& t : trials_) {
    report_.trials[t.index] = {t.sum.result(), t.shadow ? t.shadow->errors() : std::vector<double>()};
  }
  report_.reference = reference_sum_.result();
  report_.tokens = scored_;
  return {};
}

// Positions [begin, end) of a window, in all lanes.
Status Meter::run_chunk(const TextWindow& w, std::size_t begin, std::size_t end) {
  const std::span<const std::int32_t> ids = std::span(w.inputs).subspan(begin, end - begin);
  const std::size_t first = std::max(begin, w.first), count = end > first ? end - first : 0;
  const std::span<const std::int32_t> targets = std::span(w.targets).subspan(first - w.first, count);
  std::vector<std::int32_t> wanted(count);
  for (std::size_t i = 0; i < count; i++) wanted[i] = static_cast<std::int32_t>(first - begin + i);

  if (Status s = run_reference(ids, wanted, targets); !s.ok()) return s;
  for (Trial& t : trials_) {
    if (!t.lane) {
      t.sum.add_reference(*reference_logits_, targets);
      continue;
    }
    const std::span<float> logits = std::span(logits_).first(count * reference_logits_->vocab());
    if (Status s = t.lane->forward(ids, wanted, logits, pool_); !s.ok()) return s;
    std::size_t bad = 0;
    if (!t.sum.add(*reference_logits_, logits, targets, pool_, &bad)) {
      return broken_at(fmt::format("trial {}", t.index), bad);
    }
    advance(ids.size());
  }
  scored_ += count;
  return {};
}

Status Meter::run_reference(std::span<const std::int32_t> ids, std::span<const std::int32_t> wanted,
                            std::span<const std::int32_t> targets) {
  std::vector<Shadow*> shadows;
  for (Trial& t : trials_) {
    if (t.shadow) shadows.push_back(t.shadow.get());
  }
  for (Shadow* shadow : shadows) {
    if (Status s = shadow->begin(ids.size()); !s.ok()) return s;
  }
  const auto observer = [&](const AttentionTrace& trace) -> Status {
    for (Shadow* shadow : shadows) {
      if (Status s = shadow->observe(trace); !s.ok()) return s;
    }
    return {};
  };
  const std::span<float> logits = reference_logits_->logits(wanted.size());
  if (Status s = reference_->forward(ids, wanted, logits, pool_, observer); !s.ok()) return s;
  for (Shadow* shadow : shadows) {
    if (Status s = shadow->resolve(); !s.ok()) return s;
  }
  std::size_t bad = 0;
  if (!reference_logits_->softmax(wanted.size(), pool_, &bad)) return broken_at("the reference", bad);
  reference_sum_.add_reference(*reference_logits_, targets);
  advance(ids.size());
  return {};
}

}  // namespace

Result<QualityReport> measure_quality(const Model& reference, const QualityText& text,
                                      std::span<const KvTrial> trials, const QualityOptions& options,
                                      ThreadPool& pool) try {
  return Meter(reference, text, trials, options, pool).run();
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("quality: {}", e.what()));
}

std::vector<std::vector<int>> kv_units(std::span<const LayerShape> layers, bool per_layer) {
  std::vector<std::vector<int>> units;
  for (std::size_t i = 0; i < layers.size(); i++) {
    if (layers[i].recurrent || layers[i].donor >= 0) continue;
    const auto same = std::find_if(units.begin(), units.end(), [&](const std::vector<int>& unit) {
      return !per_layer && layers[static_cast<std::size_t>(unit[0])] == layers[i];
    });
    (same == units.end() ? units.emplace_back() : *same).push_back(static_cast<int>(i));
  }
  return units;
}

KvChoice with_codecs(KvChoice base, std::span<const int> unit, const KvCodecs& codecs) {
  for (const int layer : unit) base.layers[layer] = codecs;
  return base;
}

Result<std::size_t> kv_row_bytes(const ModelInfo& info, const KvChoice& kv, int tokens) {
  const Result<StatePlan> plan = plan_state(info, kv, {.rows = 1, .tokens = tokens, .step_tokens = 1});
  if (!plan.ok()) return plan.status();
  return plan->projected_bytes(tokens);
}

}  // namespace windrow
