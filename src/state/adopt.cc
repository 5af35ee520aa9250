// Rows entering a store: adopt and copy.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "state/copy_positions.h"
#include "state/row_records.h"

namespace windrow {
namespace {

Status signature_error(const char* call, const std::string& theirs, const std::string& ours) {
  return Status(StatusCode::kFailedPrecondition,
                fmt::format("{}: the row's signature is\n  {}\nthis store's\n  {}", call,
                            theirs.empty() ? "(missing)" : theirs, ours));
}

Status check_length(const char* call, const StateStore::Impl& store, int length) {
  if (length >= 0 && length <= store.plan.limits().tokens) return Status();
  return Status(
      length < 0 ? StatusCode::kInvalidArgument : StatusCode::kResourceExhausted,
      fmt::format("{}: a row of {} positions, the plan allows {}", call, length, store.plan.limits().tokens));
}

// What a table of this store will hold of a row of that length.
struct Extent {
  int storage = kFinal;
  std::int32_t retained = 0;
  std::int32_t floor = 0;
};

// Takes the pages of a row's tables, all or none. Lock held.
Status take_pages(const char* call, StateStore::Impl& store, Row::Impl& row,
                  std::span<const Extent> extents) {
  for (int g = 0; g < store.groups(); g++) {
    const Extent& extent = extents[static_cast<std::size_t>(g)];
    PageTable& table = row.tables[static_cast<std::size_t>(g)];
    table.storage = extent.storage;
    table.retained = extent.retained;
    table.floor = extent.floor;
    table.list = PageList::make(store.table(extent.storage, g).capacity);
    const std::int32_t needed = table.wanted_pages(store.table(extent.storage, g), row.length);
    if (PagePool& pool = store.pool(extent.storage, g); !pool.has_free(needed)) {
      return Status(
          StatusCode::kResourceExhausted,
          fmt::format("{}: {} pages needed, {} of group {} are free", call, needed, pool.free_pages(), g));
    }
  }
  for (int g = 0; g < store.recurrent_groups(); g++) {
    if (row.length > 0 && store.states[static_cast<std::size_t>(g)].free_pages() == 0) {
      return Status(StatusCode::kResourceExhausted,
                    fmt::format("{}: no state of recurrent group {} is free", call, g));
    }
  }
  for (int g = 0; g < store.groups(); g++) {
    PageTable& table = row.tables[static_cast<std::size_t>(g)];
    table.take_all(store.table(table.storage, g), store.pool(table.storage, g), row.length);
  }
  for (int g = 0; g < store.recurrent_groups(); g++) {
    if (row.length > 0)
      row.states[static_cast<std::size_t>(g)] = store.states[static_cast<std::size_t>(g)].take();
  }
  return Status();
}

// Whether one layer's records are what this plan's group holds of a row of `length` positions.
Status check_layer(const StateStore::Impl& store, const LayerRecords& records, int g, int layer, int length) {
  const AttentionGroup& group = store.group(g);
  const auto refuse = [&](std::string what) {
    return Status(StatusCode::kInvalidArgument, fmt::format("adopt: layer {}: {}", layer, what));
  };
  if (records.layer != layer)
    return refuse(fmt::format("records of layer {} stand in its place", records.layer));
  if (records.end != length)
    return refuse(fmt::format("records up to position {} of a row of {}", records.end, length));
  if (Status s = check_layer_records(fmt::format("adopt: layer {}", layer), group, records); !s.ok())
    return s;
  if (!records.converted && length > group.delayed->start) {
    return refuse(fmt::format("not converted at length {}, its delayed codecs end at {}", length,
                              group.delayed->start));
  }
  return Status();
}

// All of the records against the plan; fills what each group's table will be.
Status check_records(const StateStore::Impl& store, const RowRecords& records, std::vector<Extent>& extents) {
  std::size_t at = 0;
  for (int g = 0; g < store.groups(); g++) {
    const std::vector<int>& layers = store.group(g).layers;
    for (std::size_t slot = 0; slot < layers.size(); slot++, at++) {
      if (at >= records.layers.size())
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("adopt: no records of layer {}", layers[slot]));
      const LayerRecords& layer = records.layers[at];
      if (Status s = check_layer(store, layer, g, layers[slot], records.length); !s.ok()) return s;
      const LayerRecords& first = records.layers[at - slot];
      if (layer.begin != first.begin || layer.converted != first.converted) {
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("adopt: layers {} and {} of one group hold different positions or codecs",
                                  first.layer, layer.layer));
      }
    }
    const LayerRecords& first = records.layers[at - layers.size()];
    extents.push_back({first.converted ? kFinal : kEarly,
                       std::max(first.begin, store.retained(g, records.length)),
                       first.converted && store.group(g).delayed ? records.length : 0});
  }
  std::size_t state = 0;
  for (int g = 0; g < store.recurrent_groups(); g++) {
    const RecurrentShape& shape = store.shape(g);
    for (const int layer : store.plan.recurrent(g).layers) {
      const RecurrentRecords* its = state < records.recurrent.size() ? &records.recurrent[state] : nullptr;
      if (its == nullptr || its->layer != layer || its->state.size() != shape.delta.state_floats() ||
          its->tail.size() != shape.conv.tail_floats()) {
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("adopt: recurrent layer {}: no state of {} + {} numbers in its place",
                                  layer, shape.delta.state_floats(), shape.conv.tail_floats()));
      }
      state++;
    }
  }
  if (at != records.layers.size() || state != records.recurrent.size()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("adopt: {} layers and {} recurrent ones, the plan has {} and {}",
                              records.layers.size(), records.recurrent.size(), at, state));
  }
  return Status();
}

