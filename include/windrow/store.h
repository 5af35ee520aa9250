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
//   * Committed state changes only by resolve, truncate and convert. An error, an abort or a destroyed
//     step leaves every committed byte as it was; resolve itself allocates nothing and can't fail half-way.
//   * After resolve(keep) a row is byte-identical to one that was fed only the kept tokens.
//   * A row's stored bytes do not depend on its batch mates, on page placement or on how its
//     tokens were cut into steps.
//   * Nothing outside a query's window influences it.
//
// Thread safety: steps of disjoint rows of one store may be opened, filled and ended by different threads
// at the same time, and so may calls on different rows. One row, or one step, is used by one thread at a
// time. Rows, steps and reads may outlive the store object; they share what it owns. A KvRead may be read
// by many threads while no append to the same layer of its step runs.
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
#include "windrow/records.h"
#include "windrow/status.h"

namespace windrow {

class StateStore;
class Step;
struct StoreAccess;  // internal

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
  // Passes all that a delayed group holds into the group's own codecs, now (C27). Idempotent: nothing
  // happens to a converted row. The row can't be truncated below its present length any more.
  // kInvalidArgument for a group without delayed codecs, kResourceExhausted without pages.
  Status convert(int group);
  bool converted(int group) const noexcept;  // true for groups without delayed codecs
  // The retained positions of a layer, newest min(length, W); see LayerRecords (C17).
  Result<LayerRecords> extract(int layer) const;
  // All layers, recurrent states too.
  Result<RowRecords> extract() const;
  // Likewise, but with every position that the row still retains behind its windows, so that what is made of
  // the records can be truncated as far as this row can.
  Result<RowRecords> extract_retained() const;

  struct Impl;  // internal

 private:
  friend class StateStore;
  friend class Step;
  friend struct StoreAccess;
  explicit Row(std::shared_ptr<Impl> impl) noexcept;
  std::shared_ptr<Impl> impl_;
};

// Tokens [begin, end) of one row's part of a step, counted from its first token.
struct TokenSpan {
  int begin = 0;
  int end = 0;
};

// One row's part of a step: `length` new tokens and who of them sees what. Without more said a token sees
// its window up to itself. At most one of block, spans and parents.
struct StepRow {
  Row* row = nullptr;
  int length = 0;  // 0: the row stands by
  // All tokens see each other, and the newest W - 1 positions before the first (C23, diffusion blocks).
  // Such a row can only be read; resolve keeps none of it.
  bool block = false;
  // Tokens of a span see each other in both directions besides their windows (media tokens, prefix-LM).
  // Ascending, not overlapping.
  std::span<const TokenSpan> spans = {};
  // A token tree: parents[i] < i is the node before node i, -1 the row's last committed position. Positions
  // follow depth; a node sees its ancestors. Limits::tree_nodes nodes at most.
  std::span<const int> parents = {};
  // With any of the above but block: the lowest position that each token sees, if its window begins lower.
  std::span<const int> window_starts = {};
};

// Parents from ancestor masks: bit j of masks[i] says that node j is an ancestor of node i (or i itself,
// which does not matter). kInvalidArgument unless the masks are those of a tree whose parents come first.
WINDROW_API Result<std::vector<int>> parents_from_ancestors(std::span<const std::uint64_t> masks);

// What resolve keeps of one row: its first `count` tokens, or a path of nodes from the root of a tree.
struct Keep {
  int count = 0;
  std::span<const int> path = {};

  Keep(int n = 0) : count(n) {}                                                             // NOLINT
  Keep(std::span<const int> nodes) : count(static_cast<int>(nodes.size())), path(nodes) {}  // NOLINT
  Keep(const std::vector<int>& nodes) : Keep(std::span<const int>(nodes)) {}                // NOLINT
};

