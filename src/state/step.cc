// Step: append, read, resolve, abort.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include "base/float16.h"
#include "state/state_impl.h"

namespace windrow {
namespace {

Status closed(const char* call) {
  return Status(StatusCode::kFailedPrecondition, fmt::format("{}: the step is closed", call));
}

// `n` numbers of `from`, starting at element `at`, as f32. f32 input is passed through.
const float* as_f32(const FloatArray& from, std::size_t at, std::size_t n, float* scratch) {
  if (from.dtype == DType::kF32) return static_cast<const float*>(from.data) + at;
  const auto* raw = static_cast<const std::uint16_t*>(from.data) + at;
  for (std::size_t i = 0; i < n; i++) {
    scratch[i] = from.dtype == DType::kBF16 ? f32_from_bf16(raw[i]) : f32_from_f16(raw[i]);
  }
  return scratch;
}

Status check_array(const char* what, int layer, const FloatArray& array, std::size_t tokens, int heads,
                   int dim) {
  if (!is_float(array.dtype)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("append: layer {}: {} of type {}, expected F32, F16 or BF16", layer, what,
                              dtype_name(array.dtype)));
  }
  const std::size_t expected = tokens * static_cast<std::size_t>(heads) * static_cast<std::size_t>(dim);
  if (array.count == expected) return Status();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("append: layer {}: {} numbers of {}, expected {} ({} tokens x {} heads x {})",
                            layer, array.count, what, expected, tokens, heads, dim));
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
int Step::rows() const noexcept { return static_cast<int>(impl_->rows.size()); }
int Step::tokens() const noexcept { return static_cast<int>(impl_->shape->positions.size()); }
std::span<const std::int32_t> Step::positions() const noexcept { return impl_->shape->positions; }
std::span<const std::int32_t> Step::row_offsets() const noexcept { return impl_->shape->row_offsets; }

Status Step::append(int layer, FloatArray keys, FloatArray values) {
  if (!open()) return closed("append");
  StateStore::Impl& store = *impl_->store;
  const int g = store.plan.group_of_layer(layer);
  if (g < 0)
    return Status(StatusCode::kInvalidArgument, fmt::format("append: layer {} is not in the plan", layer));
  const AttentionGroup& group = store.group(g);
  const std::vector<std::int32_t>& positions = impl_->shape->positions;
  if (Status s = check_array("keys", layer, keys, positions.size(), group.kv_heads, group.head_dim); !s.ok())
    return s;
  if (Status s = check_array("values", layer, values, positions.size(), group.kv_heads, group.value_dim);
      !s.ok()) {
    return s;
  }
  const BlockLayout& layout = store.layout(g);
  const PagePool& pool = store.pools[static_cast<std::size_t>(g)];
  const GroupView& view = *impl_->views[static_cast<std::size_t>(g)];
  const std::size_t layer_offset =
      static_cast<std::size_t>(store.plan.slot_of_layer(layer)) * store.layer_bytes(g);
  const auto heads = static_cast<std::size_t>(group.kv_heads);
  const auto key_dim = static_cast<std::size_t>(group.head_dim),
             value_dim = static_cast<std::size_t>(group.value_dim);
  const std::int32_t b = store.page_tokens();
  float scratch[1024];  // the largest head_dim that Codec::check allows
  for (std::size_t r = 0; r < impl_->rows.size(); r++) {
    for (std::int32_t t = impl_->shape->row_offsets[r]; t < impl_->shape->row_offsets[r + 1]; t++) {
      const std::int32_t p = positions[static_cast<std::size_t>(t)];
      std::byte* block = pool.page(view.at(r, p / b)) + layer_offset;
      for (std::size_t h = 0; h < heads; h++, block += layout.bytes) {
        const std::size_t at = static_cast<std::size_t>(t) * heads + h;
        store_vector(layout.keys, block, p % b, as_f32(keys, at * key_dim, key_dim, scratch));
        store_vector(layout.values, block, p % b, as_f32(values, at * value_dim, value_dim, scratch));
      }
    }
  }
  impl_->appended[static_cast<std::size_t>(layer)] = true;
  return Status();
}

Result<KvRead> Step::read(int layer) {
  if (!open()) return closed("read");
  const StateStore::Impl& store = *impl_->store;
  const int g = store.plan.group_of_layer(layer);
  if (g < 0)
    return Status(StatusCode::kInvalidArgument, fmt::format("read: layer {} is not in the plan", layer));
  if (!impl_->appended[static_cast<std::size_t>(layer)] && tokens() > 0) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("read: layer {} was not appended in this step", layer));
  }
  const AttentionGroup& group = store.group(g);
  const std::shared_ptr<GroupView>& view = impl_->views[static_cast<std::size_t>(g)];
  KvRead read;
  read.layer = layer;
  read.window = group.window;
  read.kv_heads = group.kv_heads;
  read.head_dim = group.head_dim;
  read.value_dim = group.value_dim;
  read.page_tokens = store.page_tokens();
  read.layout = &store.layout(g);
  read.row_offsets = view->shape->row_offsets;
  read.positions = view->shape->positions;
  read.page_offsets = view->page_offsets;
  read.first_page = view->first_page;
  read.pages = view->pages;
  read.base = store.pools[static_cast<std::size_t>(g)].base();
  read.page_bytes = store.pools[static_cast<std::size_t>(g)].page_bytes();
  read.layer_offset = static_cast<std::size_t>(store.plan.slot_of_layer(layer)) * store.layer_bytes(g);
  read.block_bytes = store.layout(g).bytes;
  read.lease = view;
  return read;
}

