// What a step holds of one group, and gives back.
#include <algorithm>

#include "state/state_impl.h"

namespace windrow {

GroupView::~GroupView() {
  const std::lock_guard lock(store->mutex);
  release();
}

void GroupView::release_lists() noexcept {
  for (std::size_t r = 0; r < lists.size(); r++) unref(store->pool(rows[r].storage, group), lists[r]);
  lists.clear();
}

void GroupView::release() noexcept {
  release_lists();
  for (const KvRead::Row& row : rows) {
    PagePool& pool = store->pool(row.storage, group);
    for (std::int32_t i = 0; i < row.fresh_size; i++) {
      if (row.fresh[i] != kNoPage) pool.unref(row.fresh[i]);
    }
  }
  for (std::size_t r = 0; r + 1 < target_offsets.size(); r++) {
    if (target_offsets[r] == target_offsets[r + 1]) continue;
    PagePool& pool = store->pool(rows[first_of[r]].storage, group);
    for (std::size_t i = target_offsets[r]; i < target_offsets[r + 1]; i++) {
      if (targets[i] != kNoPage) pool.unref(targets[i]);
    }
  }
  for (Crossing& crossing : crossings) crossing.next.release(store->pool(kFinal, group));
  rows.clear();
  fresh.clear();
  targets.clear();
  target_offsets.clear();
  crossings.clear();
}

std::byte* GroupView::block(const KvRead::Row& row, std::int32_t slot, int layer_slot, int head) const {
  const TableShape& table = store->table(row.storage, group);
  const std::size_t in_page = static_cast<std::size_t>(layer_slot * store->group(group).kv_heads + head);
  return store->pool(row.storage, group).page(row.page_of(table.page_of(slot), table.sink_pages)) +
         in_page * store->layout(row.storage, group).bytes;
}

GroupView::Crossing* GroupView::crossing_of(std::size_t row) {
  const auto found = std::find_if(crossings.begin(), crossings.end(),
                                  [row](const Crossing& crossing) { return crossing.row == row; });
  return found == crossings.end() ? nullptr : &*found;
}

}  // namespace windrow
