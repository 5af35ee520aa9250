// Step: append, read, abort.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "base/float16.h"
#include "codec/affine.h"
#include "state/copy_positions.h"
#include "state/state_impl.h"

namespace windrow {
namespace {

// `n` numbers of `from`, starting at element `at`, as f32. f32 input is passed through.
const float* as_f32(const FloatArray& from, std::size_t at, std::size_t n, float* scratch) {
  if (from.dtype == DType::kF32) return static_cast<const float*>(from.data) + at;
  const auto* raw = static_cast<const std::uint16_t*>(from.data) + at;
  for (std::size_t i = 0; i < n; i++) {
    scratch[i] = from.dtype == DType::kBF16 ? f32_from_bf16(raw[i]) : f32_from_f16(raw[i]);
  }
  return scratch;
}

// One side's input of a layer.
struct Side {
  const char* name;
  const FloatArray& array;
  std::size_t heads;
  std::size_t dim;

  const float* vector(std::size_t token, std::size_t head, float* scratch) const {
    return as_f32(array, (token * heads + head) * dim, dim, scratch);
  }
};

Status check_array(const Side& side, int layer, std::size_t tokens) {
  if (!is_float(side.array.dtype)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("append: layer {}: {} of type {}, expected F32, F16 or BF16", layer, side.name,
                              dtype_name(side.array.dtype)));
  }
  const std::size_t expected = tokens * side.heads * side.dim;
  if (side.array.count == expected) return Status();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("append: layer {}: {} numbers of {}, expected {} ({} tokens x {} heads x {})",
                            layer, side.array.count, side.name, expected, tokens, side.heads, side.dim));
}

Status check_finite(const Side& side, int layer, const StepShape& shape) {
  float scratch[affine::kMaxDim];
  for (std::size_t t = 0; t < shape.positions.size(); t++) {
    for (std::size_t h = 0; h < side.heads; h++) {
      const float* x = side.vector(t, h, scratch);
      for (std::size_t d = 0; d < side.dim; d++) {
        if (std::isfinite(x[d])) continue;
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("append: layer {}: {} of row {} at position {}: number {} of head {} is {}",
                                  layer, side.name, shape.row_of(t), shape.positions[t], d, h, x[d]));
      }
    }
  }
  return Status();
}

}  // namespace

Step::Step(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&& other) noexcept {
  if (this != &other) {
    abort();
    impl_ = std::move(other.impl_);
  }
  return *this;
}
Step::~Step() { abort(); }

bool Step::open() const noexcept { return impl_ != nullptr && impl_->is_open; }
int Step::rows() const noexcept { return static_cast<int>(impl_->shape->row_offsets.size()) - 1; }
int Step::tokens() const noexcept { return static_cast<int>(impl_->shape->positions.size()); }
std::span<const std::int32_t> Step::positions() const noexcept { return impl_->shape->positions; }
std::span<const std::int32_t> Step::row_offsets() const noexcept { return impl_->shape->row_offsets; }

