#include "state/page_pool.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "state/page_table.h"

namespace windrow {
namespace {

// A list of fewer pages gives them back at once, some 5 ns each.
constexpr std::size_t kShortList = 256;

}  // namespace

RetiredLists::~RetiredLists() {
  while (head_ != nullptr) delete std::exchange(head_, head_->next_retired);
}

void RetiredLists::push(PageList* list) noexcept {
  list->next_retired = head_;
  head_ = list;
}

PageId RetiredLists::pop() noexcept {
  const PageId page = head_->pages.back();
  head_->pages.pop_back();
  if (head_->pages.empty()) delete std::exchange(head_, head_->next_retired);
  return page;
}

Result<PagePool> PagePool::create(std::size_t page_bytes, int pages, bool poison, const char* name) {
  PagePool pool;
  Result<Arena> arena = Arena::create(page_bytes * static_cast<std::size_t>(pages), name);
  if (!arena.ok()) return arena.status();
  pool.arena_ = std::move(*arena);
  pool.page_bytes_ = page_bytes;
  pool.poison_ = poison;
  pool.counts_.assign(static_cast<std::size_t>(pages), 0);
  pool.free_.reserve(static_cast<std::size_t>(pages));
  for (PageId page = pages - 1; page >= 0; page--) pool.free_.push_back(page);
  return pool;
}

// 0xff in every byte is a NaN as f32, f16 and bf16, so also as scale and bias.
void PagePool::fill_poison(PageId id) noexcept {
  if (poison_) std::memset(page(id), 0xff, page_bytes_);
}

void PagePool::retire(PageList* list) noexcept {
  if (!poison_ && list->pages.size() > kShortList) return retired_.push(list);
  for (const PageId page : list->pages) unref(page);
  delete list;
}

bool PagePool::has_free(std::int32_t count) noexcept {
  while (std::cmp_less(free_.size(), count) && !retired_.empty()) unref(retired_.pop());
  return std::cmp_greater_equal(free_.size(), count);
}

int PagePool::free_pages() noexcept {
  has_free(std::numeric_limits<std::int32_t>::max());
  return static_cast<int>(free_.size());
}

PageId PagePool::take() noexcept {
  if (!has_free(1)) return kNoPage;
  const PageId id = free_.back();
  free_.pop_back();
  assert(counts_[static_cast<std::size_t>(id)] == 0);
  counts_[static_cast<std::size_t>(id)] = 1;
  peak_ = std::max(peak_, static_cast<int>(counts_.size() - free_.size()));
  fill_poison(id);
  return id;
}

void PagePool::give_back(PageId id) noexcept {
  free_.push_back(id);  // never beyond the reserved capacity
  fill_poison(id);
}

bool PagePool::conserved() const noexcept {
  std::size_t owned = 0;
  for (const std::int32_t count : counts_) {
    if (count < 0) return false;
    owned += count > 0 ? 1 : 0;
  }
  // The list has room for every page once, and a page that stands twice makes the sum too large.
  if (owned + free_.size() != counts_.size()) return false;
  return std::all_of(free_.begin(), free_.end(),
                     [&](PageId page) { return counts_[static_cast<std::size_t>(page)] == 0; });
}

PoolUse PagePool::use() noexcept {
  PoolUse use;
  use.free = free_pages();
  use.pages = static_cast<int>(counts_.size());
  use.owned =
      static_cast<int>(std::count_if(counts_.begin(), counts_.end(), [](std::int32_t c) { return c > 0; }));
  use.peak = peak_;
  use.bytes = arena_.size();
  return use;
}

}  // namespace windrow
