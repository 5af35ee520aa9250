// The order in which a block holds the codes of a value vector: sliced, so that attention unpacks it with
// one mask and one conversion a vector.
//
// Records (and keys) pack codes as MLX does: word w of 32 / bits codes holds elements w * 32 / bits and on.
// A sliced unit is n words of n * 32 / bits elements; bits [e * bits, (e + 1) * bits) of its word j hold
// element e * n + j. So n words loaded as lanes give n consecutive elements for each e, already in place.
// It is a permutation of bits inside n words: a position still owns whole words.
//
// Widths that divide 32 only (2, 4, 8): the codes of the others cross words. n = 1 is the record's order.
#pragma once

#include <cstdint>
#include <span>

#include "windrow/codec.h"

namespace windrow {

// n for a codec and dim: the largest of 8 (the lanes of AVX2), 4, 2 that cuts the dim into whole units; 1:
// not sliced.
constexpr int slice_lanes(const Codec& codec, int dim) {
  if (!codec.is_affine() || 32 % codec.bits() != 0) return 1;
  for (int n = 8; n > 1; n /= 2) {
    if (dim % (n * 32 / codec.bits()) == 0) return n;
  }
  return 1;
}

// encode_record with its words sliced, at once. lanes: slice_lanes of the codec and dim; 1: not.
void encode_sliced(const Codec& codec, int lanes, std::span<const float> values,
                   std::span<std::uint32_t> words, std::span<std::uint32_t> params);

// Record order <-> sliced. Sizes are equal and whole units; the spans don't overlap.
void slice_words(int bits, int lanes, std::span<const std::uint32_t> record, std::span<std::uint32_t> sliced);
void unslice_words(int bits, int lanes, std::span<const std::uint32_t> sliced,
                   std::span<std::uint32_t> record);

}  // namespace windrow
