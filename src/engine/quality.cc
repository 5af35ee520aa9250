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
  std::optional<Lane> lane;  // none: it is the reference itself
  std::unique_ptr<Shadow> shadow;
  DivergenceSum sum;
  std::string name;  // for messages
};

class Meter {
 public:
  Meter(const Model& reference, const QualityText& text, std::span<const KvTrial> trials,
        const QualityOptions& options, ThreadPool& pool)
      : model_(reference), text_(text), trials_of_caller_(trials), options_(options), pool_(pool) {}

  Result<QualityReport> run() {
    if (Status s = check(); !s.ok()) return s;
    windows_ = cut_windows(text_, static_cast<std::size_t>(options_.context), options_.tokens);
    if (windows_.empty()) return invalid("quality: the text has no token to score");
    if (Status s = prepare(); !s.ok()) return s;
    for (const TextWindow& w : windows_) {
      if (Status s = run_window(w); !s.ok()) return s;
    }
    QualityReport report;
    report.tokens = scored_;
    report.windows = windows_.size();
    report.reference = reference_sum_.result();
    for (const Trial& t : trials_) {
      report.trials.push_back({t.sum.result(), t.shadow ? t.shadow->errors() : std::vector<double>()});
    }
    return report;
  }

 private:
  Status check() const {
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
    for (const KvTrial& t : trials_of_caller_) {
      if (t.model == nullptr) continue;
      const ModelInfo& other = t.model->info();
      if (other.layers == info.layers && other.vocab_size == info.vocab_size) continue;
      return invalid("quality: a trial's model has other layers or another vocabulary than the reference");
    }
    return {};
  }

  Status prepare() {
    const ModelInfo& info = model_.info();
    const std::size_t vocab = static_cast<std::size_t>(info.vocab_size);
    std::size_t longest = 0;
    for (const TextWindow& w : windows_) longest = std::max(longest, w.inputs.size());
    const std::size_t most = std::max<std::size_t>(1, kMaxLogitsBytes / (vocab * sizeof(float)));
    chunk_ = std::min({static_cast<std::size_t>(options_.step_tokens), longest, most});
    const Limits limits{
        .rows = 1, .tokens = static_cast<int>(longest), .step_tokens = static_cast<int>(chunk_)};

    Result<Lane> reference = Lane::create(model_, KvChoice(Codec::f32()), limits, pool_);
    if (!reference.ok()) return reference.status();
    reference_.emplace(std::move(*reference));
    for (std::size_t i = 0; i < trials_of_caller_.size(); i++) {
      if (Status s = add_trial(trials_of_caller_[i], i, limits); !s.ok()) return s;
    }
    reference_->runner.set_observer([this](const AttentionTrace& trace) -> Status {
      for (Trial& t : trials_) {
        if (!t.shadow) continue;
        if (Status s = t.shadow->observe(trace); !s.ok()) return s;
      }
      return {};
    });
    reference_logits_.emplace(chunk_, vocab);
    logits_.resize(trials_.empty() ? 0 : chunk_ * vocab);
    for (const TextWindow& w : windows_) total_ += w.inputs.size();
    total_ *= 1 + lanes_;
    return {};
  }

  Status add_trial(const KvTrial& wanted, std::size_t index, const Limits& limits) {
    Trial trial;
    trial.name = fmt::format("trial {}", index);
    Result<Lane> lane =
        Lane::create(wanted.model != nullptr ? *wanted.model : model_, wanted.kv, limits, pool_);
    if (!lane.ok()) return lane.status();
    if (wanted.attention) {
      Result<std::unique_ptr<Shadow>> shadow = Shadow::create(lane->plan, model_.info().layers.size(), pool_);
      if (!shadow.ok()) return shadow.status();
      trial.shadow = std::move(*shadow);
    }
    // What is stored as the reference's need not be run again: a step's logits are reproducible to the bit.
    const bool same = wanted.model == nullptr && lane->plan.signature() == reference_->plan.signature();
    if (!same) {
      trial.lane.emplace(std::move(*lane));
      lanes_++;
    }
    trials_.push_back(std::move(trial));
    return {};
  }

  Status run_window(const TextWindow& w) {
    if (Status s = reference_->restart(); !s.ok()) return s;
    for (Trial& t : trials_) {
      if (t.lane) {
        if (Status s = t.lane->restart(); !s.ok()) return s;
      }
      if (t.shadow) {
        if (Status s = t.shadow->restart(); !s.ok()) return s;
      }
    }
    for (std::size_t begin = 0; begin < w.inputs.size(); begin += chunk_) {
      const std::size_t end = std::min(begin + chunk_, w.inputs.size());
      if (Status s = run_chunk(w, begin, end); !s.ok()) return s;
    }
    return {};
  }

  // Positions [begin, end) of a window, in all lanes.
  Status run_chunk(const TextWindow& w, std::size_t begin, std::size_t end) {
    const std::span<const std::int32_t> ids = std::span(w.inputs).subspan(begin, end - begin);
    const std::size_t first = std::max(begin, w.first);
    const std::size_t count = end > first ? end - first : 0;
    const std::span<const std::int32_t> targets = std::span(w.targets).subspan(first - w.first, count);
    std::vector<std::int32_t> wanted(count);
    for (std::size_t i = 0; i < count; i++) wanted[i] = static_cast<std::int32_t>(first - begin + i);

    if (Status s = run_reference(ids, wanted, targets); !s.ok()) return s;
    const std::span<float> logits =
        std::span(logits_).first(trials_.empty() ? 0 : count * reference_logits_->vocab());
    for (Trial& t : trials_) {
      if (!t.lane) {
        t.sum.add_reference(*reference_logits_, targets);
        continue;
      }
      if (Status s = t.lane->forward(ids, wanted, logits); !s.ok()) return s;
      std::size_t bad = 0;
      if (!t.sum.add(*reference_logits_, logits, targets, pool_, &bad)) return broken_at(t.name, bad);
      advance(ids.size());
    }
    scored_ += count;
    return {};
  }

  Status run_reference(std::span<const std::int32_t> ids, std::span<const std::int32_t> wanted,
                       std::span<const std::int32_t> targets) {
    for (Trial& t : trials_) {
      if (!t.shadow) continue;
      if (Status s = t.shadow->begin(ids.size()); !s.ok()) return s;
    }
    if (Status s = reference_->forward(ids, wanted, reference_logits_->logits(wanted.size())); !s.ok())
      return s;
    for (Trial& t : trials_) {
      if (!t.shadow) continue;
      if (Status s = t.shadow->resolve(); !s.ok()) return s;
    }
    std::size_t bad = 0;
    if (!reference_logits_->softmax(wanted.size(), pool_, &bad)) return broken_at("the reference", bad);
    reference_sum_.add_reference(*reference_logits_, targets);
    advance(ids.size());
    return {};
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
  std::span<const KvTrial> trials_of_caller_;
  const QualityOptions& options_;
  ThreadPool& pool_;

  std::vector<TextWindow> windows_;
  std::size_t chunk_ = 0;
  std::size_t lanes_ = 0;  // trials that run
  std::optional<Lane> reference_;
  std::vector<Trial> trials_;
  std::optional<ReferenceLogits> reference_logits_;
  std::vector<float> logits_;  // of the trial that runs
  DivergenceSum reference_sum_;
  std::size_t scored_ = 0, done_ = 0, total_ = 0;
};

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
