// Row: fork, truncate, extract.
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "state/state_impl.h"

namespace windrow {

Row::Impl::~Impl() {
  for (std::size_t g = 0; g < tables.size(); g++) {
    for (const PageId page : tables[g].pages) store->pools[g].unref(page);
  }
  store->live_rows--;
}

int Row::Impl::minimum_length() const {
  int lowest = 0;
  for (std::size_t g = 0; g < tables.size(); g++) {
    const std::int32_t retained = tables[g].retained;
    // The first query after a cut to t sees from t - (W - 1) on.
    if (retained > 0) lowest = std::max(lowest, retained + store->group(static_cast<int>(g)).window - 1);
  }
  return lowest;
}

void Row::Impl::trim_table(int g) noexcept {
  PageTable& table = tables[static_cast<std::size_t>(g)];
  PagePool& pool = store->pools[static_cast<std::size_t>(g)];
  const std::int32_t b = store->page_tokens();
  const std::int32_t first = table.retained / b, end = (length + b - 1) / b;
  while (!table.pages.empty() && table.end_page() > end) {
    pool.unref(table.pages.back());
    table.pages.pop_back();
  }
  const auto gone = static_cast<std::size_t>(
      std::clamp(first - table.first_page, 0, static_cast<std::int32_t>(table.pages.size())));
  for (std::size_t i = 0; i < gone; i++) pool.unref(table.pages[i]);
  table.pages.erase(table.pages.begin(), table.pages.begin() + static_cast<std::ptrdiff_t>(gone));
  table.first_page = first;
  if (!pool.poison()) return;
  // Slots of our own pages that hold nothing promised: below retained, and from length on.
  if (table.has(first) && !pool.shared(table.at(first))) {
    store->poison_positions(g, table.at(first), 0, table.retained - first * b);
  }
  if (table.has(end - 1) && !pool.shared(table.at(end - 1))) {
    store->poison_positions(g, table.at(end - 1), length - (end - 1) * b, b);
  }
}

Row::Row(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Row::Row(Row&&) noexcept = default;
Row& Row::operator=(Row&&) noexcept = default;
Row::~Row() = default;

int Row::length() const noexcept { return impl_->length; }
int Row::minimum_length() const noexcept { return impl_->minimum_length(); }

std::size_t Row::bytes() const noexcept {
  std::size_t sum = 0;
  for (std::size_t g = 0; g < impl_->tables.size(); g++) {
    sum += impl_->tables[g].pages.size() * impl_->store->pools[g].page_bytes();
  }
  return sum;
}

Result<Row> Row::fork() const try {
  StateStore::Impl& store = *impl_->store;
  if (impl_->in_step) return Status(StatusCode::kFailedPrecondition, "fork: the row stands in an open step");
  if (store.live_rows >= store.plan.limits().rows) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("fork: all {} rows of the plan are live", store.plan.limits().rows));
  }
  auto copy = std::make_shared<Impl>(impl_->store);
  copy->length = impl_->length;
  copy->tables.reserve(impl_->tables.size());
  for (std::size_t g = 0; g < impl_->tables.size(); g++) {
    const PageTable& from = impl_->tables[g];
    PageTable to;
    to.first_page = from.first_page;
    to.retained = from.retained;
    to.pages.reserve(static_cast<std::size_t>(store.plan.group_bytes(static_cast<int>(g)).pages_per_row));
    to.pages.assign(from.pages.begin(), from.pages.end());
    copy->tables.push_back(std::move(to));
    for (const PageId page : from.pages) store.pools[g].ref(page);
  }
  return Row(std::move(copy));
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kResourceExhausted, "fork: out of memory");
}

Status Row::truncate(int length) {
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
  impl_->length = length;
  for (int g = 0; g < impl_->store->groups(); g++) impl_->trim_table(g);
  return Status();
}

Result<LayerRecords> Row::extract(int layer) const try {
  const StateStore::Impl& store = *impl_->store;
  const int g = store.plan.group_of_layer(layer);
  if (g < 0)
    return Status(StatusCode::kInvalidArgument, fmt::format("extract: layer {} is not in the plan", layer));
  const AttentionGroup& group = store.group(g);
  const BlockLayout& layout = store.layout(g);
  const PageTable& table = impl_->tables[static_cast<std::size_t>(g)];
  const PagePool& pool = store.pools[static_cast<std::size_t>(g)];
  LayerRecords out;
  out.layer = layer;
  out.end = impl_->length;
  // After a truncation less than W may be left; what is retained is then all there is.
  out.begin = std::max(table.retained, impl_->length - std::min(impl_->length, group.window));
  const auto heads = static_cast<std::size_t>(group.kv_heads),
             n = static_cast<std::size_t>(out.end - out.begin);
  const auto size = [&](int per_position) { return heads * n * static_cast<std::size_t>(per_position); };
  out.key_words.resize(size(layout.keys.words));
  out.key_params.resize(size(layout.keys.params));
  out.value_words.resize(size(layout.values.words));
  out.value_params.resize(size(layout.values.params));
  const std::size_t layer_offset =
      static_cast<std::size_t>(store.plan.slot_of_layer(layer)) * store.layer_bytes(g);
  const auto part = [](std::vector<std::uint32_t>& all, std::size_t i, int each) {
    return std::span<std::uint32_t>(all).subspan(i * static_cast<std::size_t>(each),
                                                 static_cast<std::size_t>(each));
  };
  for (std::size_t h = 0; h < heads; h++) {
    for (std::size_t i = 0; i < n; i++) {
      const std::int32_t p = out.begin + static_cast<std::int32_t>(i), b = store.page_tokens();
      const std::byte* block = pool.page(table.at(p / b)) + layer_offset + h * layout.bytes;
      const std::size_t at = h * n + i;
      layout.keys.get(block, p % b, part(out.key_words, at, layout.keys.words),
                      part(out.key_params, at, layout.keys.params));
      layout.values.get(block, p % b, part(out.value_words, at, layout.values.words),
                        part(out.value_params, at, layout.values.params));
    }
  }
  return out;
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kResourceExhausted, "extract: out of memory");
}

}  // namespace windrow
