// Published shapes of models, for bench.
#pragma once

#include <span>
#include <string_view>

namespace windrow::cli {

struct Shape {
  std::string_view name;
  std::string_view config;  // what of the published config.json a speed depends on
};
std::span<const Shape> shapes();
// nullptr: no such shape.
const Shape* find_shape(std::string_view name);

}  // namespace windrow::cli
