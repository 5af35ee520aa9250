// Moving stored positions: between pages, and from one codec to another.
#pragma once

#include <cstdint>

#include "state/state_impl.h"

namespace windrow {

// One position of one head as words, whatever the codec.
struct PositionRecord {
  // Enough for 1024 dims of f32, and for the params of groups of 32 with f32 scales and biases.
  std::uint32_t key_words[1024], value_words[1024], key_params[64], value_params[64];

  void get(const BlockLayout& layout, const std::byte* block, std::int32_t slot);
  void put(const BlockLayout& layout, std::byte* block, std::int32_t slot) const;
};

// The values of a position of one layout, as attention decodes them, stored by another layout's codecs.
void convert_position(const BlockLayout& from, const std::byte* source, const BlockLayout& to,
                      std::byte* target, std::int32_t slot);

// Fills one layer of a crossing row's pages: positions below its length, out of the pages they lie in.
void convert_positions(const GroupView& view, const GroupView::Crossing& crossing, int layer_slot);

}  // namespace windrow