// Inputs of a recurrent layer for all tokens of a step, packed by row; see gated_delta.h.
struct RecurrentInputs {
  std::span<const float> q;  // [tokens, key_heads, key_dim]
  std::span<const float> k;
  std::span<const float> v;     // [tokens, value_heads, value_dim]
  std::span<const float> g;     // [tokens, value_heads] or, vector gates, [tokens, value_heads, key_dim]
  std::span<const float> beta;  // [tokens, value_heads]
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
  // one layer. A second append of a layer overwrites the first. kInvalidArgument for a sharer: its owner
  // stores. In poison mode also for a number that is not finite, naming layer, row and position.
  Status append(int layer, FloatArray keys, FloatArray values);
  // History plus this step's tokens. kFailedPrecondition before append(layer). A sharer reads what its
  // owner appended, at the same positions (C15).
  Result<KvRead> read(int layer);

  // A recurrent layer, first half: out [tokens, channels] from x, each row's tail before it (causal_conv.h);
  // weights_by_tap [taps, channels]. out may be x.
  Status convolve(int layer, std::span<const float> x, std::span<const float> weights_by_tap,
                  Activation activation, std::span<float> out);
  // Second half: y [tokens, value_heads, value_dim], each row's state advanced in the step (gated_delta.h).
  Status advance(int layer, const RecurrentInputs& inputs, std::span<float> y);

  // Publishes what is kept of every row in all layers at once and ends the step. Refused with the step
  // still open: kFailedPrecondition if a layer was not appended (convolved, advanced) although something is
  // kept, if a block row is kept, or a part of a row longer than verify_tokens with recurrent groups;
  // kInvalidArgument for counts beyond a row's length and paths that are none.
  Status resolve(std::span<const Keep> keep);
  Status resolve(std::span<const int> keep);  // the first keep[r] tokens of row r
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
  // read of anything never written shows (invariant 4); refuses keys and values that are not finite; and
  // checks the pools after every operation that returns a status (what an abort or a drop breaks, the next
  // one tells). Costs a write of each page.
  bool poison = false;
};

// What begin would do (C16).
struct StepPreview {
  Status status;                        // what begin would return
  std::vector<std::int32_t> positions;  // of the first token of each row
  std::vector<int> pages;               // it would take of each group
  // Longest step of each row now that is not split inside, at the start of delayed codecs (C27); the
  // plan's limit on a row's length if no start lies ahead.
  std::vector<int> uncut;
};

// What the store's pools hold now. Conservation: owned + free == pages, per group.
struct PoolUse {
  int pages = 0;  // of the pool
  int owned = 0;  // by rows, steps and reads; a shared page counts once
  int free = 0;
  int peak = 0;           // most owned so far; of a dropped long row until its pages are reused
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
  Result<Step> begin(std::span<const StepRow> rows);
  // The same questions without an answer that changes anything.
  Result<StepPreview> peek(std::span<const StepRow> rows) const;

  // A row with the content of `records`, which must come from a plan of the same signature: else
  // kFailedPrecondition with both printed. Records are copied into pages (rows move within a store by
  // handle, without a copy). Everything about them is checked first; nothing half is left.
  Result<Row> adopt(const RowRecords& records);
  // A copy of another store's row (C21), under the same rule. It keeps all that the row retains and this
  // plan has room for. The row must not stand in an open step.
  Result<Row> copy(const Row& row);

  // kInternal, naming the pool, if a pool's counts contradict its free list. O(pages).
  Status check() const;
  PoolUse pool_use(int group) const noexcept;          // pages of the group's own codecs
  PoolUse delayed_pool_use(int group) const noexcept;  // pages of its delayed codecs
  PoolUse state_pool_use(int recurrent_group) const noexcept;
  PoolUse record_pool_use(int recurrent_group) const noexcept;
  std::size_t bytes() const noexcept;  // mapped in all; equals plan().bytes()

  struct Impl;  // internal

 private:
  friend class Row;
  friend class Step;
  friend struct StoreAccess;
  explicit StateStore(std::shared_ptr<Impl> impl) noexcept;
  std::shared_ptr<Impl> impl_;
};

}  // namespace windrow
