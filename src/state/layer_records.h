// Where a position stands inside LayerRecords: shared by extract and adopt.
#pragma once

#include <cstdint>
#include <span>

#include "windrow/records.h"

namespace windrow {

// The words of one position and head inside LayerRecords.
template <typename Words>
auto words_at(Words& all, std::size_t i, int each) {
  return std::span(all).subspan(i * static_cast<std::size_t>(each), static_cast<std::size_t>(each));
}

// The i-th position of the records.
inline std::int32_t position_of(const LayerRecords& records, int i) {
  return i < records.sinks ? i : records.begin + i - records.sinks;
}

}  // namespace windrow
