// What a scheduler needs of a model: logits for the tokens of a step. Runner's is the real one; simulations
// and engines with kernels of their own bring others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "windrow/export.h"
#include "windrow/model.h"
#include "windrow/status.h"
#include "windrow/store.h"

namespace windrow {

class WINDROW_API StepModel {
 public:
  virtual ~StepModel() = default;
  virtual int vocab_size() const = 0;
  // As Runner::forward: appends every layer of the open step and fills logits [wanted.size(), vocab_size()].
  virtual Status forward(Step& step, std::span<const std::int32_t> ids, std::span<const std::int32_t> wanted,
                         std::span<float> logits) = 0;
};

// A Runner as a StepModel. Borrows it.
class WINDROW_API RunnerModel final : public StepModel {
 public:
  RunnerModel(Runner& runner, const ModelInfo& info) : runner_(&runner), vocab_size_(info.vocab_size) {}
  int vocab_size() const override { return vocab_size_; }
  Status forward(Step& step, std::span<const std::int32_t> ids, std::span<const std::int32_t> wanted,
                 std::span<float> logits) override {
    return runner_->forward(step, ids, wanted, logits);
  }

 private:
  Runner* runner_;
  int vocab_size_;
};

}  // namespace windrow
