// StateStore: creation, rows, and begin, which fixes positions and takes pages.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include "state/state_impl.h"

namespace windrow {
namespace {

Status out_of_memory(const char* what) {
  return Status(StatusCode::kResourceExhausted, fmt::format("{}: out of memory", what));
}

}  // namespace

Result<StateStore> StateStore::create(const StatePlan& plan, StoreOptions options) try {
  auto impl = std::make_shared<Impl>(plan, options);
  for (int g = 0; g < plan.group_count(); g++) {
    const GroupBytes& size = plan.group_bytes(g);
    Result<PagePool> pool = PagePool::create(size.page, size.pages, options.poison, "state store");
    if (!pool.ok()) return pool.status();
    impl->pools.push_back(std::move(*pool));
  }
  return StateStore(std::move(impl));
} catch (const std::bad_alloc&) {
  return out_of_memory("state store");
}

StateStore::StateStore(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
StateStore::StateStore(StateStore&&) noexcept = default;
StateStore& StateStore::operator=(StateStore&&) noexcept = default;
StateStore::~StateStore() = default;

const StatePlan& StateStore::plan() const noexcept { return impl_->plan; }
int StateStore::live_rows() const noexcept { return impl_->live_rows; }
PoolUse StateStore::pool_use(int group) const noexcept {
  return impl_->pools[static_cast<std::size_t>(group)].use();
}

std::size_t StateStore::bytes() const noexcept {
  std::size_t sum = 0;
  for (const PagePool& pool : impl_->pools) sum += pool.use().bytes;
  return sum;
}

void StateStore::Impl::poison_positions(int g, PageId page, int begin, int end) const {
  const BlockLayout& l = layout(g);
  const std::size_t blocks = pools[static_cast<std::size_t>(g)].page_bytes() / l.bytes;
  for (std::size_t b = 0; b < blocks; b++) {
    std::byte* block = pools[static_cast<std::size_t>(g)].page(page) + b * l.bytes;
    for (const SideLayout* side : {&l.keys, &l.values}) {
      for (int p = begin; p < end; p++) {
        for (int w = 0; w < side->words; w++) side->codes(block)[side->index(side->words, p, w)] = ~0u;
        for (int w = 0; w < side->params; w++)
          side->param_words(block)[side->index(side->params, p, w)] = ~0u;
      }
    }
  }
}

Result<Row> StateStore::new_row() try {
  const int limit = impl_->plan.limits().rows;
  if (impl_->live_rows >= limit) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("state store: all {} rows of the plan are live", limit));
  }
  auto row = std::make_shared<Row::Impl>(impl_);
  row->tables.resize(impl_->pools.size());
  for (std::size_t g = 0; g < row->tables.size(); g++) {
    row->tables[g].pages.reserve(
        static_cast<std::size_t>(impl_->plan.group_bytes(static_cast<int>(g)).pages_per_row));
  }
  return Row(std::move(row));
} catch (const std::bad_alloc&) {
  return out_of_memory("new row");
}

namespace {

// Everything begin can refuse without looking at pages.
Status check_begin(const StateStore::Impl& store, std::span<Row* const> rows,
                   std::span<const std::shared_ptr<Row::Impl>> impls, std::span<const int> lengths) {
  const Limits& limits = store.plan.limits();
  const auto refuse = [](StatusCode code, std::size_t r, std::string what) {
    return Status(code, fmt::format("begin: row {} of the step {}", r, what));
  };
  std::int64_t total = 0;
  for (std::size_t r = 0; r < rows.size(); r++) {
    if (impls[r] == nullptr) return refuse(StatusCode::kInvalidArgument, r, "is no row");
    const Row::Impl& row = *impls[r];
    if (row.store.get() != &store) return refuse(StatusCode::kInvalidArgument, r, "belongs to another store");
    if (row.in_step) return refuse(StatusCode::kFailedPrecondition, r, "stands in another open step");
    if (lengths[r] < 0)
      return refuse(StatusCode::kInvalidArgument, r, fmt::format("has length {}", lengths[r]));
    if (lengths[r] > limits.tokens - row.length) {
      return refuse(StatusCode::kResourceExhausted, r,
                    fmt::format("has {} positions and asks for {} more, the plan allows {}", row.length,
                                lengths[r], limits.tokens));
    }
    total += lengths[r];
  }
  if (total > limits.step_tokens) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("begin: {} tokens in one step, the plan allows {}", total, limits.step_tokens));
  }
  std::vector<const Row::Impl*> sorted;
  for (const auto& impl : impls) sorted.push_back(impl.get());
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return Status(StatusCode::kInvalidArgument, "begin: a row stands twice in the step");
  }
  return Status();
}

