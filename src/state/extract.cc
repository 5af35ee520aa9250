// Rows leaving a store as owned records.
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "state/row_records.h"

namespace windrow {
namespace {

enum class Extracted { kWindow, kRetained };

LayerRecords extract_layer(const Row::Impl& row, int layer, Extracted extracted) {
  const StateStore::Impl& store = *row.store;
  const StatePlan::Impl::Place place = store.details().place(layer);
  const AttentionGroup& group = store.group(place.group);
  const PageTable& table = row.tables[static_cast<std::size_t>(place.group)];
  const TableShape& shape = store.table(table.storage, place.group);
  const BlockLayout& layout = store.layout(table.storage, place.group);
  LayerRecords out;
  out.layer = layer;
  out.converted = table.storage == kFinal;
  out.end = row.length;
  // After a truncation less than W may be left; what is retained is then all there is.
  out.begin = table.complete_from(shape);
  if (extracted == Extracted::kWindow)
    out.begin = std::max(out.begin, row.length - std::min(row.length, group.window));
  out.sinks = std::min(group.sinks, out.begin);
  if (out.begin <= group.sinks) out.begin = out.sinks = 0;  // they touch
  const std::size_t n = static_cast<std::size_t>(out.positions()),
                    heads = static_cast<std::size_t>(group.kv_heads);
  const auto size = [&](int each) { return heads * n * static_cast<std::size_t>(each); };
  out.key_words.resize(size(layout.keys.words));
  out.key_params.resize(size(layout.keys.params));
  out.value_words.resize(size(layout.values.words));
  out.value_params.resize(size(layout.values.params));
  visit_records(row, place.group, place.slot, out,
                [](const SideLayout& side, const std::byte* block, int slot, std::span<std::uint32_t> words,
                   std::span<std::uint32_t> params) { side.get(block, slot, words, params); });
  return out;
}

RecurrentRecords extract_state(const Row::Impl& row, int g, int slot) {
  const StateStore::Impl& store = *row.store;
  const RecurrentShape& shape = store.shape(g);
  RecurrentRecords out;
  out.layer = store.plan.recurrent(g).layers[static_cast<std::size_t>(slot)];
  out.state.assign(shape.delta.state_floats(), 0.0f);
  out.tail.assign(shape.conv.tail_floats(), 0.0f);
  const PageId page = row.states[static_cast<std::size_t>(g)];
  if (page == kNoPage) return out;
  std::copy_n(store.layer_state(g, page, slot), out.state.size(), out.state.begin());
  std::copy_n(store.layer_tail(g, page, slot), out.tail.size(), out.tail.begin());
  return out;
}

RowRecords extract_all(const Row::Impl& row, Extracted extracted) {
  const StateStore::Impl& store = *row.store;
  RowRecords out;
  out.signature = store.plan.signature();
  out.length = row.length;
  for (int g = 0; g < store.groups(); g++) {
    for (const int layer : store.group(g).layers) out.layers.push_back(extract_layer(row, layer, extracted));
  }
  for (int g = 0; g < store.recurrent_groups(); g++) {
    for (std::size_t slot = 0; slot < store.plan.recurrent(g).layers.size(); slot++)
      out.recurrent.push_back(extract_state(row, g, static_cast<int>(slot)));
  }
  return out;
}

}  // namespace

Result<LayerRecords> Row::extract(int layer) const try {
  const StatePlan::Impl::Place place = impl_->store->details().place(layer);
  if (place.group < 0 || place.owner != layer) {
    return Status(StatusCode::kInvalidArgument,
                  place.group < 0 ? fmt::format("extract: layer {} is not in the plan", layer)
                                  : fmt::format("extract: layer {} shares layer {}", layer, place.owner));
  }
  return extract_layer(*impl_, layer, Extracted::kWindow);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<RowRecords> Row::extract() const try {
  return extract_all(*impl_, Extracted::kWindow);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<RowRecords> Row::extract_retained() const try {
  return extract_all(*impl_, Extracted::kRetained);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
