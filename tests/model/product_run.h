// One product for the tests, and the comparison of results bit by bit.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "model/product.h"

namespace windrow::test {

// y [m, N] of one product, `unwritten` where nothing was stored; x has row stride ldx.
inline std::vector<float> product(const PackedMatrix& w, const float* x, std::size_t ldx, std::size_t m,
                                  ThreadPool& pool,
                                  float unwritten = std::numeric_limits<float>::quiet_NaN()) {
  std::vector<float> y(m * w.rows(), unwritten);
  const ProductOutput output{&w, y.data(), w.rows()};
  products({&output, 1}, x, ldx, m, pool);
  return y;
}

inline ::testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " numbers";
  for (std::size_t i = 0; i < a.size(); i++) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << fmt::format("index {}: {} and {}", i, a[i], b[i]);
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace windrow::test
