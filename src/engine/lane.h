// One model with one kind of state on its way over a text, one row at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "windrow/model.h"
#include "windrow/status.h"
#include "windrow/store.h"
#include "windrow/threads.h"

namespace windrow {

// A fresh row of a store for one row.
inline Status renew_row(StateStore& store, Row& row) {
  row = Row();  // its pages come back first
  Result<Row> fresh = store.new_row();
  if (!fresh.ok()) return fresh.status();
  row = std::move(*fresh);
  return {};
}

inline Result<Step> begin_step(StateStore& store, Row& row, std::size_t tokens) {
  Row* const rows[] = {&row};
  const int lengths[] = {static_cast<int>(tokens)};
  return store.begin(rows, lengths);
}

struct Lane {
  const Model* model;
  StatePlan plan;
  StateStore store;
  Row row;

  static Result<Lane> create(const Model& model, StatePlan plan) {
    Result<StateStore> store = StateStore::create(plan);
    if (!store.ok()) return store.status();
    return Lane{&model, std::move(plan), std::move(*store), Row()};
  }

  Status restart() { return renew_row(store, row); }

  // The runner lives for one step: the activations of many lanes would take more memory than their states,
  // and making one costs little beside a step of many tokens.
  Status forward(std::span<const std::int32_t> ids, std::span<const std::int32_t> wanted,
                 std::span<float> logits, ThreadPool& pool, AttentionObserver observer = {}) {
    Result<Runner> runner = Runner::create(*model, plan, pool);
    if (!runner.ok()) return runner.status();
    runner->set_observer(std::move(observer));
    Result<Step> step = begin_step(store, row, ids.size());
    if (!step.ok()) return step.status();
    if (Status s = runner->forward(*step, ids, wanted, logits); !s.ok()) return s;
    return step->resolve();
  }
};

}  // namespace windrow
