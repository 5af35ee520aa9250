// Numbers to attend over, and how results are compared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

namespace windrow::testing {

// Numbers that depend on their name only.
inline float number(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  std::uint64_t x = (a * 0x9e3779b97f4a7c15u) ^ (b * 0xbf58476d1ce4e5b9u) ^ (c * 0x94d049bb133111ebu) ^
                    (d + 1) * 0xd6e8feb86659fd93u;
  float sum = 0;  // of four uniform numbers: nearly normal
  for (int i = 0; i < 4; i++) {
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    sum += static_cast<float>(x >> 40) * 0x1p-24f - 0.5f;
  }
  return sum * 1.7f;
}

// The largest difference, relative to the largest number of `expected`. NaN if any is.
inline double relative_error(std::span<const float> got, std::span<const float> expected) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); i++) {
    const double d = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    if (!(d <= difference)) difference = d;  // keeps a NaN
    if (difference != difference) return difference;
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  return difference / largest;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace windrow::testing
