// Moving stored positions: between pages, and from one codec to another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "state/state_impl.h"

namespace windrow {

// One position of all layers and heads of a page, to another page of `to_bytes` bytes with the same codecs.
void copy_position(const BlockLayout& from, const std::byte* source, std::int32_t from_slot,
                   const BlockLayout& to, std::byte* target, std::int32_t to_slot, std::size_t to_bytes);

// The values of a position of one layout, as attention decodes them, stored by another layout's codecs.
void convert_position(const BlockLayout& from, const std::byte* source, const BlockLayout& to,
                      std::byte* target, std::int32_t slot);

// Fills one layer of a crossing row's pages: positions below its length, out of the pages they lie in.
void convert_positions(const GroupView& view, const GroupView::Crossing& crossing, int layer_slot);

}  // namespace windrow
