// The insides of store, row and step.
//
// Ownership: rows and steps share the store's Impl, so pools outlive whatever refers to their
// pages. A row's table and a step's views each hold one count on every page they list; copy on
// write is decided at begin by "count > 1", so a fork, an unfinished read or another row all
// protect a page in the same way.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "state/page_pool.h"
#include "state/plan_impl.h"
#include "windrow/store.h"

namespace windrow {

// The pages of one row in one group between steps: numbers [first_page, end_page()).
// It covers [retained, length): `retained` is the lowest position still promised, and every
// page below retained's or above length's last position is gone.
struct PageTable {
  std::int32_t first_page = 0;
  std::int32_t retained = 0;
  std::vector<PageId> pages;  // its capacity is what a row may ever need: no resolve allocates

  std::int32_t end_page() const { return first_page + static_cast<std::int32_t>(pages.size()); }
  bool has(std::int32_t number) const { return number >= first_page && number < end_page(); }
  PageId at(std::int32_t number) const { return pages[static_cast<std::size_t>(number - first_page)]; }
};

struct StateStore::Impl {
  Impl(const StatePlan& p, StoreOptions o) : plan(p), options(o) {}

  StatePlan plan;
  StoreOptions options;
  std::vector<PagePool> pools;  // of each group
  int live_rows = 0;

  const StatePlan::Impl& details() const { return *plan.impl_; }
  int groups() const { return static_cast<int>(pools.size()); }
  const AttentionGroup& group(int g) const { return plan.group(g); }
  const BlockLayout& layout(int g) const { return details().layouts[static_cast<std::size_t>(g)]; }
  std::size_t layer_bytes(int g) const {
    return layout(g).bytes * static_cast<std::size_t>(group(g).kv_heads);
  }
  int page_tokens() const { return plan.page_tokens(); }
  // Overwrites positions [begin, end) of a page, all layers and heads, with NaN patterns.
  void poison_positions(int g, PageId page, int begin, int end) const;
};

struct Row::Impl {
  Impl(std::shared_ptr<StateStore::Impl> s) : store(std::move(s)) { store->live_rows++; }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  std::shared_ptr<StateStore::Impl> store;
  std::vector<PageTable> tables;  // of each group
  std::int32_t length = 0;
  bool in_step = false;

  int minimum_length() const;
  // Drops the pages of group g outside [retained, length).
  void trim_table(int g) noexcept;
};

// One group's part of a step: the flat arrays that kernels read, and a count on each page listed.
// Shared by the step and the KvReads it gave out.
struct StepShape {  // the same for all groups
  std::vector<std::int32_t> row_offsets;
  std::vector<std::int32_t> positions;
};

struct GroupView {
  GroupView(std::shared_ptr<StateStore::Impl> s, std::shared_ptr<const StepShape> sh, int g)
      : store(std::move(s)), shape(std::move(sh)), group(g) {}
  GroupView(const GroupView&) = delete;
  GroupView& operator=(const GroupView&) = delete;
  ~GroupView();

  std::shared_ptr<StateStore::Impl> store;
  std::shared_ptr<const StepShape> shape;
  int group = 0;
  std::vector<std::int32_t> page_offsets;
  std::vector<std::int32_t> first_page;
  std::vector<PageId> pages;

  PageId at(std::size_t row, std::int32_t number) const {
    return pages[static_cast<std::size_t>(page_offsets[row] + number - first_page[row])];
  }
};

struct Step::Impl {
  std::shared_ptr<StateStore::Impl> store;
  std::vector<std::shared_ptr<Row::Impl>> rows;
  std::shared_ptr<const StepShape> shape;
  std::vector<std::shared_ptr<GroupView>> views;  // of each group
  std::vector<bool> appended;                     // by layer number
  bool is_open = true;

  int row_tokens(std::size_t r) const { return shape->row_offsets[r + 1] - shape->row_offsets[r]; }
  void publish(std::size_t r, int keep) noexcept;
  void close() noexcept;
};

}  // namespace windrow
