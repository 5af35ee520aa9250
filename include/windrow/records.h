// Rows outside a store: owned, contiguous copies in temporal order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace windrow {

// Positions [0, sinks) and then [begin, end) of one layer of a row, as records (windrow/codec.h):
// [kv_heads][positions()][record_words] and so on. sinks is 0 but for a group with sinks whose newest
// positions do not reach down to them.
struct LayerRecords {
  int layer = 0;
  int sinks = 0;
  int begin = 0;
  int end = 0;
  bool converted = true;  // false: stored by the group's delayed codecs
  std::vector<std::uint32_t> key_words, key_params, value_words, value_params;

  int positions() const noexcept { return sinks + end - begin; }
  friend bool operator==(const LayerRecords&, const LayerRecords&) = default;
};

// The state of one recurrent layer: matrices [value_heads, value_dim, key_dim], tail [taps - 1, channels].
struct RecurrentRecords {
  int layer = 0;
  std::vector<float> state, tail;
  friend bool operator==(const RecurrentRecords&, const RecurrentRecords&) = default;
};

// All of a row. `signature` is that of the plan it came from (C26).
struct RowRecords {
  std::string signature;
  int length = 0;
  std::vector<LayerRecords> layers;         // in the plan's order: group by group
  std::vector<RecurrentRecords> recurrent;  // likewise
  friend bool operator==(const RowRecords&, const RowRecords&) = default;
};

}  // namespace windrow
