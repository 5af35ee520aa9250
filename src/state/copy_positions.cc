#include "state/copy_positions.h"

#include "codec/affine.h"

namespace windrow {
namespace {

std::span<std::uint32_t> part(std::uint32_t* words, int count) {
  return {words, static_cast<std::size_t>(count)};
}

void convert_side(const SideLayout& from, const std::byte* source, const SideLayout& to, std::byte* target,
                  std::int32_t slot) {
  std::uint32_t words[affine::kMaxWords], params[affine::kMaxParams];
  float values[affine::kMaxDim];
  const std::span<float> numbers(values, static_cast<std::size_t>(from.head_dim));
  from.get(source, slot, part(words, from.words), part(params, from.params));
  decode_record(from.codec, part(words, from.words), part(params, from.params), numbers);
  store_vector(to, target, slot, values);
}

}  // namespace

void copy_position(const BlockLayout& from, const std::byte* source, std::int32_t from_slot,
                   const BlockLayout& to, std::byte* target, std::int32_t to_slot, std::size_t to_bytes) {
  for (std::size_t block = 0; block < to_bytes / to.bytes; block++) {
    const std::byte* in = source + block * from.bytes;
    std::byte* out = target + block * to.bytes;
    copy_record(from.keys, in, from_slot, to.keys, out, to_slot);
    copy_record(from.values, in, from_slot, to.values, out, to_slot);
  }
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
  const TableShape& shape = store.table(kFinal, view.group);
  const auto promised = [&](std::int32_t p) { return crossing.next.promised_from(shape, p); };
  for (std::int32_t p = promised(0); p < row.length; p = promised(p + 1)) {
    for (int h = 0; h < store.group(view.group).kv_heads; h++) {
      convert_position(from, view.block(view.rows[crossing.row - 1], p, layer_slot, h), to,
                       view.block(row, p, layer_slot, h), shape.in_page(p));
    }
  }
}

}  // namespace windrow
