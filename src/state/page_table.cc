#include "state/page_table.h"

#include <algorithm>
#include <cassert>
#include <memory>

namespace windrow {

PageList* PageList::make(std::int32_t capacity) {
  auto list = std::make_unique<PageList>();
  list->pages.reserve(static_cast<std::size_t>(capacity));
  return list.release();
}

void PageTable::own(PagePool& pool) noexcept {
  if (!shared()) return;
  assert(spare != nullptr && spare->pages.capacity() >= list->pages.size());
  spare->first = list->first;
  spare->pages.assign(list->pages.begin(), list->pages.end());
  for (const PageId page : spare->pages) pool.ref(page);
  list->refs--;
  list = spare;
  spare = nullptr;
}

void PageTable::put(const TableShape& shape, PagePool& pool, std::int32_t number, PageId page) noexcept {
  if (has(shape, number)) {
    own(pool);
    PageId& held = list->pages[entry(shape, number)];
    pool.unref(held);
    held = page;
    return;
  }
  own(pool);
  const auto size = static_cast<std::int32_t>(list->pages.size());
  if (number >= shape.sink_pages && size == shape.sink_pages)
    list->first = number;  // any: none stands before
  assert(entry(shape, number) == list->pages.size());
  assert(list->pages.size() < list->pages.capacity());
  list->pages.push_back(page);
}

void PageTable::take_all(const TableShape& shape, PagePool& pool, std::int32_t length) noexcept {
  for (std::int32_t number = 0; number < shape.page_end(length); number++) {
    if (wants(shape, number)) put(shape, pool, number, pool.take());
  }
}

void PageTable::trim(const TableShape& shape, PagePool& pool, std::int32_t length) noexcept {
  const std::int32_t end = shape.page_end(length);
  if (end_page(shape) > end) {
    own(pool);
    while (end_page(shape) > end && !list->pages.empty()) {
      pool.unref(list->pages.back());
      list->pages.pop_back();
    }
  }
  const std::int32_t first = std::max(shape.sink_pages, shape.page_of(complete_from(shape)));
  const auto size = static_cast<std::int32_t>(list->pages.size());
  const std::int32_t gone = std::clamp(first - list->first, 0, std::max(0, size - shape.sink_pages));
  if (gone == 0) return;
  own(pool);
  const auto begin = list->pages.begin() + shape.sink_pages;
  for (std::int32_t i = 0; i < gone; i++) pool.unref(begin[i]);
  list->pages.erase(begin, begin + gone);
  list->first += gone;
}

void PageTable::release(PagePool& pool) noexcept {
  unref(pool, list);
  delete spare;
  list = spare = nullptr;
}

}  // namespace windrow