// Lists the pages that row r's queries see, newest last, taking fresh ones where tentative tokens
// go. kNoPage is never listed: on a shortage the pages taken so far stay with `view`, whose
// destruction frees them.
bool list_pages(StateStore::Impl& store, const Row::Impl& row, int tokens, GroupView& view) {
  PagePool& pool = store.pools[static_cast<std::size_t>(view.group)];
  const PageTable& table = row.tables[static_cast<std::size_t>(view.group)];
  const AttentionGroup& group = store.group(view.group);
  const std::int32_t b = store.page_tokens(), offset = row.length;
  const std::int32_t begin = tokens == 0 ? offset : std::max(0, offset - (group.window - 1));
  const std::int32_t first = begin / b;
  const std::int32_t end = tokens == 0 ? first : (offset + tokens - 1) / b + 1;
  view.first_page.push_back(first);
  for (std::int32_t number = first; number < end; number++) {
    PageId page = kNoPage;
    const bool written = number >= offset / b;  // tentative tokens go into it
    if (table.has(number) && !(written && pool.shared(table.at(number)))) {
      page = table.at(number);
      pool.ref(page);
    } else {
      page = pool.take();
      if (page == kNoPage) return false;
      if (table.has(number)) std::memcpy(pool.page(page), pool.page(table.at(number)), pool.page_bytes());
    }
    view.pages.push_back(page);
  }
  view.page_offsets.push_back(static_cast<std::int32_t>(view.pages.size()));
  return true;
}

}  // namespace

Result<Step> StateStore::begin(std::span<Row* const> rows, std::span<const int> lengths) try {
  if (rows.size() != lengths.size()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("begin: {} rows and {} lengths", rows.size(), lengths.size()));
  }
  auto step = std::make_unique<Step::Impl>();
  step->store = impl_;
  for (Row* row : rows) step->rows.push_back(row != nullptr ? row->impl_ : nullptr);
  if (Status s = check_begin(*impl_, rows, step->rows, lengths); !s.ok()) return s;

  auto shape = std::make_shared<StepShape>();
  shape->row_offsets.push_back(0);
  for (std::size_t r = 0; r < rows.size(); r++) {
    for (int t = 0; t < lengths[r]; t++) shape->positions.push_back(step->rows[r]->length + t);
    shape->row_offsets.push_back(static_cast<std::int32_t>(shape->positions.size()));
  }
  step->shape = shape;
  step->appended.assign(impl_->details().group_of_layer.size(), false);
  for (int g = 0; g < impl_->groups(); g++) {
    auto view = std::make_shared<GroupView>(impl_, shape, g);
    std::size_t most = 0;
    for (std::size_t r = 0; r < rows.size(); r++) {
      most += step->rows[r]->tables[static_cast<std::size_t>(g)].pages.size() +
              static_cast<std::size_t>(lengths[r] / impl_->page_tokens() + 2);
    }
    view->pages.reserve(most);
    view->first_page.reserve(rows.size());
    view->page_offsets.reserve(rows.size() + 1);
    view->page_offsets.push_back(0);
    for (std::size_t r = 0; r < rows.size(); r++) {
      if (!list_pages(*impl_, *step->rows[r], lengths[r], *view)) {
        const PagePool& pool = impl_->pools[static_cast<std::size_t>(g)];
        return Status(
            StatusCode::kResourceExhausted,
            fmt::format("begin: row {} of the step ({} tokens at position {}): no free page among the {} of "
                        "group {}",
                        r, lengths[r], step->rows[r]->length, pool.use().pages, g));
      }
    }
    step->views.push_back(std::move(view));
  }
  for (const auto& row : step->rows) row->in_step = true;
  return Step(std::move(step));
} catch (const std::bad_alloc&) {
  return out_of_memory("begin");
}

GroupView::~GroupView() {
  PagePool& pool = store->pools[static_cast<std::size_t>(group)];
  for (const PageId page : pages) pool.unref(page);
}

}  // namespace windrow
