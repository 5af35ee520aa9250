// Operations out of numbers: every number means some operation, whatever the model's state is, so that
// RapidCheck can cut and shrink programs freely.
#pragma once

#include <cstdint>

#include "contract/model.h"

namespace windrow::contract {

// The digits of a number, the smallest first; zeros when they are used up.
class Draw {
 public:
  explicit Draw(std::uint64_t word) : word_(word) {}
  int operator()(int n) {
    const auto of = static_cast<std::uint64_t>(n);
    const int digit = static_cast<int>(word_ % of);
    word_ /= of;
    return digit;
  }
  bool one_in(int n) { return (*this)(n) == n - 1; }

 private:
  std::uint64_t word_;
};

// Fresh tokens for a row; siblings of a tree differ.
Part make_part(const Model& model, int row, int length, std::vector<int> parents = {});
void keep_first(Part& part, int count);
void keep_path(Part& part, int node);  // -1: nothing

Operation random_operation(const Model& model, std::uint64_t word);
// One of the Worlds that random programs run in.
Setup random_setup(std::uint64_t word);

}  // namespace windrow::contract