Status Step::resolve(std::span<const int> keep) {
  if (!open()) return closed("resolve");
  if (keep.size() != impl_->rows.size()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("resolve: {} counts for {} rows", keep.size(), impl_->rows.size()));
  }
  bool any = false;
  for (std::size_t r = 0; r < keep.size(); r++) {
    if (keep[r] < 0 || keep[r] > impl_->row_tokens(r)) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("resolve: row {} keeps {} of {} tokens", r, keep[r], impl_->row_tokens(r)));
    }
    any = any || keep[r] > 0;
  }
  const auto& group_of_layer = impl_->store->details().group_of_layer;
  for (std::size_t layer = 0; any && layer < group_of_layer.size(); layer++) {
    if (group_of_layer[layer] >= 0 && !impl_->appended[layer]) {
      return Status(StatusCode::kFailedPrecondition,
                    fmt::format("resolve: layer {} was not appended in this step", layer));
    }
  }
  for (std::size_t r = 0; r < keep.size(); r++) impl_->publish(r, keep[r]);
  impl_->close();
  return Status();
}

Status Step::resolve() {
  if (!open()) return closed("resolve");
  std::vector<int> keep(impl_->rows.size());
  for (std::size_t r = 0; r < keep.size(); r++) keep[r] = impl_->row_tokens(r);
  return resolve(keep);
}

void Step::abort() noexcept {
  if (open()) impl_->close();
}

// Moves a row's length forward and gives its tables the step's pages. Allocates nothing.
void Step::Impl::publish(std::size_t r, int keep) noexcept {
  Row::Impl& row = *rows[r];
  if (keep == 0) return;
  const std::int32_t b = store->page_tokens(), old_length = row.length;
  row.length += keep;
  for (int g = 0; g < store->groups(); g++) {
    PageTable& table = row.tables[static_cast<std::size_t>(g)];
    PagePool& pool = store->pools[static_cast<std::size_t>(g)];
    const GroupView& view = *views[static_cast<std::size_t>(g)];
    const std::int64_t retained = retained_positions(store->group(g), store->plan.limits());
    table.retained =
        std::max(table.retained, static_cast<std::int32_t>(std::max<std::int64_t>(0, row.length - retained)));
    row.trim_table(g);  // first, so that the table never outgrows its capacity
    const std::int32_t end = (row.length - 1) / b + 1;
    for (std::int32_t number = std::max(table.retained / b, old_length / b); number < end; number++) {
      const PageId page = view.at(r, number);
      if (table.has(number)) {  // the tail page: the same one, or the copy that replaces it
        pool.ref(page);
        pool.unref(table.at(number));
        table.pages[static_cast<std::size_t>(number - table.first_page)] = page;
      } else {
        assert(table.pages.size() < table.pages.capacity());
        pool.ref(page);
        table.pages.push_back(page);
      }
    }
  }
}

void Step::Impl::close() noexcept {
  is_open = false;
  views.clear();  // frees what was taken and not published, unless a KvRead still holds it
  for (const auto& row : rows) {
    row->in_step = false;
    if (store->options.poison) {
      for (int g = 0; g < store->groups(); g++) row->trim_table(g);  // rejected slots become NaN
    }
  }
  rows.clear();
}

}  // namespace windrow
