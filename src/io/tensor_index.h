// Finds tensors by name: positions into a vector of tensors that is not changed any more.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/safetensors.h"

namespace windrow {

class TensorIndex {
 public:
  TensorIndex() = default;
  // `tensors` must stay where it is, unchanged; of equal names the first is found.
  explicit TensorIndex(const std::vector<TensorView>& tensors) {
    by_name_.reserve(tensors.size());
    for (const TensorView& tensor : tensors) by_name_.emplace(tensor.name, &tensor);
  }

  const TensorView* find(std::string_view name) const noexcept {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }

 private:
  std::unordered_map<std::string_view, const TensorView*> by_name_;
};

}  // namespace windrow
