// Dense [batch][heads][columns][dim] f32 arrays, and the few column moves that ring caches are made of.
//
// Everything is a copy and nothing is shared: the oracle is to be right, not fast. Every move is
// written through from_columns(), which says for each destination column where it comes from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace windrow::oracle {

using Ints = std::vector<int>;

struct Tensor {
  int batch = 0, heads = 0, columns = 0, dim = 0;
  std::vector<float> values;

  Tensor() = default;
  Tensor(int b, int h, int t, int d)
      : batch(b), heads(h), columns(t), dim(d), values(static_cast<std::size_t>(b) * h * t * d) {}

  // The `dim` numbers of one position.
  std::span<float> at(int b, int h, int t) { return {values.data() + start(b, h, t), std::size_t(dim)}; }
  std::span<const float> at(int b, int h, int t) const {
    return {values.data() + start(b, h, t), std::size_t(dim)};
  }

 private:
  std::size_t start(int b, int h, int t) const {
    if (b < 0 || b >= batch || h < 0 || h >= heads || t < 0 || t >= columns) {
      throw std::out_of_range("oracle tensor: no such position");
    }
    return ((static_cast<std::size_t>(b) * heads + h) * columns + t) * dim;
  }
};

constexpr int kZeros = -1;

// A tensor of the given batch and columns whose column (b, t) is `from`'s column source(b, t) of row
// row(b), or zeros where source says kZeros.
template <class Row, class Source>
Tensor from_columns(const Tensor& from, int batch, int columns, const Row& row, const Source& source) {
  Tensor out(batch, from.heads, columns, from.dim);
  for (int b = 0; b < batch; b++) {
    for (int t = 0; t < columns; t++) {
      const int s = source(b, t);
      if (s == kZeros) continue;
      for (int h = 0; h < from.heads; h++) std::ranges::copy(from.at(row(b), h, s), out.at(b, h, t).begin());
    }
  }
  return out;
}
template <class Source>
Tensor from_columns(const Tensor& from, int columns, const Source& source) {
  return from_columns(
      from, from.batch, columns, [](int b) { return b; }, source);
}

// Columns [begin, end).
inline Tensor cut(const Tensor& x, int begin, int end) {
  return from_columns(x, end - begin, [&](int, int t) { return t + begin; });
}

// `x` between zeros, or what is left of it when `columns` is too few: x's column 0 stands at `left`.
inline Tensor pad(const Tensor& x, int left, int columns) {
  return from_columns(x, columns,
                      [&](int, int t) { return t < left || t - left >= x.columns ? kZeros : t - left; });
}

// Every column of row b moves right by shift[b] (left if negative), around the end.
inline Tensor roll(const Tensor& x, const Ints& shift) {
  const int n = x.columns;
  return from_columns(x, n, [&](int b, int t) { return ((t - shift.at(b)) % n + n) % n; });
}

inline Tensor take_rows(const Tensor& x, const Ints& rows) {
  return from_columns(
      x, static_cast<int>(rows.size()), x.columns, [&](int b) { return rows.at(b); },
      [](int, int t) { return t; });
}

// a's columns, then b's; a tensor of no columns may have no shape either.
inline Tensor join_columns(const Tensor& a, const Tensor& b) {
  if (a.columns == 0) return b;
  if (b.columns == 0) return a;
  if (a.batch != b.batch || a.heads != b.heads || a.dim != b.dim) {
    throw std::invalid_argument("oracle tensor: columns of different shapes");
  }
  Tensor out = pad(a, 0, a.columns + b.columns);
  for (int r = 0; r < b.batch; r++) {
    for (int h = 0; h < b.heads; h++) {
      for (int t = 0; t < b.columns; t++)
        std::ranges::copy(b.at(r, h, t), out.at(r, h, a.columns + t).begin());
    }
  }
  return out;
}

// a's rows, then b's; equal columns.
inline Tensor join_rows(const Tensor& a, const Tensor& b) {
  if (a.heads != b.heads || a.columns != b.columns || a.dim != b.dim) {
    throw std::invalid_argument("oracle tensor: rows of different shapes");
  }
  Tensor out = a;
  out.batch += b.batch;
  out.values.insert(out.values.end(), b.values.begin(), b.values.end());
  return out;
}

// Keys and values; they always move together. Their dims may differ, the rest may not.
struct Kv {
  Tensor k, v;

  int batch() const { return k.batch; }
  int columns() const { return k.columns; }

  template <class Move>
  Kv each(const Move& move) const {
    return {move(k), move(v)};
  }
  static Kv join_columns(const Kv& a, const Kv& b) {
    return {oracle::join_columns(a.k, b.k), oracle::join_columns(a.v, b.v)};
  }
  static Kv join_rows(const Kv& a, const Kv& b) {
    return {oracle::join_rows(a.k, b.k), oracle::join_rows(a.v, b.v)};
  }
  Kv cut(int begin, int end) const {
    return each([&](const Tensor& x) { return oracle::cut(x, begin, end); });
  }
  Kv pad(int left, int columns) const {
    return each([&](const Tensor& x) { return oracle::pad(x, left, columns); });
  }
  Kv roll(const Ints& shift) const {
    return each([&](const Tensor& x) { return oracle::roll(x, shift); });
  }
  Kv take_rows(const Ints& rows) const {
    return each([&](const Tensor& x) { return oracle::take_rows(x, rows); });
  }
  // Those columns of one row.
  Kv pick(int row, const Ints& columns) const {
    return each([&](const Tensor& x) {
      return from_columns(
          x, 1, static_cast<int>(columns.size()), [&](int) { return row; },
          [&](int, int t) { return columns[t]; });
    });
  }
  // Zeros of the same heads and dims.
  Kv zeros(int batch, int columns) const {
    return each([&](const Tensor& x) { return Tensor(batch, x.heads, columns, x.dim); });
  }
  // Overwrites columns from `at` on.
  void write(int at, const Kv& fresh) {
    write(k, at, fresh.k);
    write(v, at, fresh.v);
  }

 private:
  static void write(Tensor& into, int at, const Tensor& from) {
    for (int b = 0; b < from.batch; b++) {
      for (int h = 0; h < from.heads; h++) {
        for (int t = 0; t < from.columns; t++)
          std::ranges::copy(from.at(b, h, t), into.at(b, h, at + t).begin());
      }
    }
  }
};

// Equal bit for bit, so that a NaN equals itself.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  const std::size_t n = a.values.size();
  return n == b.values.size() && (n == 0 || std::memcmp(a.values.data(), b.values.data(), 4 * n) == 0);
}
inline bool same_bits(const Kv& a, const Kv& b) { return same_bits(a.k, b.k) && same_bits(a.v, b.v); }

// What each query may see: [batch][queries][columns] of 0 or 1.
struct Mask {
  int batch = 0, queries = 0, columns = 0;
  std::vector<std::uint8_t> seen;

  template <class See>
  static Mask make(int batch, int queries, int columns, const See& see) {
    Mask m{batch, queries, columns, {}};
    for (int b = 0; b < batch; b++) {
      for (int q = 0; q < queries; q++) {
        for (int t = 0; t < columns; t++) m.seen.push_back(see(b, q, t) ? 1 : 0);
      }
    }
    return m;
  }
  bool at(int b, int q, int t) const {
    return seen.at((static_cast<std::size_t>(b) * queries + q) * columns + t) != 0;
  }
  friend bool operator==(const Mask&, const Mask&) = default;
};

}  // namespace windrow::oracle
