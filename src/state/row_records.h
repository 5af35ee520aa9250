// The walk that extract and adopt share: a layer's records beside the places in a row's pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "state/layer_records.h"
#include "state/state_impl.h"

namespace windrow {

// visit(side, block, slot, words, params) for keys and values of every head and of every position of the
// records that the row promises. `Records` may be const.
template <typename Records, typename Visit>
void visit_records(const Row::Impl& row, int g, int layer_slot, Records& records, Visit visit) {
  const StateStore::Impl& store = *row.store;
  const PageTable& table = row.tables[static_cast<std::size_t>(g)];
  const TableShape& shape = store.table(table.storage, g);
  const BlockLayout& layout = store.layout(table.storage, g);
  const auto words_at = [](auto& all, std::size_t i, int each) {
    return std::span(all).subspan(i * static_cast<std::size_t>(each), static_cast<std::size_t>(each));
  };
  const std::size_t n = static_cast<std::size_t>(records.positions());
  for (std::size_t h = 0; h < static_cast<std::size_t>(store.group(g).kv_heads); h++) {
    for (std::size_t i = 0; i < n; i++) {
      const std::int32_t p = position_of(records, static_cast<int>(i));
      if (table.promised_from(shape, p) != p) continue;
      std::byte* block = store.pool(table.storage, g).page(table.at(shape, shape.page_of(p))) +
                         static_cast<std::size_t>(layer_slot) * store.layer_bytes(table.storage, g) +
                         h * layout.bytes;
      const std::size_t at = h * n + i;
      visit(layout.keys, block, shape.in_page(p), words_at(records.key_words, at, layout.keys.words),
            words_at(records.key_params, at, layout.keys.params));
      visit(layout.values, block, shape.in_page(p), words_at(records.value_words, at, layout.values.words),
            words_at(records.value_params, at, layout.values.params));
    }
  }
}

}  // namespace windrow
