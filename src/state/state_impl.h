// The insides of store, row and step.
//
// Ownership: rows and steps share the store's Impl, so pools outlive whatever refers to their pages. Counts
// on pages are held by page lists (page_table.h) and by the fresh pages of a step's views. Copy on write is
// decided at begin: a tail page is written in place only if one list holds it, once, and one row that
// list; so a fork, an unfinished read or another row all protect it in the same way.
//
// Locking: `mutex` guards the pools, the counts of lists and live_rows. Bytes of pages need no lock: what
// is written belongs to one open step.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/out_of_memory.h"
#include "state/page_pool.h"
#include "state/page_table.h"
#include "state/plan_impl.h"
#include "state/recurrent_record.h"
#include "windrow/store.h"

namespace windrow {

inline Status closed_step(const char* call) {
  return Status(StatusCode::kFailedPrecondition, std::string(call) + ": the step is closed");
}

struct StateStore::Impl {
  Impl(const StatePlan& p, StoreOptions o) : plan(p), options(o) {}

  StatePlan plan;
  StoreOptions options;
  mutable std::mutex mutex;
  std::vector<PagePool> pools[kStorages];  // of each group
  std::vector<TableShape> tables[kStorages];
  std::vector<PagePool> states, records;  // of each recurrent group
  int live_rows = 0;

  const StatePlan::Impl& details() const { return *plan.impl_; }
  int groups() const { return static_cast<int>(details().groups.size()); }
  int recurrent_groups() const { return static_cast<int>(details().recurrent.size()); }
  const AttentionGroup& group(int g) const { return details().groups[static_cast<std::size_t>(g)]; }
  const RecurrentShape& shape(int g) const { return plan.recurrent(g).shape; }
  const BlockLayout& layout(int storage, int g) const {
    return details().layouts[storage][static_cast<std::size_t>(g)];
  }
  PagePool& pool(int storage, int g) { return pools[storage][static_cast<std::size_t>(g)]; }
  const PagePool& pool(int storage, int g) const { return pools[storage][static_cast<std::size_t>(g)]; }
  const TableShape& table(int storage, int g) const { return tables[storage][static_cast<std::size_t>(g)]; }
  std::size_t layer_bytes(int storage, int g) const {
    return layout(storage, g).bytes * static_cast<std::size_t>(group(g).kv_heads);
  }
  std::int32_t page_tokens() const { return plan.page_tokens(); }
  // Lowest position kept of a row of `length` positions in a group, sinks aside.
  std::int32_t retained(int g, std::int32_t length) const {
    return static_cast<std::int32_t>(
        std::max<std::int64_t>(0, length - retained_positions(group(g), details().limits)));
  }

  // Where a layer's state and tail stand in a page of states.
  float* layer_state(int g, PageId page, int slot) const {
    return reinterpret_cast<float*>(states[static_cast<std::size_t>(g)].page(page) +
                                    static_cast<std::size_t>(slot) * shape(g).state_bytes());
  }
  float* layer_tail(int g, PageId page, int slot) const {
    return layer_state(g, page, slot) + shape(g).delta.state_floats();
  }
  RecurrentRecord layer_record(int g, PageId page, int slot) const;

  // In poison mode fills the slots of the table's own pages that hold nothing promised.
  void poison(int g, const PageTable& table, std::int32_t length) const;
  Status check();  // lock held
  // What poison mode does after every operation. Lock not held.
  Status check_if_poison() {
    if (!options.poison) return Status();
    const std::lock_guard lock(mutex);
    return check();
  }
};

struct Row::Impl {
  explicit Impl(std::shared_ptr<StateStore::Impl> s);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  std::shared_ptr<StateStore::Impl> store;
  std::vector<PageTable> tables;  // of each group
  std::vector<PageId> states;     // of each recurrent group; kNoPage: nothing was fed yet
  std::int32_t length = 0;
  bool in_step = false;
  bool seen = false;  // scratch of begin's search for a row that stands twice

