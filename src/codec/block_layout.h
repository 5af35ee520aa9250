// Where a record's words lie inside a block, the bytes of (page, layer, kv head).
//
//   block = [K codes | K params | V codes | V params], each part 64-byte aligned.
//
//   K codes, interleaved by 16 positions: word w of the position in lane j of tile t lies at
//     ((t * words + w) * 16 + j) * 4. A 64-byte line holds word w of 16 positions, so SIMD
//     lanes run over positions, q is a broadcast and no horizontal sum is needed.
//     Pages of fewer positions are one narrower tile; attention copies their records together.
//   V codes, position-major: word w of a position lies at (position * words + w) * 4. Lanes run over
//     the dims of one position, whose probability is a broadcast; a position outside the window
//     is never loaded. Where the width allows, the codes are sliced over the words (slices.h), so
//     that lanes find them in place.
//   Params of both, interleaved as K codes are: scores and probabilities have positions for lanes.
//
// One position owns whole words in all, so a store never reads. All are one rule with
// another number of lanes: word index -> (tile * words + w) * lanes + lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checked.h"
#include "windrow/codec.h"

namespace windrow {

inline constexpr std::size_t kLineBytes = 64;  // a cache line, and the widest SIMD vector
inline constexpr int kTile = 16;               // positions of a K tile: one line of words

// What a record is outside: its words, and apart from each other the scales and the biases of its groups,
// numbers of the codec's input type.
enum class RecordPart { kCodes, kScales, kBiases };

// One side (K or V) of a block.
struct SideLayout {
  Codec codec;
  int head_dim = 0;
  int words = 0;                  // per position
  int params = 0;                 // per position
  int code_lanes = 1;             // positions interleaved word by word
  int param_lanes = 1;            // alike, of the params
  int slice = 1;                  // words that the codes are sliced over; 1: the record's own order
  std::size_t codes_offset = 0;   // bytes from the block's start
  std::size_t params_offset = 0;  // bytes from the block's start

  // Which word of its part is word w of a position.
  std::size_t code_index(int position, int w) const { return index(code_lanes, words, position, w); }
  std::size_t param_index(int position, int w) const { return index(param_lanes, params, position, w); }

  std::uint32_t* codes(std::byte* block) const {
    return reinterpret_cast<std::uint32_t*>(block + codes_offset);
  }
  const std::uint32_t* codes(const std::byte* block) const {
    return reinterpret_cast<const std::uint32_t*>(block + codes_offset);
  }
  std::uint32_t* param_words(std::byte* block) const {
    return reinterpret_cast<std::uint32_t*>(block + params_offset);
  }
  const std::uint32_t* param_words(const std::byte* block) const {
    return reinterpret_cast<const std::uint32_t*>(block + params_offset);
  }

  // Record <-> block, one position (index within the page).
  void put(std::byte* block, int position, std::span<const std::uint32_t> w,
           std::span<const std::uint32_t> p) const;
  void get(const std::byte* block, int position, std::span<std::uint32_t> w,
           std::span<std::uint32_t> p) const;

  // Bytes of a part of one position: what put_part reads of it.
  std::size_t part_bytes(RecordPart part) const;
  // Parts of `count` positions from `position` on, one after another at any alignment, into the block.
  void put_part(RecordPart part, std::byte* block, int position, int count, const std::byte* data) const;

  friend bool operator==(const SideLayout&, const SideLayout&) = default;

 private:
  void put_codes(std::byte* block, int position, int count, const std::byte* data) const;
  static std::size_t index(int lanes, int per_position, int position, int w) {
    const std::size_t tile = static_cast<std::size_t>(position / lanes);
    return (tile * static_cast<std::size_t>(per_position) + static_cast<std::size_t>(w)) *
               static_cast<std::size_t>(lanes) +
           static_cast<std::size_t>(position % lanes);
  }
};

struct BlockLayout {
  SideLayout keys;
  SideLayout values;
  int page_tokens = 0;
  std::size_t bytes = 0;  // of one block, a multiple of 64

  // What page_tokens may be.
  static constexpr bool is_page_size(int tokens) {
    return tokens == 1 || tokens == 2 || tokens == 4 || tokens == 8 || (tokens > 0 && tokens % kTile == 0);
  }
  // REQUIRES codecs that check() their head dims; is_page_size(page_tokens).
  static BlockLayout make(const Codec& keys, int key_dim, const Codec& values, int value_dim,
                          int page_tokens);

  friend bool operator==(const BlockLayout&, const BlockLayout&) = default;
};

// Copies a record from one block to another, of whatever page sizes. REQUIRES sides of equal codec and dim,
// keys both or values both.
void copy_record(const SideLayout& from_side, const std::byte* from, int from_position,
                 const SideLayout& to_side, std::byte* to, int to_position);

// Quantize-and-store of one position's vector: the hot path of append. Equal to encode_record + put;
// allocates nothing and reads nothing of the block. `values` holds head_dim numbers at any alignment.
void store_vector(const SideLayout& side, std::byte* block, int position, const float* values);

// Asks for the lines that storing both vectors of a position will write: to be called while others are
// stored.
void prefetch_store(const BlockLayout& layout, std::byte* block, int position);

}  // namespace windrow
