// Records in and out of blocks.
#include "codec/block_layout.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "codec/affine.h"

namespace windrow {
namespace {

// One part (codes or params): word w of a position is `lanes` words after word w - 1.
void put_words(const SideLayout& side, std::uint32_t* part, int position,
               std::span<const std::uint32_t> from) {
  if (from.empty()) return;
  std::uint32_t* to = part + side.index(static_cast<int>(from.size()), position, 0);
  if (side.lanes == 1) {
    std::memcpy(to, from.data(), from.size_bytes());
    return;
  }
  const auto stride = static_cast<std::size_t>(side.lanes);
  for (std::size_t w = 0; w < from.size(); w++) to[w * stride] = from[w];
}

void get_words(const SideLayout& side, const std::uint32_t* part, int position, std::span<std::uint32_t> to) {
  if (to.empty()) return;
  const std::uint32_t* from = part + side.index(static_cast<int>(to.size()), position, 0);
  if (side.lanes == 1) {
    std::memcpy(to.data(), from, to.size_bytes());
    return;
  }
  const auto stride = static_cast<std::size_t>(side.lanes);
  for (std::size_t w = 0; w < to.size(); w++) to[w] = from[w * stride];
}

void copy_words(const SideLayout& from_side, const std::uint32_t* from, int from_position,
                const SideLayout& to_side, std::uint32_t* to, int to_position, int words) {
  from += from_side.index(words, from_position, 0);
  to += to_side.index(words, to_position, 0);
  const auto from_stride = static_cast<std::size_t>(from_side.lanes),
             to_stride = static_cast<std::size_t>(to_side.lanes), count = static_cast<std::size_t>(words);
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, count * sizeof(*to));
    return;
  }
  for (std::size_t w = 0; w < count; w++) to[w * to_stride] = from[w * from_stride];
}

// Appends a part of `words` per position at *end, which stays 64-byte aligned.
std::size_t place_part(int words, int page_tokens, std::size_t* end) {
  const std::size_t offset = *end;
  *end += round_up(static_cast<std::size_t>(words) * static_cast<std::size_t>(page_tokens) * 4, kLineBytes);
  return offset;
}

SideLayout place_side(const Codec& codec, int head_dim, int lanes, int page_tokens, std::size_t* end) {
  SideLayout side;
  side.codec = codec;
  side.head_dim = head_dim;
  side.words = codec.record_words(head_dim);
  side.params = codec.record_params(head_dim);
  side.lanes = lanes;
  side.codes_offset = place_part(side.words, page_tokens, end);
  side.params_offset = place_part(side.params, page_tokens, end);
  return side;
}

}  // namespace

void SideLayout::put(std::byte* block, int position, std::span<const std::uint32_t> w,
                     std::span<const std::uint32_t> p) const {
  assert(w.size() == static_cast<std::size_t>(words) && p.size() == static_cast<std::size_t>(params));
  put_words(*this, codes(block), position, w);
  put_words(*this, param_words(block), position, p);
}

void SideLayout::get(const std::byte* block, int position, std::span<std::uint32_t> w,
                     std::span<std::uint32_t> p) const {
  assert(w.size() == static_cast<std::size_t>(words) && p.size() == static_cast<std::size_t>(params));
  get_words(*this, codes(block), position, w);
  get_words(*this, param_words(block), position, p);
}

void copy_record(const SideLayout& from_side, const std::byte* from, int from_position,
                 const SideLayout& to_side, std::byte* to, int to_position) {
  assert(from_side.codec == to_side.codec && from_side.head_dim == to_side.head_dim);
  copy_words(from_side, from_side.codes(from), from_position, to_side, to_side.codes(to), to_position,
             from_side.words);
  copy_words(from_side, from_side.param_words(from), from_position, to_side, to_side.param_words(to),
             to_position, from_side.params);
}

BlockLayout BlockLayout::make(const Codec& keys, int key_dim, const Codec& values, int value_dim,
                              int page_tokens) {
  assert(keys.check(key_dim).ok() && values.check(value_dim).ok());
  assert(is_page_size(page_tokens));
  BlockLayout layout;
  layout.page_tokens = page_tokens;
  layout.keys = place_side(keys, key_dim, std::min(kTile, page_tokens), page_tokens, &layout.bytes);
  layout.values = place_side(values, value_dim, 1, page_tokens, &layout.bytes);
  return layout;
}

void store_vector(const SideLayout& side, std::byte* block, int position, const float* values) {
  const std::span<const float> x(values, static_cast<std::size_t>(side.head_dim));
  const auto words = static_cast<std::size_t>(side.words);
  const auto params = static_cast<std::size_t>(side.params);
  if (side.lanes == 1) {  // a position's words are adjacent: encode where they shall lie
    encode_record(side.codec, x, {side.codes(block) + side.index(side.words, position, 0), words},
                  {side.param_words(block) + side.index(side.params, position, 0), params});
    return;
  }
  std::uint32_t w[affine::kMaxWords];
  std::uint32_t p[affine::kMaxParams];
  encode_record(side.codec, x, {w, words}, {p, params});
  side.put(block, position, {w, words}, {p, params});
}

}  // namespace windrow
