// resolve: what is kept of a step becomes the rows' state. All is checked first; what follows neither
// allocates nor fails.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

#include "state/copy_positions.h"
#include "state/state_impl.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }
Status precondition(std::string message) {
  return Status(StatusCode::kFailedPrecondition, std::move(message));
}

}  // namespace

Status Step::Impl::check_layers() const {
  const StatePlan::Impl& plan = store->details();
  for (int layer = 0; layer < static_cast<int>(plan.places.size()); layer++) {
    const StatePlan::Impl::Place& place = plan.places[static_cast<std::size_t>(layer)];
    if (place.group >= 0 && place.owner == layer && !appended[static_cast<std::size_t>(layer)])
      return precondition(fmt::format("resolve: layer {} was not appended in this step", layer));
    if (place.recurrent < 0) continue;
    const RecurrentView& view = recurrent[static_cast<std::size_t>(place.recurrent)];
    const auto slot = static_cast<std::size_t>(place.recurrent_slot);
    if (!view.convolved[slot] || !view.advanced[slot]) {
      return precondition(fmt::format("resolve: recurrent layer {} was not {} in this step", layer,
                                      view.convolved[slot] ? "advanced" : "convolved"));
    }
  }
  return Status();
}

Status Step::Impl::check_keep(std::size_t r, const Keep& keep) const {
  const int tokens = row_tokens(r);
  if (keep.count < 0 || keep.count > tokens)
    return invalid(fmt::format("resolve: row {} keeps {} of {} tokens", r, keep.count, tokens));
  if (keep.count == 0) return Status();
  if (is_block[r])
    return precondition(fmt::format("resolve: row {} is a block, which is read and not kept", r));
  int before = -1;
  for (int i = 0; i < keep.count; i++) {
    const int node = keep.path.empty() ? i : keep.path[static_cast<std::size_t>(i)];
    if (node < 0 || node >= tokens)
      return invalid(
          fmt::format("resolve: row {} has node {} in its path, it has {} nodes", r, node, tokens));
    const int parent =
        is_tree[r] ? shape->parents[static_cast<std::size_t>(shape->row_offsets[r] + node)] : node - 1;
    if (parent != before) {
      return invalid(fmt::format("resolve: row {} has node {} in its path after {}, its parent is {}", r,
                                 node, before, parent));
    }
    before = node;
  }
  if (keep.count < tokens && !is_tree[r]) {
    for (const RecurrentView& view : recurrent) {
      if (view.record[r] != kNoPage) continue;
      return precondition(fmt::format(
          "resolve: row {} keeps {} of {} tokens; with recurrent layers a part can be kept of at most "
          "verify_tokens = {}",
          r, keep.count, tokens, store->plan.limits().verify_tokens));
    }
  }
  return Status();
}

void Step::Impl::take_path(const Keep& keep) noexcept {
  path.clear();  // its capacity is the longest row's
  for (int i = 0; i < keep.count; i++)
    path.push_back(keep.path.empty() ? i : keep.path[static_cast<std::size_t>(i)]);
}

