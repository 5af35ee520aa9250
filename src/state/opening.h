// What begin and peek have in common: the checks, and what a step would take of each pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "state/state_impl.h"

namespace windrow {

class Opening {
 public:
  // One row of the step, resolved.
  struct Part {
    Row::Impl* row = nullptr;
    const StepRow* asked = nullptr;
    std::int32_t tokens = 0;
    std::int32_t depth = 0;  // most positions it can grow by
    bool tree = false;       // some node does not follow the one before it
    bool recorded = false;   // a part of it can be kept of recurrent layers

    std::int32_t length() const { return row->length; }
    std::int32_t end() const { return row->length + tokens; }
  };

  explicit Opening(StateStore::Impl& store) : store_(store) {}

  // Everything that can be refused without looking at pools. `impls`: of the rows asked for, null for
  // none. Store's lock held, as for all calls.
  Status check(std::span<const StepRow> asked, std::span<const std::shared_ptr<Row::Impl>> impls);
  // What a row needs of one group.
  struct Need {
    std::int32_t cut = -1;    // where it passes into the final codecs, in tokens from its first; -1: nowhere
    std::int32_t fresh = 0;   // pages that its tokens before the cut are written to
    std::int32_t target = 0;  // pages for the accepted path of a tree
    bool own_tail = false;    // the first of `fresh` is its own tail page
  };
  const Need& need(int g, std::size_t r) const {
    return needs_[static_cast<std::size_t>(g) * parts_.size() + r];
  }
  // Counts, and says whether the pools have what the step takes: of a group, of the recurrent ones.
  // `pages`: the pages taken of a group, if asked for.
  Status check_pool(int g, int* pages = nullptr);
  Status check_states() const;

  std::span<const Part> parts() const { return parts_; }
  // Where a row passes into a group's final codecs inside the step, in tokens from its first; -1: nowhere.
  std::int32_t cut(const Part& part, int g) const {
    const AttentionGroup& group = store_.group(g);
    if (!group.delayed || part.row->tables[static_cast<std::size_t>(g)].storage != kEarly ||
        part.asked->block)
      return -1;
    return part.end() > group.delayed->start ? group.delayed->start - part.length() : -1;
  }
  // Lowest position that the pages of a crossing row hold, sinks aside.
  std::int32_t converted_from(const Part& part, int g) const;

 private:
  // Works out all needs of a group, and the pages that the step takes of its pools.
  void count(int g, std::int32_t (&taken)[kStorages]);
  Status check_part(std::size_t r, Part& part) const;
  Status check_tree(std::size_t r, Part& part) const;
  Status check_spans(std::size_t r, const Part& part) const;
  Status check_cuts(std::size_t r, const Part& part) const;

  StateStore::Impl& store_;
  std::vector<Part> parts_;
  std::vector<Need> needs_;  // [groups][parts]
};

// Pages that tokens at [length, length + tokens) of a row are written to: the first is its tail page, or a
// copy of it, if length is no multiple of a page.
inline std::int32_t fresh_pages(const TableShape& shape, std::int32_t length, std::int32_t tokens) {
  return tokens == 0 ? 0 : shape.page_end(length + tokens) - shape.page_of(length);
}

// Whether the tail page of a row can be written in place.
inline bool tail_is_own(const TableShape& shape, const PagePool& pool, const PageTable& table,
                        std::int32_t length) {
  return shape.in_page(length) != 0 && !table.shared() &&
         !pool.shared(table.at(shape, shape.page_of(length)));
}

}  // namespace windrow
