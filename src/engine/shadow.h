// What codecs do to the attention output of each layer, whatever they do to the rest of the model.
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/lane.h"
#include "windrow/attention.h"
#include "windrow/model.h"

namespace windrow {

// The state of a trial's codecs, fed with the queries, keys and values of the reference: what the codecs do
// to each layer's attention output.
class Shadow {
 public:
  static Result<std::unique_ptr<Shadow>> create(const StatePlan& trial, std::size_t layers,
                                                ThreadPool& pool) {
    // Attention layers only: recurrent ones have no codecs.
    StatePlan::Builder builder(trial.limits());
    for (int g = 0; g < trial.group_count(); g++) builder.attention(trial.group(g));
    Result<StatePlan> plan = builder.build();
    if (!plan.ok()) return plan.status();
    Result<StateStore> store = StateStore::create(*plan);
    if (!store.ok()) return store.status();
    Result<AttentionKernels> kernels = AttentionKernels::select(*plan);
    if (!kernels.ok()) return kernels.status();
    return std::unique_ptr<Shadow>(new Shadow(std::move(*store), std::move(*kernels), layers, pool));
  }

  Status restart() { return renew_row(store_, row_); }
  Status begin(std::size_t tokens) {
    Result<Step> step = begin_step(store_, row_, tokens);
    if (!step.ok()) return step.status();
    step_.emplace(std::move(*step));
    return {};
  }
  Status observe(const AttentionTrace& trace) {
    if (!trace.k.empty()) {
      if (Status s = step_->append(trace.layer, trace.k, trace.v); !s.ok()) return s;
    }
    Result<KvRead> read = step_->read(trace.layer);
    if (!read.ok()) return read.status();
    out_.resize(trace.attended.size());
    if (Status s = kernels_.attend(*read, trace.q, trace.params, out_, pool_); !s.ok()) return s;
    Sums& sums = sums_[static_cast<std::size_t>(trace.layer)];
    for (std::size_t i = 0; i < out_.size(); i++) {
      const double o = trace.attended[i], d = static_cast<double>(out_[i]) - o;
      sums.error += d * d;
      sums.reference += o * o;
    }
    return {};
  }
  Status resolve() { return step_->resolve(); }

  std::vector<double> errors() const {
    std::vector<double> errors;
    for (const Sums& s : sums_) errors.push_back(s.error > 0 ? std::sqrt(s.error / s.reference) : 0.0);
    return errors;
  }

 private:
  struct Sums {
    double error = 0, reference = 0;
  };
  Shadow(StateStore store, AttentionKernels kernels, std::size_t layers, ThreadPool& pool)
      : store_(std::move(store)), kernels_(std::move(kernels)), sums_(layers), pool_(&pool) {}

  StateStore store_;
  AttentionKernels kernels_;
  Row row_;
  std::optional<Step> step_;
  std::vector<float> out_;
  std::vector<Sums> sums_;
  ThreadPool* pool_;
};

}  // namespace windrow
