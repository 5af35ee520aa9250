// Rows entering a store: adopt and copy.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "state/copy_positions.h"
#include "state/row_fill.h"
#include "state/row_records.h"

namespace windrow {
namespace {

// What each group's table will hold of the records' row.
std::vector<Extent> extents_of(const StateStore::Impl& store, const RowRecords& records) {
  std::vector<Extent> extents;
  std::size_t at = 0;
  for (int g = 0; g < store.groups(); g++) {
    const LayerRecords& first = records.layers[at];
    extents.push_back({first.converted ? kFinal : kEarly,
                       std::max(first.begin, store.retained(g, records.length)),
                       first.converted && store.group(g).delayed ? records.length : 0});
    at += store.group(g).layers.size();
  }
  return extents;
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
  if (Status s = check_row_records("adopt", store.plan, records); !s.ok()) return s;
  Result<std::shared_ptr<Row::Impl>> row =
      make_filled_row(impl_, "adopt", records.length, extents_of(store, records));
  if (!row.ok()) return row.status();
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
  if (Status s = check_signature("copy", from.store->plan.signature(), store.plan.signature()); !s.ok())
    return s;
  if (from.in_step) return Status(StatusCode::kFailedPrecondition, "copy: the row stands in an open step");
  std::vector<Extent> extents;
  for (int g = 0; g < store.groups(); g++) {
    const PageTable& table = from.tables[static_cast<std::size_t>(g)];
    extents.push_back({table.storage, std::max(table.retained, store.retained(g, from.length)), table.floor});
  }
  Result<std::shared_ptr<Row::Impl>> row = make_filled_row(impl_, "copy", from.length, extents);
  if (!row.ok()) return row.status();
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
