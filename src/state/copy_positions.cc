#include "state/copy_positions.h"

#include <algorithm>

namespace windrow {
namespace {

std::span<std::uint32_t> part(std::uint32_t* words, int count) {
  return {words, static_cast<std::size_t>(count)};
}
std::span<const std::uint32_t> part(const std::uint32_t* words, int count) {
  return {words, static_cast<std::size_t>(count)};
}

void convert_side(const SideLayout& from, const std::byte* source, const SideLayout& to, std::byte* target,
                  std::int32_t slot) {
  std::uint32_t words[1024], params[64];
  float values[1024];
  const std::span<float> numbers(values, static_cast<std::size_t>(from.head_dim));
  from.get(source, slot, part(words, from.words), part(params, from.params));
  decode_record(from.codec, part(words, from.words), part(params, from.params), numbers);
  store_vector(to, target, slot, values);
}

}  // namespace

void PositionRecord::get(const BlockLayout& layout, const std::byte* block, std::int32_t slot) {
  layout.keys.get(block, slot, part(key_words, layout.keys.words), part(key_params, layout.keys.params));
  layout.values.get(block, slot, part(value_words, layout.values.words),
                    part(value_params, layout.values.params));
}

void PositionRecord::put(const BlockLayout& layout, std::byte* block, std::int32_t slot) const {
  layout.keys.put(block, slot, part(key_words, layout.keys.words), part(key_params, layout.keys.params));
  layout.values.put(block, slot, part(value_words, layout.values.words),
                    part(value_params, layout.values.params));
}

void convert_position(const BlockLayout& from, const std::byte* source, const BlockLayout& to,
                      std::byte* target, std::int32_t slot) {
  convert_side(from.keys, source, to.keys, target, slot);
  convert_side(from.values, source, to.values, target, slot);
}

void convert_positions(const GroupView& view, const GroupView::Crossing& crossing, int layer_slot) {
  const StateStore::Impl& store = *view.store;
  const KvRead::Row& row = view.rows[crossing.row];
  const BlockLayout& from = store.layout(kEarly, view.group);
  const BlockLayout& to = store.layout(kFinal, view.group);
  const std::int32_t b = store.page_tokens(), sinks = store.group(view.group).sinks;
  for (std::int32_t p = 0; p < row.length; p++) {
    if (p >= sinks && p < crossing.from) p = crossing.from;
    if (p >= row.length) break;
    for (int h = 0; h < store.group(view.group).kv_heads; h++) {
      convert_position(from, view.block(crossing.source, p, layer_slot, h), to,
                       view.block(row, p, layer_slot, h), p % b);
    }
  }
}

}  // namespace windrow
