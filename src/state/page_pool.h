// Reference-counted pages of one size in one arena.
//
// Invariants: (1) a page is free (count 0, in the free list) or owned (count > 0), never both;
// (2) free + owned == pages. Nothing here allocates after create().
#pragma once

#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "windrow/status.h"
#include "windrow/store.h"

namespace windrow {

using PageId = std::int32_t;
inline constexpr PageId kNoPage = -1;

struct PageList;

// Lists that nobody refers to any more, whose pages were not given back yet.
class RetiredLists {
 public:
  RetiredLists() = default;
  RetiredLists(RetiredLists&& other) noexcept : head_(std::exchange(other.head_, nullptr)) {}
  RetiredLists& operator=(RetiredLists&& other) noexcept {
    std::swap(head_, other.head_);
    return *this;
  }
  ~RetiredLists();

  bool empty() const noexcept { return head_ == nullptr; }
  void push(PageList* list) noexcept;
  // Some page of theirs, with its list's count. REQUIRES not empty().
  PageId pop() noexcept;

 private:
  PageList* head_ = nullptr;
};

class PagePool {
 public:
  // `name` stands in the error when the arena can't be mapped.
  static Result<PagePool> create(std::size_t page_bytes, int pages, bool poison, const char* name);

  // A page with count 1, or kNoPage when none is free. The lowest pages go first, so the system
  // commits memory only as far as the pool was ever full.
  PageId take() noexcept;
  void ref(PageId page) noexcept { counts_[static_cast<std::size_t>(page)]++; }
  void unref(PageId page) noexcept {
    assert(counts_[static_cast<std::size_t>(page)] > 0);
    if (--counts_[static_cast<std::size_t>(page)] == 0) give_back(page);
  }
  bool shared(PageId page) const noexcept { return counts_[static_cast<std::size_t>(page)] > 1; }

  // Takes over a list that nobody refers to. A long one gives its pages back when they are needed, so
  // that dropping a row takes the same time whatever its length.
  void retire(PageList* list) noexcept;
  // Whether `count` pages are free, after lists gave back as many as it takes.
  bool has_free(std::int32_t count) noexcept;
  // Pages that are free once all lists gave theirs back.
  int free_pages() noexcept;
  std::byte* page(PageId page) const noexcept {
    return arena_.data() + static_cast<std::size_t>(page) * page_bytes_;
  }
  std::byte* base() const noexcept { return arena_.data(); }
  std::size_t page_bytes() const noexcept { return page_bytes_; }
  bool poison() const noexcept { return poison_; }
  std::size_t bytes() const noexcept { return arena_.size(); }
  PoolUse use() noexcept;
  // Whether every page is either free or owned, and free pages stand once in the list. O(pages).
  bool conserved() const noexcept;

 private:
  void fill_poison(PageId page) noexcept;
  void give_back(PageId page) noexcept;

  Arena arena_;
  std::size_t page_bytes_ = 0;
  bool poison_ = false;
  std::vector<std::int32_t> counts_;  // of each page
  std::vector<PageId> free_;          // a stack; its capacity is `pages`
  RetiredLists retired_;
  int peak_ = 0;
};

}  // namespace windrow