  int minimum_length() const;
  // What the calls of Row do once their arguments are checked. Lock not held; the last two throw bad_alloc,
  // changing nothing.
  void share_with(Impl& fork) const noexcept;
  void cut(std::int32_t to);
  Status convert(int group);
};

// A row with empty tables that counts as live, or why there can't be one. Lock not held.
Result<std::shared_ptr<Row::Impl>> make_row(const std::shared_ptr<StateStore::Impl>& store, const char* call);

struct StepShape {  // the same for all groups
  std::vector<std::int32_t> row_offsets;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> parents;  // inside the row; empty when no row is a tree

  std::size_t row_of(std::size_t token) const {
    const auto after =
        std::upper_bound(row_offsets.begin(), row_offsets.end(), static_cast<std::int32_t>(token));
    return static_cast<std::size_t>(after - row_offsets.begin()) - 1;
  }
};

// One group's part of a step: the flat arrays that kernels read, and the counts that keep its pages.
// Shared by the step and the KvReads it gave out. A row that crosses the start of delayed codecs stands
// here as two: the tokens before, and those from there on.
struct GroupView {
  GroupView(std::shared_ptr<StateStore::Impl> s, std::shared_ptr<const StepShape> sh, int g)
      : store(std::move(s)), shape(std::move(sh)), group(g) {}
  GroupView(const GroupView&) = delete;
  GroupView& operator=(const GroupView&) = delete;
  ~GroupView();

  // A row of the step that passes into the final codecs inside it.
  struct Crossing {
    std::size_t row = 0;  // the later part, in rows; the earlier one stands before it
    PageTable next;       // what the row's table becomes: the later part's history
  };

  std::shared_ptr<StateStore::Impl> store;
  std::shared_ptr<const StepShape> shape;
  int group = 0;
  std::vector<KvRead::Row> rows;
  std::vector<std::size_t> first_of;  // [step rows + 1]: where a step row's parts begin in rows
  std::vector<std::int32_t> row_offsets, begins, ends, parents;
  std::vector<PageId> fresh;                // pages of all rows' `fresh`; one count each
  std::vector<PageId> targets;              // pages for the accepted paths of trees; one count each
  std::vector<std::size_t> target_offsets;  // [step rows + 1]
  std::vector<PageList*> lists;             // of each row, or null; one count each
  std::vector<Crossing> crossings;

  std::byte* block(const KvRead::Row& row, std::int32_t slot, int layer_slot, int head) const;
  Crossing* crossing_of(std::size_t row);
  // Gives back all counts. Lock held.
  void release() noexcept;
  // Gives back the counts on lists only. Lock held.
  void release_lists() noexcept;
};

// One recurrent group's part of a step.
struct RecurrentView {
  std::vector<PageId> next;               // of each row of the step with tokens: the state it is given
  std::vector<PageId> record;             // or kNoPage: kept whole or not at all
  std::vector<bool> convolved, advanced;  // by slot
};

struct Step::Impl {
  std::shared_ptr<StateStore::Impl> store;
  std::vector<std::shared_ptr<Row::Impl>> rows;
  std::vector<bool> is_block, is_tree;  // of each row
  std::shared_ptr<const StepShape> shape;
  std::vector<std::shared_ptr<GroupView>> views;  // of each group
  std::vector<RecurrentView> recurrent;           // of each recurrent group
  std::vector<bool> appended;                     // by layer number
  std::vector<int> path;                          // room for one row's path
  bool is_open = true;

  ~Impl();
  int row_tokens(std::size_t r) const { return shape->row_offsets[r + 1] - shape->row_offsets[r]; }
  Status check_layers() const;
  Status check_keep(std::size_t r, const Keep& keep) const;
  // Fills `path` with a row's kept slots.
  void take_path(const Keep& keep) noexcept;
  // Gives a row's table or state the slots in `path`; its length is still the old one. Lock held;
  // allocates nothing.
  void publish_group(std::size_t r, int g) noexcept;
  void gather_path(std::size_t r, int g) noexcept;
  void publish_state(std::size_t r, int g) noexcept;
  void close() noexcept;  // lock not held
};

}  // namespace windrow
