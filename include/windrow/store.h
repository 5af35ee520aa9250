// The state itself: a store of rows, and the step, the one transaction that changes them.
//
//   Result<StateStore> store = StateStore::create(*plan);
//   Result<Row> a = store->new_row(), b = store->new_row();
//   Row* rows[] = {&*a, &*b};
//   const int lengths[] = {5, 1};
//   Result<Step> step = store->begin(rows, lengths);                // 6 tokens, ragged, packed by row
//   for (layer ...) {
//     step->append(layer, k, v);                                    // [6, kv_heads, head_dim]
//     Result<KvRead> read = step->read(layer);                      // history + tentative
//     kernels->attend(*read, q, params, out, &pool);                // [6, q_heads, value_dim]
//   }
//   step->resolve({3, 1});                                          // keep 3 of 5, 1 of 1
//
// (Every call returns a Status or Result to look at; tests/install/main.cc is this program whole.)
// C numbers name rows of the contract, docs/design.md section 5; the invariants are its section 6.
//
// Guarantees (each has a property test):
//   * Committed state changes only by resolve and truncate. An error, an abort or a destroyed
//     step leaves every committed byte as it was.
//   * After resolve(keep) a row is byte-identical to one that was fed only the kept tokens.
//   * A row's stored bytes do not depend on its batch mates, on page placement or on how its
//     tokens were cut into steps.
//   * Nothing outside a query's window influences it.
//
// Thread safety: one thread at a time per store, its rows and steps (rows and steps may
// outlive the store object; they share what it owns). A KvRead's memory may be read by many
// threads while no append to the same layer runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "windrow/dtype.h"
#include "windrow/export.h"
#include "windrow/kv_read.h"
#include "windrow/plan.h"
#include "windrow/status.h"

namespace windrow {

class StateStore;
class Step;

// A borrowed array of floats in one of the float types, `count` elements, packed.
struct FloatArray {
  const void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kF32;

  FloatArray() = default;
  FloatArray(std::span<const float> values) : data(values.data()), count(values.size()) {}      // NOLINT
  FloatArray(const std::vector<float>& values) : FloatArray(std::span<const float>(values)) {}  // NOLINT
  FloatArray(std::span<const std::uint16_t> values, DType type)
      : data(values.data()), count(values.size()), dtype(type) {}
};

// An owned, contiguous, temporal-order copy of positions [begin, end) of one layer of a row, as
// records (windrow/codec.h): [kv_heads][end - begin][record_words] and so on.
struct LayerRecords {
  int layer = 0;
  int begin = 0;
  int end = 0;
  std::vector<std::uint32_t> key_words, key_params, value_words, value_params;
  friend bool operator==(const LayerRecords&, const LayerRecords&) = default;
};

// One sequence's state. Move only; destroying it drops the row and frees its pages.
// A row in an open step can't be forked, truncated or dropped by call; if it is destroyed,
// its step aborts what it holds of it.
class WINDROW_API Row {
 public:
  Row() = default;  // no row: every call but the destructor and valid() needs a real one
  Row(Row&&) noexcept;
  Row& operator=(Row&&) noexcept;
  ~Row();

  bool valid() const noexcept { return impl_ != nullptr; }
  int length() const noexcept;  // committed positions
  // The lowest length that truncate() accepts now.
  int minimum_length() const noexcept;
  // Bytes of the pages the row refers to (shared pages count for each row).
  std::size_t bytes() const noexcept;

  // A new row with the same content, sharing all pages until one of the two writes (copy on
  // write). O(pages), no data is copied.
  Result<Row> fork() const;
  // Cuts to `length` committed positions: exact, or kFailedPrecondition naming the lowest
  // allowed length, changing nothing.
  Status truncate(int length);
  // The retained positions of a layer, newest min(length, W); see LayerRecords (C17).
  Result<LayerRecords> extract(int layer) const;

  struct Impl;  // internal

 private:
  friend class StateStore;
  friend class Step;
  explicit Row(std::shared_ptr<Impl> impl) noexcept;
  std::shared_ptr<Impl> impl_;
};

// One forward pass over chosen rows, from begin to resolve or abort. Move only; destroying an
// open step aborts it.
class WINDROW_API Step {
 public:
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;
  ~Step();

  bool open() const noexcept;
  int rows() const noexcept;
  int tokens() const noexcept;
  // Absolute position of every token, fixed at begin; the same for queries, keys and donors (C7).
  std::span<const std::int32_t> positions() const noexcept;
  std::span<const std::int32_t> row_offsets() const noexcept;  // [rows + 1], in tokens

  // Writes the keys [tokens, kv_heads, head_dim] and values [tokens, kv_heads, value_dim] of
  // one layer. A second append of a layer overwrites the first.
  Status append(int layer, FloatArray keys, FloatArray values);
  // History plus this step's tokens. kFailedPrecondition before append(layer).
  Result<KvRead> read(int layer);

  // Publishes the first keep[r] tokens of every row r (0 <= keep[r] <= its length in this step)
  // in all layers at once and ends the step. kFailedPrecondition, with the step still open, if
  // a layer was not appended although something is kept.
  Status resolve(std::span<const int> keep);
  Status resolve(std::initializer_list<int> keep) {
    return resolve(std::span<const int>(keep.begin(), keep.size()));
  }
  Status resolve();  // keeps everything
  // Ends the step and drops its tokens. Idempotent.
  void abort() noexcept;

  struct Impl;  // internal

 private:
  friend class StateStore;
  explicit Step(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

struct StoreOptions {
  // Fills every page with NaN patterns when it is freed and before it is handed out, so that a
  // read of anything never written shows (invariant 4). Costs a write of each page.
  bool poison = false;
};

// What the store's pools hold now. Conservation: owned + free == pages, per group.
struct PoolUse {
  int pages = 0;  // of the pool
  int owned = 0;  // by rows, steps and reads; a shared page counts once
  int free = 0;
  int peak = 0;           // most owned so far
  std::size_t bytes = 0;  // mapped for the pool
};

class WINDROW_API StateStore {
 public:
  // Maps plan.bytes() bytes; the system commits them as pages are first used.
  static Result<StateStore> create(const StatePlan& plan, StoreOptions options = {});
  StateStore(StateStore&&) noexcept;
  StateStore& operator=(StateStore&&) noexcept;
  ~StateStore();

  const StatePlan& plan() const noexcept;
  // kResourceExhausted when plan().limits().rows rows live.
  Result<Row> new_row();
  int live_rows() const noexcept;

  // Opens a step of lengths[r] new tokens on rows[r]: fixes positions and takes the pages it may
  // need, or fails and changes nothing. A length may be 0, no row may come twice or stand in
  // another open step. Pure host bookkeeping.
  Result<Step> begin(std::span<Row* const> rows, std::span<const int> lengths);

  PoolUse pool_use(int group) const noexcept;
  std::size_t bytes() const noexcept;  // mapped in all; equals plan().bytes()

  struct Impl;  // internal

 private:
  friend class Row;
  friend class Step;
  explicit StateStore(std::shared_ptr<Impl> impl) noexcept;
  std::shared_ptr<Impl> impl_;
};

}  // namespace windrow
