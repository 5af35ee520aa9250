// Row: fork, truncate, convert.
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "state/copy_positions.h"
#include "state/state_impl.h"

namespace windrow {

Row::Impl::Impl(std::shared_ptr<StateStore::Impl> s)
    : store(std::move(s)),
      tables(static_cast<std::size_t>(store->groups())),
      states(static_cast<std::size_t>(store->recurrent_groups()), kNoPage) {}

Row::Impl::~Impl() {
  const std::lock_guard lock(store->mutex);
  for (std::size_t g = 0; g < tables.size(); g++)
    tables[g].release(store->pool(tables[g].storage, static_cast<int>(g)));
  for (std::size_t g = 0; g < states.size(); g++) {
    if (states[g] != kNoPage) store->states[g].unref(states[g]);
  }
  if (counted) store->live_rows--;
}

Result<std::shared_ptr<Row::Impl>> make_row(const std::shared_ptr<StateStore::Impl>& store,
                                            const char* call) {
  auto row = std::make_shared<Row::Impl>(store);
  const int limit = store->plan.limits().rows;
  const std::lock_guard lock(store->mutex);
  if (store->live_rows >= limit) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{}: all {} rows of the plan are live", call, limit));
  }
  store->live_rows++;
  row->counted = true;
  return row;
}

int Row::Impl::minimum_length() const {
  int lowest = states.empty() ? 0 : length;  // a recurrent state can't go back
  for (std::size_t g = 0; g < tables.size(); g++) {
    const TableShape& shape = store->table(tables[g].storage, static_cast<int>(g));
    const std::int32_t from = tables[g].complete_from(shape);
    // The first query after a cut to t sees from t - (W - 1) on.
    if (from > 0) lowest = std::max(lowest, from + store->group(static_cast<int>(g)).window - 1);
    lowest = std::max(lowest, tables[g].floor);
  }
  return lowest;
}

Row::Row(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Row::Row(Row&&) noexcept = default;
Row& Row::operator=(Row&&) noexcept = default;
Row::~Row() = default;

int Row::length() const noexcept { return impl_->length; }
int Row::minimum_length() const noexcept { return impl_->minimum_length(); }
bool Row::converted(int group) const noexcept {
  return impl_->tables[static_cast<std::size_t>(group)].storage == kFinal;
}

std::size_t Row::bytes() const noexcept {
  std::size_t sum = 0;
  for (std::size_t g = 0; g < impl_->tables.size(); g++) {
    const PageTable& table = impl_->tables[g];
    sum += table.list->pages.size() * impl_->store->pool(table.storage, static_cast<int>(g)).page_bytes();
  }
  for (std::size_t g = 0; g < impl_->states.size(); g++) {
    if (impl_->states[g] != kNoPage) sum += impl_->store->states[g].page_bytes();
  }
  return sum;
}

Result<Row> Row::fork() const try {
  if (impl_->in_step) return Status(StatusCode::kFailedPrecondition, "fork: the row stands in an open step");
  Result<std::shared_ptr<Impl>> copy = make_row(impl_->store, "fork");
  if (!copy.ok()) return copy.status();
  const std::lock_guard lock(impl_->store->mutex);
  (*copy)->length = impl_->length;
  for (std::size_t g = 0; g < impl_->tables.size(); g++) {
    PageTable& to = (*copy)->tables[g];
    const PageTable& from = impl_->tables[g];
    to.storage = from.storage;
    to.retained = from.retained;
    to.floor = from.floor;
    to.list = from.list;
    to.list->refs++;
  }
  for (std::size_t g = 0; g < impl_->states.size(); g++) {
    (*copy)->states[g] = impl_->states[g];
    if (impl_->states[g] != kNoPage) impl_->store->states[g].ref(impl_->states[g]);
  }
  return Row(std::move(*copy));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status Row::truncate(int length) try {
  if (impl_->in_step)
    return Status(StatusCode::kFailedPrecondition, "truncate: the row stands in an open step");
  if (length < 0 || length > impl_->length) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("truncate: to {} positions, the row has {}", length, impl_->length));
  }
  const int lowest = impl_->minimum_length();
  if (length < lowest) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("truncate: to {} positions of {}, the lowest length still retained is {}",
                              length, impl_->length, lowest));
  }
  StateStore::Impl& store = *impl_->store;
  const std::lock_guard lock(store.mutex);
  for (int g = 0; g < store.groups(); g++) {
    PageTable& table = impl_->tables[static_cast<std::size_t>(g)];
    if (table.shared()) table.ensure_spare(store.table(table.storage, g));
  }
  impl_->length = length;
  for (int g = 0; g < store.groups(); g++) {
    PageTable& table = impl_->tables[static_cast<std::size_t>(g)];
    table.trim(store.table(table.storage, g), store.pool(table.storage, g), length);
    store.poison(g, table, length);
  }
  return store.check_if_poison();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status Row::convert(int group) try {
  StateStore::Impl& store = *impl_->store;
  if (group < 0 || group >= store.groups() || !store.group(group).delayed) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("convert: group {} has no delayed codecs", group));
  }
  if (impl_->in_step)
    return Status(StatusCode::kFailedPrecondition, "convert: the row stands in an open step");
  PageTable& table = impl_->tables[static_cast<std::size_t>(group)];
  if (table.storage == kFinal) return Status();
  const TableShape& shape = store.table(kFinal, group);
  const TableShape& early = store.table(kEarly, group);
  PagePool& pool = store.pool(kFinal, group);
  PageTable next;
  next.retained = table.retained;
  next.floor = impl_->length;
  const std::lock_guard lock(store.mutex);
  const std::int32_t end = shape.page_end(impl_->length),
                     first = next.complete_from(shape) / shape.page_tokens;
  const auto held = [&](std::int32_t number) { return number < shape.sink_pages || number >= first; };
  std::int32_t needed = 0;
  for (std::int32_t number = 0; number < end; number++) needed += held(number) ? 1 : 0;
  if (needed > pool.free_pages()) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("convert: {} pages needed, {} of group {} are free", needed, pool.free_pages(), group));
  }
  next.list = PageList::make(shape.capacity);
  const std::int32_t b = shape.page_tokens;
  const std::size_t blocks = pool.page_bytes() / store.layout(kFinal, group).bytes;
  for (std::int32_t number = 0; number < end; number++) {
    if (!held(number)) continue;
    const PageId page = pool.take();
    next.put(shape, pool, number, page);
    const std::byte* source = store.pool(kEarly, group).page(table.at(early, number));
    for (std::int32_t p = number * b; p < std::min(impl_->length, (number + 1) * b); p++) {
      if (p >= shape.sinks && p < next.complete_from(shape)) continue;
      for (std::size_t block = 0; block < blocks; block++) {
        convert_position(store.layout(kEarly, group), source + block * store.layout(kEarly, group).bytes,
                         store.layout(kFinal, group),
                         pool.page(page) + block * store.layout(kFinal, group).bytes, p % b);
      }
    }
  }
  table.release(store.pool(kEarly, group));
  table = next;
  return store.check_if_poison();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
