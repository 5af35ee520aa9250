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
  store->live_rows--;
}

Result<std::shared_ptr<Row::Impl>> make_row(const std::shared_ptr<StateStore::Impl>& store,
                                            const char* call) {
  const int limit = store->plan.limits().rows;
  const std::lock_guard lock(store->mutex);
  if (store->live_rows >= limit) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{}: all {} rows of the plan are live", call, limit));
  }
  auto row = std::make_shared<Row::Impl>(store);
  store->live_rows++;
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

void Row::Impl::share_with(Impl& fork) const noexcept {
  const std::lock_guard lock(store->mutex);
  fork.length = length;
  for (std::size_t g = 0; g < tables.size(); g++) {
    fork.tables[g] = tables[g];
    fork.tables[g].spare = nullptr;
    tables[g].list->refs++;
  }
  fork.states = states;  // of equal size: no allocation
  for (std::size_t g = 0; g < states.size(); g++) {
    if (states[g] != kNoPage) store->states[g].ref(states[g]);
  }
}

void Row::Impl::cut(std::int32_t to) {
  const std::lock_guard lock(store->mutex);
  for (std::size_t g = 0; g < tables.size(); g++) {
    if (tables[g].shared()) tables[g].ensure_spare(store->table(tables[g].storage, static_cast<int>(g)));
  }
  length = to;
  for (int g = 0; g < store->groups(); g++) {
    PageTable& table = tables[static_cast<std::size_t>(g)];
    table.trim(store->table(table.storage, g), store->pool(table.storage, g), length);
    store->poison(g, table, length);
  }
}

Status Row::Impl::convert(int group) {
  PageTable& table = tables[static_cast<std::size_t>(group)];
  if (table.storage == kFinal) return Status();
  const TableShape& shape = store->table(kFinal, group);
  const TableShape& early = store->table(kEarly, group);
  PagePool& pool = store->pool(kFinal, group);
  PageTable next;
  next.retained = table.retained;
  next.floor = length;
  const std::lock_guard lock(store->mutex);
  const std::int32_t needed = next.wanted_pages(shape, length);
  if (!pool.has_free(needed)) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("convert: {} pages needed, {} of group {} are free", needed, pool.free_pages(), group));
  }
  next.list = PageList::make(shape.capacity);
  next.take_all(shape, pool, length);
  const BlockLayout &in = store->layout(kEarly, group), &out = store->layout(kFinal, group);
  const std::size_t blocks = pool.page_bytes() / out.bytes;
  const auto promised = [&](std::int32_t p) { return next.promised_from(shape, p); };
  for (std::int32_t p = promised(0); p < length; p = promised(p + 1)) {
    const std::byte* source = store->pool(kEarly, group).page(table.at(early, early.page_of(p)));
    std::byte* target = pool.page(next.at(shape, shape.page_of(p)));
    for (std::size_t block = 0; block < blocks; block++)
      convert_position(in, source + block * in.bytes, out, target + block * out.bytes, shape.in_page(p));
  }
  table.release(store->pool(kEarly, group));
  table = next;
  return Status();
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
  impl_->share_with(**copy);
  if (Status s = impl_->store->check_if_poison(); !s.ok()) return s;
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
  impl_->cut(length);
  return impl_->store->check_if_poison();
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
  if (Status s = impl_->convert(group); !s.ok()) return s;
  return store.check_if_poison();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
