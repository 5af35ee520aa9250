// Arithmetic on sizes that come from outside: nullopt instead of wrapping.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>

namespace windrow {

inline std::optional<std::size_t> checked_add(std::size_t a, std::size_t b) {
  std::size_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

inline std::optional<std::size_t> checked_mul(std::size_t a, std::size_t b) {
  std::size_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// The product of all factors; 1 for none.
inline std::optional<std::size_t> checked_product(std::initializer_list<std::size_t> factors) {
  std::size_t r = 1;
  for (const std::size_t f : factors) {
    if (__builtin_mul_overflow(r, f, &r)) return std::nullopt;
  }
  return r;
}

constexpr std::size_t div_up(std::size_t a, std::size_t b) { return a / b + (a % b != 0); }
constexpr std::size_t round_up(std::size_t a, std::size_t b) { return div_up(a, b) * b; }

}  // namespace windrow