Status Step::resolve(std::span<const Keep> keep) try {
  if (!open()) return closed_step("resolve");
  if (keep.size() != impl_->rows.size())
    return invalid(fmt::format("resolve: {} counts for {} rows", keep.size(), impl_->rows.size()));
  bool any = false;
  for (std::size_t r = 0; r < keep.size(); r++) {
    if (Status s = impl_->check_keep(r, keep[r]); !s.ok()) return s;
    any = any || keep[r].count > 0;
  }
  if (any) {
    if (Status s = impl_->check_layers(); !s.ok()) return s;
  }
  {
    const std::lock_guard lock(impl_->store->mutex);
    for (int g = 0; g < impl_->store->groups(); g++) {  // group by group, as begin
      GroupView& view = *impl_->views[static_cast<std::size_t>(g)];
      // Without a KvRead the tables' lists are the rows' again, to be changed in place.
      const bool leased = impl_->views[static_cast<std::size_t>(g)].use_count() > 1;
      if (!leased) view.release_lists();
      for (std::size_t r = 0; r < keep.size(); r++) {
        if (impl_->take_path(keep[r]); !impl_->path.empty()) impl_->publish_group(r, g);
      }
      if (!leased) view.release();
    }
    for (std::size_t r = 0; r < keep.size(); r++) {
      if (impl_->take_path(keep[r]); impl_->path.empty()) continue;
      for (int g = 0; g < impl_->store->recurrent_groups(); g++) impl_->publish_state(r, g);
      impl_->rows[r]->length += static_cast<std::int32_t>(impl_->path.size());
    }
  }
  impl_->close();
  return impl_->store->check_if_poison();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status Step::resolve(std::span<const int> keep) try {
  return resolve(std::span<const Keep>(std::vector<Keep>(keep.begin(), keep.end())));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status Step::resolve() try {
  if (!open()) return closed_step("resolve");
  std::vector<Keep> keep;
  for (std::size_t r = 0; r < impl_->rows.size(); r++) keep.emplace_back(impl_->row_tokens(r));
  return resolve(keep);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

// Puts the accepted path of a tree together in the pages kept ready for it: slots become positions.
void Step::Impl::gather_path(std::size_t r, int g) noexcept {
  GroupView& view = *views[static_cast<std::size_t>(g)];
  const KvRead::Row& row = view.rows[view.first_of[r]];
  const PagePool& pool = store->pool(row.storage, g);
  const BlockLayout& layout = store->layout(row.storage, g);
  const TableShape& table = store->table(row.storage, g);
  const std::int32_t first = table.page_of(row.length);
  const PageId* targets = view.targets.data() + view.target_offsets[r];
  if (table.in_page(row.length) != 0)
    std::memcpy(pool.page(targets[0]), pool.page(row.fresh[0]), pool.page_bytes());
  for (std::size_t i = 0; i < path.size(); i++) {
    const std::int32_t from = row.length + path[i], to = row.length + static_cast<std::int32_t>(i);
    copy_position(layout, pool.page(row.fresh[table.page_of(from) - first]), table.in_page(from), layout,
                  pool.page(targets[table.page_of(to) - first]), table.in_page(to), pool.page_bytes());
  }
}

void Step::Impl::publish_group(std::size_t r, int g) noexcept {
  GroupView& view = *views[static_cast<std::size_t>(g)];
  PageTable& table = rows[r]->tables[static_cast<std::size_t>(g)];
  const std::int32_t length = rows[r]->length + static_cast<std::int32_t>(path.size());
  std::size_t at = view.first_of[r];
  if (at + 1 < view.first_of[r + 1] && length > view.rows[at + 1].length) {
    GroupView::Crossing* crossing = view.crossing_of(at + 1);
    assert(crossing != nullptr);
    at++;
    std::swap(table, crossing->next);
    // The view gives back the early table; its pages were counted in the early pool.
    crossing->next.release(store->pool(kEarly, g));
  }
  const KvRead::Row& row = view.rows[at];
  const TableShape& table_shape = store->table(row.storage, g);
  PagePool& pool = store->pool(row.storage, g);
  const PageId* pages = row.fresh;
  bool straight = true;
  for (std::size_t i = 0; i < path.size(); i++) straight = straight && path[i] == static_cast<int>(i);
  if (!straight) {
    gather_path(r, g);
    pages = view.targets.data() + view.target_offsets[r];
  }
  table.retained = std::max(table.retained, store->retained(g, length));
  table.trim(table_shape, pool, length);  // first, so that the table never outgrows its capacity
  const std::int32_t first = table_shape.page_of(row.length);
  for (std::int32_t number = first; number < table_shape.page_end(length); number++) {
    if (!table.wants(table_shape, number)) continue;
    const PageId page = pages[number - first];
    if (table.has(table_shape, number) && table.at(table_shape, number) == page) continue;  // its own tail
    pool.ref(page);  // the view gives its own count back
    table.put(table_shape, pool, number, page);
  }
}

void Step::Impl::publish_state(std::size_t r, int g) noexcept {
  RecurrentView& view = recurrent[static_cast<std::size_t>(g)];
  PagePool& pool = store->states[static_cast<std::size_t>(g)];
  PageId& state = rows[r]->states[static_cast<std::size_t>(g)];
  const PageId next = view.next[r];
  if (is_tree[r] || std::cmp_less(path.size(), row_tokens(r))) {  // replay what is kept, from the old state
    for (int slot = 0; slot < static_cast<int>(store->plan.recurrent(g).layers.size()); slot++) {
      float* to_state = store->layer_state(g, next, slot);
      float* to_tail = store->layer_tail(g, next, slot);
      const float* from_state = to_state;
      const float* from_tail = to_tail;
      if (state != kNoPage) {
        from_state = store->layer_state(g, state, slot);
        from_tail = store->layer_tail(g, state, slot);
      } else {
        std::memset(to_state, 0, store->shape(g).state_bytes());
      }
      store->layer_record(g, view.record[r], slot).replay(path, from_state, from_tail, to_state, to_tail);
    }
  }
  if (state != kNoPage) pool.unref(state);
  state = next;
  view.next[r] = kNoPage;
}

}  // namespace windrow
