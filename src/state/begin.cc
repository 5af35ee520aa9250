// begin and peek: what a step is, decided before anything of it is computed.
#include <algorithm>
#include <new>

#include "state/view_builder.h"

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

// Fills a step that is not open yet, and opens it. What fails leaves the rest to its destructor.
Status open_step(const std::shared_ptr<StateStore::Impl>& store, std::span<const StepRow> rows,
                 Step::Impl& step) {
  Opening opening(*store);
  const std::lock_guard lock(store->mutex);
  if (Status s = opening.check(rows, step.rows); !s.ok()) return s;
  if (Status s = opening.check_states(); !s.ok()) return s;

  const std::shared_ptr<StepShape> shape = make_shape(opening.parts());
  step.shape = shape;
  step.appended.assign(store->details().places.size(), false);
  std::int32_t longest = 0;
  for (const Opening::Part& part : opening.parts()) {
    step.is_block.push_back(part.asked->block);
    step.is_tree.push_back(part.tree);
    longest = std::max(longest, part.tokens);
  }
  step.path.reserve(static_cast<std::size_t>(longest));
  step.recurrent.resize(static_cast<std::size_t>(store->recurrent_groups()));
  for (int g = 0; g < store->recurrent_groups(); g++) {
    RecurrentView& view = step.recurrent[static_cast<std::size_t>(g)];
    view.next.assign(rows.size(), kNoPage);
    view.record.assign(rows.size(), kNoPage);
    view.convolved.assign(store->plan.recurrent(g).layers.size(), false);
    view.advanced = view.convolved;
  }
  step.views.reserve(static_cast<std::size_t>(store->groups()));
  // Group by group, so that what is looked at of 64 rows stays in L1. Where a later group fails the views
  // of the earlier ones give back what they took.
  for (int g = 0; g < store->groups(); g++) {
    if (Status s = opening.check_pool(g); !s.ok()) return s;
    step.views.push_back(std::make_shared<GroupView>(store, shape, g));
    ViewBuilder builder(*store, opening, *step.views.back());
    builder.prepare();
    builder.take();
  }
  // Nothing below allocates or fails.
  for (int g = 0; g < store->recurrent_groups(); g++) {
    RecurrentView& view = step.recurrent[static_cast<std::size_t>(g)];
    for (std::size_t r = 0; r < rows.size(); r++) {
      const Opening::Part& part = opening.parts()[r];
      if (part.tokens > 0) view.next[r] = store->states[static_cast<std::size_t>(g)].take();
      if (part.recorded) view.record[r] = store->records[static_cast<std::size_t>(g)].take();
    }
  }
  for (const auto& row : step.rows) row->in_step = true;
  step.is_open = true;
  return Status();
}

}  // namespace

Result<Step> StateStore::begin(std::span<const StepRow> rows) try {
  auto step = std::make_unique<Step::Impl>();
  step->is_open = false;  // until all is taken
  step->store = impl_;
  step->rows.reserve(rows.size());
  for (const StepRow& asked : rows) step->rows.push_back(asked.row != nullptr ? asked.row->impl_ : nullptr);
  if (Status s = open_step(impl_, rows, *step); !s.ok()) return s;
  if (Status s = impl_->check_if_poison(); !s.ok()) return s;
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
  preview.status = opening.check_states();
  for (int g = 0; g < impl_->groups(); g++) {
    const Status s = opening.check_pool(g, &preview.pages[static_cast<std::size_t>(g)]);
    if (preview.status.ok()) preview.status = s;  // the first, as begin would say
  }
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
