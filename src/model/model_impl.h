// What a Model holds; shared by Model and Runner.
#pragma once

#include <memory>

#include "io/safetensors.h"
#include "model/family.h"
#include "windrow/model.h"

namespace windrow {

struct Model::Impl {
  ModelInfo info;
  std::size_t parameters;
  ModelTensors tensors;  // keeps the mapping that embedding rows are read from
  std::unique_ptr<Family> family;
};

}  // namespace windrow