// The positions of group g, out of a row of another store with equal codecs.
void copy_group(const Row::Impl& from, const Row::Impl& to, int g) {
  const PageTable& source = from.tables[static_cast<std::size_t>(g)];
  const PageTable& target = to.tables[static_cast<std::size_t>(g)];
  const StateStore::Impl &theirs = *from.store, &ours = *to.store;
  const BlockLayout &in = theirs.layout(source.storage, g), &out = ours.layout(target.storage, g);
  const TableShape &in_shape = theirs.table(source.storage, g), &out_shape = ours.table(target.storage, g);
  const auto promised = [&](std::int32_t p) { return target.promised_from(out_shape, p); };
  for (std::int32_t p = promised(0); p < to.length; p = promised(p + 1)) {
    const PagePool &read = theirs.pool(source.storage, g), &write = ours.pool(target.storage, g);
    copy_position(in, read.page(source.at(in_shape, in_shape.page_of(p))), in_shape.in_page(p), out,
                  write.page(target.at(out_shape, out_shape.page_of(p))), out_shape.in_page(p),
                  write.page_bytes());
  }
}

}  // namespace

Result<Row> StateStore::adopt(const RowRecords& records) try {
  StateStore::Impl& store = *impl_;
  if (records.signature != store.plan.signature())
    return signature_error("adopt", records.signature, store.plan.signature());
  if (Status s = check_length("adopt", store, records.length); !s.ok()) return s;
  std::vector<Extent> extents;
  if (Status s = check_records(store, records, extents); !s.ok()) return s;
  Result<std::shared_ptr<Row::Impl>> row = make_row(impl_, "adopt");
  if (!row.ok()) return row.status();
  (*row)->length = records.length;
  {
    const std::lock_guard lock(store.mutex);
    if (Status s = take_pages("adopt", store, **row, extents); !s.ok()) return s;
  }
  std::size_t at = 0, state = 0;
  for (int g = 0; g < store.groups(); g++) {
    for (std::size_t slot = 0; slot < store.group(g).layers.size(); slot++)
      visit_records(
          **row, g, static_cast<int>(slot), records.layers[at++],
          [](const SideLayout& side, std::byte* block, int position, std::span<const std::uint32_t> words,
             std::span<const std::uint32_t> params) { side.put(block, position, words, params); });
  }
  for (int g = 0; g < store.recurrent_groups(); g++) {
    for (std::size_t slot = 0; slot < store.plan.recurrent(g).layers.size(); slot++, state++) {
      const PageId page = (*row)->states[static_cast<std::size_t>(g)];
      if (page == kNoPage) continue;
      const RecurrentRecords& its = records.recurrent[state];
      std::copy(its.state.begin(), its.state.end(), store.layer_state(g, page, static_cast<int>(slot)));
      std::copy(its.tail.begin(), its.tail.end(), store.layer_tail(g, page, static_cast<int>(slot)));
    }
  }
  if (Status s = store.check_if_poison(); !s.ok()) return s;
  return Row(std::move(*row));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<Row> StateStore::copy(const Row& other) try {
  const Row::Impl& from = *other.impl_;
  StateStore::Impl& store = *impl_;
  if (from.store->plan.signature() != store.plan.signature())
    return signature_error("copy", from.store->plan.signature(), store.plan.signature());
  if (from.in_step) return Status(StatusCode::kFailedPrecondition, "copy: the row stands in an open step");
  if (Status s = check_length("copy", store, from.length); !s.ok()) return s;
  Result<std::shared_ptr<Row::Impl>> row = make_row(impl_, "copy");
  if (!row.ok()) return row.status();
  (*row)->length = from.length;
  std::vector<Extent> extents;
  for (int g = 0; g < store.groups(); g++) {
    const PageTable& table = from.tables[static_cast<std::size_t>(g)];
    extents.push_back({table.storage, std::max(table.retained, store.retained(g, from.length)), table.floor});
  }
  {
    const std::lock_guard lock(store.mutex);
    if (Status s = take_pages("copy", store, **row, extents); !s.ok()) return s;
  }
  for (int g = 0; g < store.groups(); g++) copy_group(from, **row, g);
  for (int g = 0; g < store.recurrent_groups(); g++) {
    const PageId page = (*row)->states[static_cast<std::size_t>(g)];
    if (page == kNoPage) continue;
    std::memcpy(
        store.states[static_cast<std::size_t>(g)].page(page),
        from.store->states[static_cast<std::size_t>(g)].page(from.states[static_cast<std::size_t>(g)]),
        store.states[static_cast<std::size_t>(g)].page_bytes());
  }
  if (Status s = store.check_if_poison(); !s.ok()) return s;
  return Row(std::move(*row));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
