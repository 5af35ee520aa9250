// StateStore: creation, rows, and what poison mode looks after.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>

#include "state/state_impl.h"

namespace windrow {
namespace {

TableShape table_shape(const StatePlan& plan, int g, const GroupBytes& size) {
  TableShape shape;
  shape.page_tokens = plan.page_tokens();
  shape.page_shift = std::countr_zero(static_cast<unsigned>(shape.page_tokens));
  shape.sinks = plan.group(g).sinks;
  shape.sink_pages = sink_pages(plan.group(g), shape.page_tokens);
  shape.capacity = size.pages_per_row;
  return shape;
}

Status add_pool(std::vector<PagePool>& pools, std::size_t page_bytes, int pages, bool poison) {
  Result<PagePool> pool = PagePool::create(page_bytes, pages, poison, "state store");
  if (!pool.ok()) return pool.status();
  pools.push_back(std::move(*pool));
  return Status();
}

}  // namespace

Result<StateStore> StateStore::create(const StatePlan& plan, StoreOptions options) try {
  auto impl = std::make_shared<Impl>(plan, options);
  for (int g = 0; g < plan.group_count(); g++) {
    const GroupBytes* const sizes[kStorages] = {&plan.group_bytes(g), &plan.delayed_bytes(g)};
    for (int storage = 0; storage < kStorages; storage++) {
      if (Status s =
              add_pool(impl->pools[storage], sizes[storage]->page, sizes[storage]->pages, options.poison);
          !s.ok()) {
        return s;
      }
      impl->tables[storage].push_back(table_shape(plan, g, *sizes[storage]));
    }
  }
  for (int g = 0; g < plan.recurrent_count(); g++) {
    const RecurrentBytes& size = plan.recurrent_bytes(g);
    if (Status s = add_pool(impl->states, size.state, size.states, options.poison); !s.ok()) return s;
    if (Status s = add_pool(impl->records, size.record, size.records, options.poison); !s.ok()) return s;
  }
  return StateStore(std::move(impl));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

StateStore::StateStore(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
StateStore::StateStore(StateStore&&) noexcept = default;
StateStore& StateStore::operator=(StateStore&&) noexcept = default;
StateStore::~StateStore() = default;

const StatePlan& StateStore::plan() const noexcept { return impl_->plan; }
int StateStore::live_rows() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->live_rows;
}
PoolUse StateStore::pool_use(int group) const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool(kFinal, group).use();
}
PoolUse StateStore::delayed_pool_use(int group) const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool(kEarly, group).use();
}
PoolUse StateStore::state_pool_use(int recurrent_group) const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->states[static_cast<std::size_t>(recurrent_group)].use();
}
PoolUse StateStore::record_pool_use(int recurrent_group) const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->records[static_cast<std::size_t>(recurrent_group)].use();
}

std::size_t StateStore::bytes() const noexcept {
  std::size_t sum = 0;
  for (const auto* pools : {&impl_->pools[kFinal], &impl_->pools[kEarly], &impl_->states, &impl_->records}) {
    for (const PagePool& pool : *pools) sum += pool.bytes();
  }
  return sum;
}

Result<Row> StateStore::new_row() try {
  Result<std::shared_ptr<Row::Impl>> row = make_row(impl_, "state store");
  if (!row.ok()) return row.status();
  for (int g = 0; g < impl_->groups(); g++) {
    PageTable& table = (*row)->tables[static_cast<std::size_t>(g)];
    table.storage = impl_->group(g).delayed ? kEarly : kFinal;
    table.list = PageList::make(impl_->table(table.storage, g).capacity);
  }
  if (Status s = impl_->check_if_poison(); !s.ok()) return s;
  return Row(std::move(*row));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status StateStore::check() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->check();
}

Status StateStore::Impl::check() {
  const struct {
    std::vector<PagePool>& pools;
    const char* name;
  } kinds[] = {
      {pools[kFinal], "pages"}, {pools[kEarly], "delayed pages"}, {states, "states"}, {records, "records"}};
  for (const auto& kind : kinds) {
    for (std::size_t g = 0; g < kind.pools.size(); g++) {
      if (kind.pools[g].conserved()) continue;
      const PoolUse use = kind.pools[g].use();
      return Status(StatusCode::kInternal,
                    fmt::format("state store: {} of group {}: {} owned + {} free of {}", kind.name, g,
                                use.owned, use.free, use.pages));
    }
  }
  return Status();
}

RecurrentRecord StateStore::Impl::layer_record(int g, PageId page, int slot) const {
  const auto tokens = static_cast<std::size_t>(plan.limits().verify_tokens);
  return RecurrentRecord(shape(g),
                         records[static_cast<std::size_t>(g)].page(page) +
                             static_cast<std::size_t>(slot) * tokens * shape(g).record_bytes_per_token(),
                         tokens);
}

namespace {

void poison_slot(const BlockLayout& layout, std::byte* page, std::size_t page_bytes, std::int32_t slot) {
  for (std::byte* block = page; block < page + page_bytes; block += layout.bytes) {
    for (const SideLayout* side : {&layout.keys, &layout.values}) {
      for (int w = 0; w < side->words; w++) side->codes(block)[side->code_index(slot, w)] = ~0u;
      for (int w = 0; w < side->params; w++) side->param_words(block)[side->param_index(slot, w)] = ~0u;
    }
  }
}

}  // namespace

// Only pages at an edge can hold slots that are not promised: where the sinks end, where the retained
// positions begin, and the tail.
void StateStore::Impl::poison(int g, const PageTable& t, std::int32_t length) const {
  const PagePool& its = pool(t.storage, g);
  if (!its.poison() || t.list == nullptr || t.shared()) return;
  const TableShape& shape = table(t.storage, g);
  const std::int32_t b = shape.page_tokens;
  for (const std::int32_t edge : {shape.sinks, t.complete_from(shape), length}) {
    const std::int32_t number = shape.page_of(edge);
    if (!t.has(shape, number) || its.shared(t.at(shape, number))) continue;
    for (std::int32_t p = number * b; p < (number + 1) * b; p++) {
      if (p < length && t.promised_from(shape, p) == p) continue;
      poison_slot(layout(t.storage, g), its.page(t.at(shape, number)), its.page_bytes(), shape.in_page(p));
    }
  }
}

}  // namespace windrow
