// What a Model holds; shared by Model and Runner.
#pragma once

#include <memory>

#include "model/family.h"
#include "model/weights.h"
#include "windrow/model.h"

namespace windrow {

struct Model::Impl {
  ModelInfo info;
  WeightTotals totals;
  int experts, experts_per_token;              // 0: none
  std::unique_ptr<const WeightSource> source;  // of a folder: keeps what embedding rows are read from
  std::unique_ptr<Family> family;
};

}  // namespace windrow
