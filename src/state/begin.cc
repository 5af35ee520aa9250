// begin and peek: what a step is, decided before anything of it is computed.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include "state/opening.h"

namespace windrow {
namespace {

std::shared_ptr<StepShape> make_shape(std::span<const Opening::Part> parts) {
  auto shape = std::make_shared<StepShape>();
  std::size_t tokens = 0;
  bool trees = false;
  for (const Opening::Part& part : parts) {
    tokens += static_cast<std::size_t>(part.tokens);
    trees = trees || part.tree;
  }
  shape->row_offsets.reserve(parts.size() + 1);
  shape->positions.reserve(tokens);
  if (trees) shape->parents.reserve(tokens);
  shape->row_offsets.push_back(0);
  for (const Opening::Part& part : parts) {
    const std::size_t first = shape->positions.size();
    for (std::int32_t i = 0; i < part.tokens; i++) {
      const std::int32_t parent = part.tree ? part.asked->parents[static_cast<std::size_t>(i)] : i - 1;
      shape->positions.push_back(parent < 0 ? part.length()
                                            : shape->positions[first + static_cast<std::size_t>(parent)] + 1);
      if (trees) shape->parents.push_back(parent);
    }
    shape->row_offsets.push_back(static_cast<std::int32_t>(shape->positions.size()));
  }
  return shape;
}

// Fills one group's view. prepare() allocates, take() then can't fail.
class ViewBuilder {
 public:
  ViewBuilder(StateStore::Impl& store, const Opening& opening, GroupView& view)
      : store_(store), opening_(opening), view_(view), group_(store.group(view.group)) {}

