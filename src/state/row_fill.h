// Rows that are filled from outside before anybody sees them: what adopt, copy and sessions share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/block_layout.h"
#include "state/state_impl.h"

namespace windrow {

// What a table of a store will hold of a row.
struct Extent {
  int storage = kFinal;
  std::int32_t retained = 0;  // lowest position there, sinks aside
  std::int32_t floor = 0;     // no cut below
};

// A row of `length` positions with all pages and states that it needs; their content is whatever they held.
// kResourceExhausted, and nothing taken, where `length`, the rows or the pages exceed the plan. Throws
// bad_alloc, likewise. `call` stands in errors. REQUIRES an extent for each group, with retained not below
// what the plan keeps of such a row.
Result<std::shared_ptr<Row::Impl>> make_filled_row(const std::shared_ptr<StateStore::Impl>& store,
                                                   const char* call, int length,
                                                   std::span<const Extent> extents);

// One layer's keys or values of one head.
struct RowSide {
  int group = 0;
  int layer_slot = 0;
  int head = 0;
  bool keys = true;
};

// Writes one part of positions [position, position + count): `data` holds them one after another (codec.h:
// record words, or MLX's scales or biases). Positions that the row does not promise are left out. Parts of
// one row may be written by several threads at a time, the same part of a position by one.
void put_part(const Row::Impl& row, const RowSide& side, RecordPart part, std::int32_t position, int count,
              const std::byte* data);

// The insides of a store and its rows, for the rest of the library.
struct StoreAccess {
  static const std::shared_ptr<StateStore::Impl>& impl(const StateStore& store) { return store.impl_; }
  static const Row::Impl& impl(const Row& row) { return *row.impl_; }
  static Row row(std::shared_ptr<Row::Impl> impl) { return Row(std::move(impl)); }
};

}  // namespace windrow
