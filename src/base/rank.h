// The largest of some numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace windrow {

// The places of the `count` largest values (all, if there are fewer), largest first, of equals the lower
// place. A NaN is below everything, so that this is an order.
inline std::vector<std::int32_t> largest(std::span<const float> values, std::size_t count) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](std::int32_t i) {
    const float v = values[static_cast<std::size_t>(i)];
    return std::isnan(v) ? -std::numeric_limits<float>::infinity() : v;
  };
  const std::size_t n = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const float x = key(a), y = key(b);
                      return x != y ? x > y : a < b;
                    });
  order.resize(n);
  return order;
}

}  // namespace windrow