  void prepare() {
    std::size_t fresh = 0, targets = 0, crossings = 0;
    for (const Opening::Part& part : opening_.parts()) {
      PageTable& table = part.row->tables[static_cast<std::size_t>(view_.group)];
      const TableShape& shape = store_.table(table.storage, view_.group);
      table.ensure_spare(shape);
      const std::int32_t cut = opening_.cut(part, view_.group);
      // One page more than all tokens together need covers a cut inside a page.
      fresh += static_cast<std::size_t>(fresh_pages(shape, part.length(), part.tokens) + (cut < 0 ? 0 : 1));
      if (part.tree) targets += static_cast<std::size_t>(fresh_pages(shape, part.length(), part.depth));
      crossings += cut < 0 ? 0 : 1;
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
    for (const Opening::Part& part : opening_.parts()) {
      PageTable& table = part.row->tables[static_cast<std::size_t>(view_.group)];
      const std::int32_t cut = opening_.cut(part, view_.group);
      view_.first_of.push_back(view_.rows.size());
      see(part);
      if (cut < 0) {
        add(table, part.length(), part.tokens);
      } else {
        cross(part, table, cut, view_.crossings[crossing++]);
      }
      if (part.tree) {
        const TableShape& shape = store_.table(table.storage, view_.group);
        for (std::int32_t i = fresh_pages(shape, part.length(), part.depth); i > 0; i--)
          view_.targets.push_back(pool(table.storage).take());
      }
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

  // A row of the view: `tokens` tokens behind the `length` positions of a table.
  void add(const PageTable& table, std::int32_t length, std::int32_t tokens) {
    const TableShape& shape = store_.table(table.storage, view_.group);
    KvRead::Row row;
    row.length = length;
    row.storage = table.storage;
    row.table = table.list->pages.data();
    row.table_first = std::max(table.list->first, shape.sink_pages);  // the list of a new row says 0
    row.table_size = static_cast<std::int32_t>(table.list->pages.size());
    row.fresh = view_.fresh.data() + view_.fresh.size();
    row.fresh_first = tokens == 0 ? shape.page_end(length) : shape.page_of(length);
    row.fresh_size = fresh_pages(shape, length, tokens);
    const bool own = tokens > 0 && tail_is_own(shape, pool(table.storage), table, length);
    for (std::int32_t i = 0; i < row.fresh_size; i++) {
      PageId page = kNoPage;
      if (i == 0 && own) {
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
  void cross(const Opening::Part& part, PageTable& table, std::int32_t cut, GroupView::Crossing& crossing) {
    add(table, part.length(), cut);
    crossing.source = view_.rows.back();
    crossing.row = view_.rows.size();
    crossing.from = opening_.converted_from(part, view_.group);
    const TableShape& shape = store_.table(kFinal, view_.group);
    const std::int32_t start = part.length() + cut, end = shape.page_end(start);
    PageTable& next = crossing.next;
    next.retained = crossing.from;
    next.floor = start;
    const std::int32_t first = shape.page_of(crossing.from);
    for (std::int32_t number = 0; number < end; number++) {
      if (number < shape.sink_pages || number >= first)
        next.put(shape, pool(kFinal), number, pool(kFinal).take());
    }
    if (!view_.parents.empty()) {  // numbered inside its row, which begins anew here
      const auto at = static_cast<std::size_t>(view_.row_offsets.back());
      for (std::int32_t i = 0; i < part.tokens - cut; i++)
        view_.parents[at + static_cast<std::size_t>(i)] = i - 1;
    }
    add(next, start, part.tokens - cut);
  }

  StateStore::Impl& store_;
  const Opening& opening_;
  GroupView& view_;
  const AttentionGroup& group_;
};

}  // namespace

Result<Step> StateStore::begin(std::span<const StepRow> rows) try {
  auto step = std::make_unique<Step::Impl>();
  step->is_open = false;  // until all is taken
  step->store = impl_;
  step->rows.reserve(rows.size());
  for (const StepRow& asked : rows) step->rows.push_back(asked.row != nullptr ? asked.row->impl_ : nullptr);
  Opening opening(*impl_);
  const std::lock_guard lock(impl_->mutex);
  if (Status s = opening.check(rows, step->rows); !s.ok()) return s;
  if (Status s = opening.check_pools(); !s.ok()) return s;

  const std::shared_ptr<StepShape> shape = make_shape(opening.parts());
  step->shape = shape;
  step->appended.assign(impl_->details().places.size(), false);
  std::int32_t longest = 0;
  for (const Opening::Part& part : opening.parts()) {
    step->is_block.push_back(part.asked->block);
    step->is_tree.push_back(part.tree);
    longest = std::max(longest, part.tokens);
  }
  step->path.reserve(static_cast<std::size_t>(longest));
  step->recurrent.resize(static_cast<std::size_t>(impl_->recurrent_groups()));
  for (int g = 0; g < impl_->recurrent_groups(); g++) {
    RecurrentView& view = step->recurrent[static_cast<std::size_t>(g)];
    view.next.assign(rows.size(), kNoPage);
    view.record.assign(rows.size(), kNoPage);
    view.convolved.assign(impl_->plan.recurrent(g).layers.size(), false);
    view.advanced = view.convolved;
  }
  std::vector<ViewBuilder> builders;
  builders.reserve(static_cast<std::size_t>(impl_->groups()));
  step->views.reserve(static_cast<std::size_t>(impl_->groups()));
  for (int g = 0; g < impl_->groups(); g++) {
    step->views.push_back(std::make_shared<GroupView>(impl_, shape, g));
    builders.emplace_back(*impl_, opening, *step->views.back());
    builders.back().prepare();
  }
  // Nothing below allocates or fails.
  for (ViewBuilder& builder : builders) builder.take();
  for (int g = 0; g < impl_->recurrent_groups(); g++) {
    RecurrentView& view = step->recurrent[static_cast<std::size_t>(g)];
    for (std::size_t r = 0; r < rows.size(); r++) {
      const Opening::Part& part = opening.parts()[r];
      if (part.tokens > 0) view.next[r] = impl_->states[static_cast<std::size_t>(g)].take();
      if (part.recorded) view.record[r] = impl_->records[static_cast<std::size_t>(g)].take();
    }
  }
  for (const auto& row : step->rows) row->in_step = true;
  step->is_open = true;
  return Step(std::move(step));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<Step> StateStore::begin(std::span<Row* const> rows, std::span<const int> lengths) try {
  if (rows.size() != lengths.size()) {
    return Status(StatusCode::kInvalidArgument, "begin: " + std::to_string(rows.size()) + " rows and " +
                                                    std::to_string(lengths.size()) + " lengths");
  }
  std::vector<StepRow> asked(rows.size());
  for (std::size_t r = 0; r < rows.size(); r++) {
    asked[r].row = rows[r];
    asked[r].length = lengths[r];
  }
  return begin(asked);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<StepPreview> StateStore::peek(std::span<const StepRow> rows) const try {
  std::vector<std::shared_ptr<Row::Impl>> impls;
  for (const StepRow& asked : rows) impls.push_back(asked.row != nullptr ? asked.row->impl_ : nullptr);
  StepPreview preview;
  Opening opening(*impl_);
  const std::lock_guard lock(impl_->mutex);
  preview.status = opening.check(rows, impls);
  for (const auto& row : impls) {
    preview.positions.push_back(row != nullptr ? row->length : 0);
    int uncut = row != nullptr ? impl_->plan.limits().tokens - row->length : 0;
    for (std::size_t g = 0; row != nullptr && row->store == impl_ && g < row->tables.size(); g++) {
      if (row->tables[g].storage != kEarly) continue;
      const int ahead = impl_->group(static_cast<int>(g)).delayed->start - row->length;
      if (ahead > 0) uncut = std::min(uncut, ahead);
    }
    preview.uncut.push_back(uncut);
  }
  preview.pages.assign(static_cast<std::size_t>(impl_->groups()), 0);
  if (!preview.status.ok()) return preview;
  for (int g = 0; g < impl_->groups(); g++) {
    std::int32_t taken[kStorages];
    opening.count(g, taken);
    preview.pages[static_cast<std::size_t>(g)] = taken[kFinal] + taken[kEarly];
  }
  preview.status = opening.check_pools();
  return preview;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<std::vector<int>> parents_from_ancestors(std::span<const std::uint64_t> masks) try {
  const auto refuse = [](std::size_t i) {
    return Status(StatusCode::kInvalidArgument,
                  "ancestors: the mask of node " + std::to_string(i) + " is no chain of nodes before it");
  };
  if (masks.size() > 64) return refuse(64);
  std::vector<int> parents;
  for (std::size_t i = 0; i < masks.size(); i++) {
    const std::uint64_t before = (std::uint64_t{1} << i) - 1, mask = masks[i] & before;
    if ((masks[i] & ~before & ~(std::uint64_t{1} << i)) != 0) return refuse(i);
    int parent = -1;
    for (std::size_t j = 0; j < i; j++) {
      if ((mask >> j & 1) != 0) parent = static_cast<int>(j);
    }
    // All of a node's ancestors are its parent and the parent's.
    const std::uint64_t expected =
        parent < 0 ? 0
                   : ((masks[static_cast<std::size_t>(parent)] & ((std::uint64_t{1} << parent) - 1)) |
                      (std::uint64_t{1} << parent));
    if (mask != expected) return refuse(i);
    parents.push_back(parent);
  }
  return parents;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
