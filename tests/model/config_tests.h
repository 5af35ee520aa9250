// What the tests of config.json share.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "model/config.h"

namespace windrow::config_tests {

constexpr LayerType F = LayerType::kFull;
constexpr LayerType S = LayerType::kSliding;
constexpr LayerType L = LayerType::kLinear;
using Layers = std::vector<LayerType>;
using Ids = std::vector<std::int32_t>;

// The configuration; a refusal fails the test.
inline ModelConfig parsed(const std::string& config, const std::string& generation = "") {
  Result<ModelConfig> result = parse_config(config, generation);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? std::move(*result) : ModelConfig{};
}

// Every `pattern`-th layer is full.
inline Layers every(std::size_t layers, std::size_t pattern, LayerType between) {
  Layers types(layers, between);
  for (std::size_t i = pattern - 1; i < layers; i += pattern) types[i] = F;
  return types;
}

// The default rope.
inline RopeConfig plain(double theta) {
  RopeConfig rope;
  rope.theta = theta;
  return rope;
}

// [x, x, ...] as JSON.
inline std::string repeated(std::size_t count, const std::string& value) {
  std::string list = "[";
  for (std::size_t i = 0; i < count; i++) list += (i == 0 ? "" : ", ") + value;
  return list + "]";
}

}  // namespace windrow::config_tests
