// What a step holds of one group, made out of what its rows need.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstring>

#include "state/opening.h"

namespace windrow {

// Fills one group's view. prepare() allocates, take() then can't fail.
class ViewBuilder {
 public:
  ViewBuilder(StateStore::Impl& store, const Opening& opening, GroupView& view)
      : store_(store), opening_(opening), view_(view), group_(store.group(view.group)) {}

  void prepare() {
    std::size_t fresh = 0, targets = 0, crossings = 0;
    for (std::size_t r = 0; r < opening_.parts().size(); r++) {
      const Opening::Part& part = opening_.parts()[r];
      const Opening::Need& need = opening_.need(view_.group, r);
      PageTable& table = part.row->tables[static_cast<std::size_t>(view_.group)];
      const TableShape& shape = store_.table(table.storage, view_.group);
      table.ensure_spare(shape);
      fresh += static_cast<std::size_t>(need.fresh);
      targets += static_cast<std::size_t>(need.target);
      if (need.cut < 0) continue;
      crossings++;
      fresh += static_cast<std::size_t>(fresh_pages(shape, part.length() + need.cut, part.tokens - need.cut));
    }
    const std::size_t rows = opening_.parts().size(), tokens = view_.shape->positions.size();
    view_.rows.reserve(rows + crossings);
    view_.lists.reserve(rows + crossings);
    view_.first_of.reserve(rows + 1);
    view_.row_offsets.reserve(rows + crossings + 1);
    view_.begins.reserve(tokens);
    view_.ends.reserve(tokens);
    view_.fresh.reserve(fresh);
    view_.targets.reserve(targets);
    view_.target_offsets.reserve(rows + 1);
    view_.crossings.resize(crossings);
    if (crossings > 0) view_.parents = view_.shape->parents;
    for (GroupView::Crossing& crossing : view_.crossings) {
      crossing.next.list = PageList::make(store_.table(kFinal, view_.group).capacity);
      crossing.next.ensure_spare(store_.table(kFinal, view_.group));
    }
  }

  void take() noexcept {
    std::size_t crossing = 0;
    view_.row_offsets.push_back(0);
    view_.target_offsets.push_back(0);
    for (std::size_t r = 0; r < opening_.parts().size(); r++) {
      const Opening::Part& part = opening_.parts()[r];
      const Opening::Need& need = opening_.need(view_.group, r);
      PageTable& table = part.row->tables[static_cast<std::size_t>(view_.group)];
      view_.first_of.push_back(view_.rows.size());
      see(part);
      if (need.cut < 0) {
        add(table, part.length(), part.tokens, need.fresh, need.own_tail);
      } else {
        cross(part, table, need, view_.crossings[crossing++]);
      }
      for (std::int32_t i = 0; i < need.target; i++) view_.targets.push_back(pool(table.storage).take());
      view_.target_offsets.push_back(view_.targets.size());
    }
    view_.first_of.push_back(view_.rows.size());
  }

 private:
  PagePool& pool(int storage) { return store_.pool(storage, view_.group); }

  // What each token of a row sees (KvRead).
  void see(const Opening::Part& part) {
    const StepRow& asked = *part.asked;
    const auto first = static_cast<std::size_t>(view_.begins.size());
    const std::int32_t length = part.length(), before = group_.window - 1;
    std::size_t span = 0;
    for (std::int32_t i = 0; i < part.tokens; i++) {
      const std::int32_t p = view_.shape->positions[first + static_cast<std::size_t>(i)];
      std::int32_t begin = std::max(0, asked.block ? length - before : p - before), end = p + 1;
      if (asked.block) end = part.end();
      while (span < asked.spans.size() && asked.spans[span].end <= i) span++;
      if (span < asked.spans.size() && asked.spans[span].begin <= i) {
        begin = std::min(begin, length + asked.spans[span].begin);
        end = length + asked.spans[span].end;
      }
      if (!asked.window_starts.empty())
        begin = std::max(begin, std::min(p, asked.window_starts[static_cast<std::size_t>(i)]));
      view_.begins.push_back(begin);
      view_.ends.push_back(end);
    }
  }

  // A row of the view: `tokens` tokens behind the `length` positions of a table, in `fresh` pages of which
  // the first may be the table's own tail.
  void add(const PageTable& table, std::int32_t length, std::int32_t tokens, std::int32_t fresh,
           bool own_tail) {
    const TableShape& shape = store_.table(table.storage, view_.group);
    KvRead::Row row;
    row.length = length;
    row.storage = table.storage;
    row.table = table.list->pages.data();
    row.table_first = std::max(table.list->first, shape.sink_pages);  // none stands behind the sinks: any
    row.table_size = static_cast<std::int32_t>(table.list->pages.size());
    row.fresh = view_.fresh.data() + view_.fresh.size();
    row.fresh_first = tokens == 0 ? shape.page_end(length) : shape.page_of(length);
    row.fresh_size = fresh;
    for (std::int32_t i = 0; i < row.fresh_size; i++) {
      PageId page = kNoPage;
      if (i == 0 && own_tail) {
        page = table.at(shape, row.fresh_first);
        pool(table.storage).ref(page);
      } else {
        page = pool(table.storage).take();
        assert(page != kNoPage);
        if (i == 0 && shape.in_page(length) != 0) {
          std::memcpy(pool(table.storage).page(page),
                      pool(table.storage).page(table.at(shape, row.fresh_first)),
                      pool(table.storage).page_bytes());
        }
      }
      view_.fresh.push_back(page);
    }
    table.list->refs++;
    view_.lists.push_back(table.list);
    view_.rows.push_back(row);
    view_.row_offsets.push_back(view_.row_offsets.back() + tokens);
  }

  // A row that passes into the final codecs after `cut` tokens.
  void cross(const Opening::Part& part, const PageTable& table, const Opening::Need& need,
             GroupView::Crossing& crossing) {
    const std::int32_t cut = need.cut;
    add(table, part.length(), cut, need.fresh, need.own_tail);
    crossing.row = view_.rows.size();
    const TableShape& shape = store_.table(kFinal, view_.group);
    const std::int32_t start = part.length() + cut;
    PageTable& next = crossing.next;
    next.retained = opening_.converted_from(part, view_.group);
    next.floor = start;
    next.take_all(shape, pool(kFinal), start);
    if (!view_.parents.empty()) {  // numbered inside its row, which begins anew here
      const auto at = static_cast<std::size_t>(view_.row_offsets.back());
      for (std::int32_t i = 0; i < part.tokens - cut; i++)
        view_.parents[at + static_cast<std::size_t>(i)] = i - 1;
    }
    add(next, start, part.tokens - cut, fresh_pages(shape, start, part.tokens - cut),
        shape.in_page(start) != 0);
  }

  StateStore::Impl& store_;
  const Opening& opening_;
  GroupView& view_;
  const AttentionGroup& group_;
};

}  // namespace windrow