Status Step::append(int layer, FloatArray keys, FloatArray values) try {
  if (!open()) return closed_step("append");
  StateStore::Impl& store = *impl_->store;
  const StatePlan::Impl::Place place = store.details().place(layer);
  if (place.group < 0)
    return Status(StatusCode::kInvalidArgument, fmt::format("append: layer {} is not in the plan", layer));
  if (place.owner != layer) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("append: layer {} shares the keys and values of layer {}", layer, place.owner));
  }
  const AttentionGroup& group = store.group(place.group);
  const StepShape& shape = *impl_->shape;
  const auto heads = static_cast<std::size_t>(group.kv_heads);
  const Side k{"keys", keys, heads, static_cast<std::size_t>(group.head_dim)};
  const Side v{"values", values, heads, static_cast<std::size_t>(group.value_dim)};
  for (const Side* side : {&k, &v}) {
    if (Status s = check_array(*side, layer, shape.positions.size()); !s.ok()) return s;
    if (!store.options.poison) continue;
    if (Status s = check_finite(*side, layer, shape); !s.ok()) return s;
  }
  GroupView& view = *impl_->views[static_cast<std::size_t>(place.group)];
  float scratch[affine::kMaxDim];
  for (std::size_t r = 0; r < view.rows.size(); r++) {
    const KvRead::Row& row = view.rows[r];
    const BlockLayout& layout = store.layout(row.storage, place.group);
    if (const GroupView::Crossing* crossing = view.crossing_of(r); crossing != nullptr) {
      convert_positions(view, *crossing, place.slot);
    }
    for (std::int32_t t = view.row_offsets[r]; t < view.row_offsets[r + 1]; t++) {
      const std::int32_t slot = row.length + t - view.row_offsets[r];
      const std::int32_t in_page = store.table(row.storage, place.group).in_page(slot);
      std::byte* block = view.block(row, slot, place.slot, 0);
      prefetch_store(layout, block, in_page);
      for (std::size_t h = 0; h < heads; h++, block += layout.bytes) {
        if (h + 1 < heads) prefetch_store(layout, block + layout.bytes, in_page);
        store_vector(layout.keys, block, in_page, k.vector(static_cast<std::size_t>(t), h, scratch));
        store_vector(layout.values, block, in_page, v.vector(static_cast<std::size_t>(t), h, scratch));
      }
    }
  }
  impl_->appended[static_cast<std::size_t>(layer)] = true;
  return Status();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<KvRead> Step::read(int layer) try {
  if (!open()) return closed_step("read");
  const StateStore::Impl& store = *impl_->store;
  const StatePlan::Impl::Place place = store.details().place(layer);
  const int g = place.group;
  if (g < 0)
    return Status(StatusCode::kInvalidArgument, fmt::format("read: layer {} is not in the plan", layer));
  if (!impl_->appended[static_cast<std::size_t>(place.owner)] && tokens() > 0) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("read: layer {} was not appended in this step", place.owner));
  }
  const AttentionGroup& group = store.group(g);
  const std::shared_ptr<GroupView>& view = impl_->views[static_cast<std::size_t>(g)];
  KvRead read;
  read.layer = layer;
  read.window = group.window;
  read.sinks = group.sinks;
  read.sink_pages = store.table(kFinal, g).sink_pages;
  read.kv_heads = group.kv_heads;
  read.head_dim = group.head_dim;
  read.value_dim = group.value_dim;
  read.page_tokens = store.page_tokens();
  read.row_offsets = view->row_offsets;
  read.positions = view->shape->positions;
  read.begins = view->begins;
  read.ends = view->ends;
  read.parents = view->parents.empty() ? view->shape->parents : view->parents;
  read.rows = view->rows;
  for (int storage = 0; storage < (group.delayed ? kStorages : 1); storage++) {
    const PagePool& pool = store.pool(storage, g);
    read.storages[storage] = {&store.layout(storage, g), pool.base(), pool.page_bytes(),
                              static_cast<std::size_t>(place.slot) * store.layer_bytes(storage, g),
                              store.layout(storage, g).bytes};
  }
  read.lease = view;
  return read;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

void Step::abort() noexcept {
  if (open()) impl_->close();
}

Step::Impl::~Impl() {
  if (is_open) close();
}

void Step::Impl::close() noexcept {
  is_open = false;
  {
    const std::lock_guard lock(store->mutex);
    for (std::size_t g = 0; g < recurrent.size(); g++) {
      for (const PageId page : recurrent[g].next) {
        if (page != kNoPage) store->states[g].unref(page);
      }
      for (const PageId page : recurrent[g].record) {
        if (page != kNoPage) store->records[g].unref(page);
      }
    }
    for (const auto& view : views) {
      if (view.use_count() == 1) view->release();  // a KvRead that is left gives back by itself
    }
    for (const auto& row : rows) {
      row->in_step = false;
      if (!store->options.poison) continue;
      for (int g = 0; g < store->groups(); g++)  // rejected slots become NaN
        store->poison(g, row->tables[static_cast<std::size_t>(g)], row->length);
    }
  }
  recurrent.clear();
  views.clear();
  rows.clear();
}

}  // namespace windrow
