#include "state/row_fill.h"

#include <fmt/format.h>

#include <algorithm>

namespace windrow {
namespace {

Status check_length(const char* call, const StateStore::Impl& store, int length) {
  if (length >= 0 && length <= store.plan.limits().tokens) return Status();
  return Status(
      length < 0 ? StatusCode::kInvalidArgument : StatusCode::kResourceExhausted,
      fmt::format("{}: a row of {} positions, the plan allows {}", call, length, store.plan.limits().tokens));
}

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

}  // namespace

Result<std::shared_ptr<Row::Impl>> make_filled_row(const std::shared_ptr<StateStore::Impl>& store,
                                                   const char* call, int length,
                                                   std::span<const Extent> extents) {
  if (Status s = check_length(call, *store, length); !s.ok()) return s;
  Result<std::shared_ptr<Row::Impl>> row = make_row(store, call);
  if (!row.ok()) return row.status();
  (*row)->length = length;
  // The lock ends before the row, which takes it to give back what it has.
  const std::lock_guard lock(store->mutex);
  if (Status s = take_pages(call, *store, **row, extents); !s.ok()) return s;
  return row;
}

void put_part(const Row::Impl& row, const RowSide& at, RecordPart part, std::int32_t position, int count,
              const std::byte* data) {
  const StateStore::Impl& store = *row.store;
  const PageTable& table = row.tables[static_cast<std::size_t>(at.group)];
  const TableShape& shape = store.table(table.storage, at.group);
  const BlockLayout& layout = store.layout(table.storage, at.group);
  const SideLayout& side = at.keys ? layout.keys : layout.values;
  const std::size_t offset =
      static_cast<std::size_t>(at.layer_slot) * store.layer_bytes(table.storage, at.group) +
      static_cast<std::size_t>(at.head) * layout.bytes;
  const std::int32_t end = std::min(position + count, row.length);
  for (std::int32_t p = table.promised_from(shape, position); p < end;) {
    // As far as the page and the run of promised positions go.
    const std::int32_t number = shape.page_of(p);
    std::int32_t stop = std::min(end, (number + 1) << shape.page_shift);
    if (p < shape.sinks && table.complete_from(shape) > 0) stop = std::min(stop, shape.sinks);
    std::byte* block = store.pool(table.storage, at.group).page(table.at(shape, number)) + offset;
    side.put_part(part, block, shape.in_page(p), stop - p,
                  data + static_cast<std::size_t>(p - position) * side.part_bytes(part));
    p = table.promised_from(shape, stop);
  }
}

}  // namespace windrow
