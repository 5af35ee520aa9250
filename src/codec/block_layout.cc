// Records in and out of blocks.
#include "codec/block_layout.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "codec/affine.h"
#include "codec/slices.h"

namespace windrow {
namespace {

// One part (codes or params) of a position: its first word, and how many words the next is away.
template <typename Word>
struct Part {
  Word* first;
  std::size_t stride;
};

template <typename Word>
Part<Word> codes_of(const SideLayout& side, Word* codes, int position) {
  return {codes + side.code_index(position, 0), static_cast<std::size_t>(side.code_lanes)};
}
template <typename Word>
Part<Word> params_of(const SideLayout& side, Word* params, int position) {
  return {params + side.param_index(position, 0), static_cast<std::size_t>(side.param_lanes)};
}

template <typename Word>
void copy_part(Part<Word> from, Part<std::uint32_t> to, std::size_t words) {
  if (from.stride == 1 && to.stride == 1) {
    if (words > 0) std::memcpy(to.first, from.first, words * sizeof(*to.first));
    return;
  }
  for (std::size_t w = 0; w < words; w++) to.first[w * to.stride] = from.first[w * from.stride];
}

// Numbers of kBytes each for positions from `position` on: the first of a position goes to its param word
// `first`, at that byte of it.
template <int kBytes>
void put_params(const SideLayout& side, std::byte* block, int position, int count, int first, int at_byte,
                const std::byte* data) {
  const int groups = side.head_dim / side.codec.group();
  const std::size_t stride =
      static_cast<std::size_t>(side.param_lanes) * static_cast<std::size_t>(side.params / groups) * 4;
  std::byte* const words = reinterpret_cast<std::byte*>(side.param_words(block)) + at_byte;
  for (int i = 0; i < count; i++) {
    std::byte* to = words + side.param_index(position + i, first) * 4;
    for (int g = 0; g < groups; g++, to += stride, data += kBytes) std::memcpy(to, data, kBytes);
  }
}

// Appends a part of `words` per position at *end, which stays 64-byte aligned.
std::size_t place_part(int words, int page_tokens, std::size_t* end) {
  const std::size_t offset = *end;
  *end += round_up(static_cast<std::size_t>(words) * static_cast<std::size_t>(page_tokens) * 4, kLineBytes);
  return offset;
}

SideLayout place_side(const Codec& codec, int head_dim, int code_lanes, int page_tokens, std::size_t* end) {
  SideLayout side;
  side.codec = codec;
  side.head_dim = head_dim;
  side.words = codec.record_words(head_dim);
  side.params = codec.record_params(head_dim);
  side.code_lanes = code_lanes;
  side.param_lanes = std::min(kTile, page_tokens);
  side.codes_offset = place_part(side.words, page_tokens, end);
  side.params_offset = place_part(side.params, page_tokens, end);
  return side;
}

}  // namespace

void SideLayout::put(std::byte* block, int position, std::span<const std::uint32_t> w,
                     std::span<const std::uint32_t> p) const {
  assert(w.size() == static_cast<std::size_t>(words) && p.size() == static_cast<std::size_t>(params));
  std::uint32_t sliced[affine::kMaxWords];
  if (slice > 1) {
    slice_words(codec.bits(), slice, w, {sliced, w.size()});
    w = {sliced, w.size()};
  }
  copy_part<const std::uint32_t>({w.data(), 1}, codes_of(*this, codes(block), position), w.size());
  copy_part<const std::uint32_t>({p.data(), 1}, params_of(*this, param_words(block), position), p.size());
}

void SideLayout::get(const std::byte* block, int position, std::span<std::uint32_t> w,
                     std::span<std::uint32_t> p) const {
  assert(w.size() == static_cast<std::size_t>(words) && p.size() == static_cast<std::size_t>(params));
  std::uint32_t sliced[affine::kMaxWords];
  copy_part(codes_of(*this, codes(block), position), {slice > 1 ? sliced : w.data(), 1}, w.size());
  if (slice > 1) unslice_words(codec.bits(), slice, {sliced, w.size()}, w);
  copy_part(params_of(*this, param_words(block), position), {p.data(), 1}, p.size());
}

std::size_t SideLayout::part_bytes(RecordPart part) const {
  if (part == RecordPart::kCodes) return 4 * static_cast<std::size_t>(words);
  return codec.is_affine() ? static_cast<std::size_t>(head_dim / codec.group()) * dtype_size(codec.input())
                           : 0;
}

void SideLayout::put_codes(std::byte* block, int position, int count, const std::byte* data) const {
  const std::size_t each = part_bytes(RecordPart::kCodes);
  std::uint32_t* to = codes(block);
  const auto word = [&](const std::byte* from, int w) {
    std::uint32_t x = 0;
    std::memcpy(&x, from + 4 * w, 4);
    return x;
  };
  if (code_lanes == 1) {
    std::uint32_t record[affine::kMaxWords];
    for (int i = 0; i < count; i++, data += each) {
      std::uint32_t* first = to + code_index(position + i, 0);
      std::memcpy(slice > 1 ? record : first, data, each);
      const auto n = static_cast<std::size_t>(words);
      if (slice > 1) slice_words(codec.bits(), slice, {record, n}, {first, n});
    }
    return;
  }
  // Word by word over the positions of a tile: what is written lies side by side.
  for (int done = 0; done < count;) {
    const int lane = (position + done) % code_lanes, n = std::min(code_lanes - lane, count - done);
    std::uint32_t* line = to + code_index(position + done, 0);
    for (int w = 0; w < words; w++, line += code_lanes) {
      for (int i = 0; i < n; i++) line[i] = word(data + static_cast<std::size_t>(done + i) * each, w);
    }
    done += n;
  }
}

void SideLayout::put_part(RecordPart part, std::byte* block, int position, int count,
                          const std::byte* data) const {
  if (part == RecordPart::kCodes) return put_codes(block, position, count, data);
  // scale | bias << 16 in one word, or one word each.
  if (codec.input() == DType::kF32)
    return put_params<4>(*this, block, position, count, part == RecordPart::kBiases ? 1 : 0, 0, data);
  put_params<2>(*this, block, position, count, 0, part == RecordPart::kBiases ? 2 : 0, data);
}

void copy_record(const SideLayout& from_side, const std::byte* from, int from_position,
                 const SideLayout& to_side, std::byte* to, int to_position) {
  assert(from_side.codec == to_side.codec && from_side.head_dim == to_side.head_dim);
  assert(from_side.slice == to_side.slice);
  copy_part(codes_of(from_side, from_side.codes(from), from_position),
            codes_of(to_side, to_side.codes(to), to_position), static_cast<std::size_t>(to_side.words));
  copy_part(params_of(from_side, from_side.param_words(from), from_position),
            params_of(to_side, to_side.param_words(to), to_position),
            static_cast<std::size_t>(to_side.params));
}

BlockLayout BlockLayout::make(const Codec& keys, int key_dim, const Codec& values, int value_dim,
                              int page_tokens) {
  assert(keys.check(key_dim).ok() && values.check(value_dim).ok());
  assert(is_page_size(page_tokens));
  BlockLayout layout;
  layout.page_tokens = page_tokens;
  layout.keys = place_side(keys, key_dim, std::min(kTile, page_tokens), page_tokens, &layout.bytes);
  layout.values = place_side(values, value_dim, 1, page_tokens, &layout.bytes);
  layout.values.slice = slice_lanes(values, value_dim);
  return layout;
}

void store_vector(const SideLayout& side, std::byte* block, int position, const float* values) {
  const std::span<const float> x(values, static_cast<std::size_t>(side.head_dim));
  const auto words = static_cast<std::size_t>(side.words);
  const auto params = static_cast<std::size_t>(side.params);
  std::uint32_t w[affine::kMaxWords];
  std::uint32_t p[affine::kMaxParams];
  const Part<std::uint32_t> codes = codes_of(side, side.codes(block), position);
  if (codes.stride == 1) {  // a position's words lie side by side: encode where they shall lie
    encode_sliced(side.codec, side.slice, x, {codes.first, words}, {p, params});
  } else {
    encode_record(side.codec, x, {w, words}, {p, params});
    copy_part<const std::uint32_t>({w, 1}, codes, words);
  }
  copy_part<const std::uint32_t>({p, 1}, params_of(side, side.param_words(block), position), params);
}

void prefetch_store(const BlockLayout& layout, std::byte* block, int position) {
  // Every kLineBytes of what the position's words span.
  const auto ask = [](Part<std::uint32_t> part, int words) {
    const std::size_t a_line = std::max<std::size_t>(1, kLineBytes / sizeof(std::uint32_t) / part.stride);
    for (std::size_t w = 0; w < static_cast<std::size_t>(words); w += a_line)
      __builtin_prefetch(part.first + w * part.stride, 1);
  };
  for (const SideLayout* side : {&layout.keys, &layout.values}) {
    ask(codes_of(*side, side->codes(block), position), side->words);
    ask(params_of(*side, side->param_words(block), position), side->params);
  }
}

}  // namespace windrow
