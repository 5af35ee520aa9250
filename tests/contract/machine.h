// A store that runs operations beside the model of it, and judges after each.
#pragma once

#include <memory>
#include <vector>

#include "contract/model.h"

namespace windrow::contract {

class Machine {
 public:
  explicit Machine(World& world);

  World& world() { return *world_; }
  const Model& model() const { return model_; }
  // Throws Disagreement.
  void apply(const Operation& op);
  // Carries out an operation that was judged before at this very place: the engine only. The model is to be
  // set by model() then.
  void replay(const Operation& op);
  void set_model(const Model& model) { model_ = model; }
  // Drops everything; every page must come back.
  void finish();

 private:
  // True when it was done, false when it was refused.
  bool engine(const Operation& op, const std::vector<Expected>* expected);
  bool step(const Operation& op, const std::vector<Expected>* expected);
  void judge_preview(const Operation& op, const std::vector<StepRow>& asked, const Result<Step>& step,
                     const std::vector<int>& owned_before) const;
  Status append(Step& step, const std::vector<int>& ids, int shift) const;
  void recur(Step& step, const Operation& op, bool judged) const;
  void judge_attention(const KvRead& read, const Expected& expected) const;
  void judge_rest() const;
  void judge_pools() const;
  void judge_row(int r, const Row& row, const Model& model, int model_row) const;
  bool transfer(const Operation& op);
  void alone(const Operation& op) const;
  std::vector<int> owned() const;

  World* world_;
  StateStore store_;
  std::optional<StateStore> other_;  // made when a row first goes there
  std::vector<Row> rows_;
  std::vector<KvRead> held_;
  Model model_;
};

// The positions that every token sees, and the records there.
void judge_read(World& world, const KvRead& read, const Expected& expected);

}  // namespace windrow::contract
