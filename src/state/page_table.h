// The page table of one row in one group, and the list of pages behind it.
//
// A list is counted: forks share it, and so do the reads of steps, so neither copies it, whatever its
// length. It holds one count on each of its pages. While it is shared nobody changes it; a row that must
// first moves to a list of its own (own), for which it keeps a spare one, so that resolve never allocates.
//
// All of this is done under the store's lock.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

#include "state/page_pool.h"
#include "state/plan_impl.h"

namespace windrow {

// What a table needs to know of its group.
struct TableShape {
  std::int32_t page_tokens = 1;
  std::int32_t page_shift = 0;  // 1 << page_shift == page_tokens: divisions are half of begin's time
  std::int32_t sinks = 0;       // positions
  std::int32_t sink_pages = 0;  // pages that hold them
  std::int32_t capacity = 0;    // pages of a row between steps

  // The page of a position, its place there, and the first page that a row of `length` positions has not.
  std::int32_t page_of(std::int32_t position) const { return position >> page_shift; }
  std::int32_t in_page(std::int32_t position) const { return position & (page_tokens - 1); }
  std::int32_t page_end(std::int32_t length) const { return (length + page_tokens - 1) >> page_shift; }
};

// Pages 0 .. sink_pages - 1 stand first (as far as the row reaches), then first, first + 1, ...
struct PageList {
  std::int32_t refs = 1;
  std::int32_t first = 0;  // >= sink_pages; page number of the entry after the sink pages
  std::vector<PageId> pages;
  PageList* next_retired = nullptr;  // the pool's, once nobody refers to the list

  static PageList* make(std::int32_t capacity);  // throws bad_alloc
};
inline void unref(PagePool& pool, PageList* list) noexcept {
  if (list != nullptr && --list->refs == 0) pool.retire(list);
}

struct PageTable {
  int storage = kFinal;
  std::int32_t retained = 0;  // lowest position still promised, sinks aside
  std::int32_t floor = 0;     // no cut below: what lies there was converted since
  PageList* list = nullptr;   // one count of it is this table's
  PageList* spare = nullptr;  // empty, or null

  // Positions from here on are all there (sinks that touch the retained ones count).
  std::int32_t complete_from(const TableShape& shape) const { return retained <= shape.sinks ? 0 : retained; }
  // The lowest position from p on that is promised: a sink, or one of complete_from on.
  std::int32_t promised_from(const TableShape& shape, std::int32_t p) const {
    return p < shape.sinks ? p : std::max(p, complete_from(shape));
  }
  // Whether page `number` holds any of them, and how many pages of a row of `length` positions do.
  bool wants(const TableShape& shape, std::int32_t number) const {
    return number < shape.sink_pages || number >= shape.page_of(complete_from(shape));
  }
  std::int32_t wanted_pages(const TableShape& shape, std::int32_t length) const {
    const std::int32_t end = shape.page_end(length);
    const std::int32_t first = std::min(end, shape.page_of(complete_from(shape)));
    return end - first + std::min(first, shape.sink_pages);
  }

  std::int32_t end_page(const TableShape& shape) const {
    const auto size = static_cast<std::int32_t>(list->pages.size());
    return size <= shape.sink_pages ? size : list->first + size - shape.sink_pages;
  }
  bool has(const TableShape& shape, std::int32_t number) const {
    if (number < 0 || number >= end_page(shape)) return false;
    return number < shape.sink_pages || number >= list->first;
  }
  PageId at(const TableShape& shape, std::int32_t number) const {
    assert(has(shape, number));
    return list->pages[entry(shape, number)];
  }
  bool shared() const { return list->refs > 1; }

  void ensure_spare(const TableShape& shape) {
    if (spare == nullptr) spare = PageList::make(shape.capacity);
  }
  // Makes page `number` (an existing one, or the next) be `page`, taking over one count of it.
  void put(const TableShape& shape, PagePool& pool, std::int32_t number, PageId page) noexcept;
  // Takes fresh pages for all that a row of `length` positions wants. REQUIRES an empty table, and that many
  // free pages.
  void take_all(const TableShape& shape, PagePool& pool, std::int32_t length) noexcept;
  // Drops the pages outside the sinks and [retained, length).
  void trim(const TableShape& shape, PagePool& pool, std::int32_t length) noexcept;
  void release(PagePool& pool) noexcept;

 private:
  std::size_t entry(const TableShape& shape, std::int32_t number) const {
    return static_cast<std::size_t>(number < shape.sink_pages ? number
                                                              : shape.sink_pages + number - list->first);
  }
  // REQUIRES a spare list if this one is shared.
  void own(PagePool& pool) noexcept;
};

}  // namespace windrow
