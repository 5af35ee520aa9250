// What the tokens of a read see, as ranges of positions.
#pragma once

#include <algorithm>
#include <cstddef>

#include "windrow/kv_read.h"

namespace windrow::internal {

constexpr std::size_t sz(int n) { return static_cast<std::size_t>(n); }

// Half-open.
struct Range {
  int begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  Range cut(Range other) const { return {std::max(begin, other.begin), std::min(end, other.end)}; }
};

// A token sees one range, or two when sinks lie apart before its window: sinks_of, then window_of. Where
// the cut lies is the token's alone, so its bits don't depend on the tokens beside it.
inline Range sinks_of(const KvRead& read, int token) {
  return {0, read.begins[sz(token)] > read.sinks ? read.sinks : 0};
}
inline Range window_of(const KvRead& read, int token) {
  const int begin = read.begins[sz(token)];
  return {begin <= read.sinks ? 0 : begin, read.ends[sz(token)]};  // sinks that it touches belong to it
}

}  // namespace windrow::internal
