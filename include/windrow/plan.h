// The plan: which layers share state, how it is stored, how much there may be, and exactly how
// many bytes that takes, before anything is allocated.
//
//   Result<StatePlan> plan = StatePlan::Builder({.rows = 8, .tokens = 8192, .step_tokens = 512})
//       .attention({.layers = {0, 1, 2, 3, 4}, .window = 512, .kv_heads = 4, .head_dim = 256,
//                   .keys = Codec::affine(4), .values = Codec::affine(4)})
//       .attention({.layers = {5}, .kv_heads = 4, .head_dim = 256})
//       .build();
//
// C numbers name rows of the contract, docs/design.md section 5.
//
// Thread safety: a built plan is immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "windrow/codec.h"
#include "windrow/export.h"
#include "windrow/recurrent.h"
#include "windrow/status.h"

namespace windrow {

// A query at position p sees positions 0 .. p.
inline constexpr int kFullWindow = std::numeric_limits<int>::max();

// What the store must be able to hold at once. All counts are tokens (positions) or rows.
struct Limits {
  int rows = 1;                   // live rows
  int tokens = 4096;              // length of one row, tentative tokens included
  int step_tokens = 512;          // new tokens of one step, over all its rows
  int rollback = 0;               // R: a row can be truncated by this much at any time after it grew
  std::int64_t total_tokens = 0;  // positions that full-window groups hold over all rows;
                                  // 0: rows * tokens, so begin never runs out of pages
  int tree_nodes = 0;             // nodes of a token tree per row and step, at most 64; 0: no trees
  int verify_tokens = 16;         // with recurrent groups: the longest row of a step of which a part may be
                                  // kept. Longer ones (prefill) are kept whole or not at all.
};

// Delayed precision (C27): a row's first positions are stored by these codecs. Once it grows beyond
// `start` positions, or when Row::convert says so, all it holds passes into the group's own codecs.
struct Delayed {
  static constexpr int kOnlyByCall = std::numeric_limits<int>::max();
  int start = kOnlyByCall;  // >= 1
  Codec keys = Codec::bf16();
  Codec values = Codec::bf16();
};

// A layer that attends over another layer's keys and values (KV sharing) and stores none (C15).
struct Sharer {
  int layer = 0;
  int owner = 0;  // a layer of the same group
};

// Layers with equal windows, heads, head dims and codecs; they share one page table per row.
struct AttentionGroup {
  std::vector<int> layers = {};  // model layer numbers, unique over the plan, at least one
  int window = kFullWindow;      // W >= 1: a query at p sees max(0, p - W + 1) .. p
  int sinks = 0;                 // S: and the row's first S positions, for ever (sliding windows only)
  int kv_heads = 1;
  int head_dim = 64;  // of keys (and queries)
  int value_dim = 0;  // of values; 0: head_dim
  Codec keys = Codec::bf16();
  Codec values = Codec::bf16();
  std::optional<Delayed> delayed = {};
  std::vector<Sharer> sharers = {};
};

// Recurrent layers of equal shape: a row holds one state of each, no pages.
struct RecurrentGroup {
  std::vector<int> layers = {};  // model layer numbers, unique over the plan, at least one
  RecurrentShape shape = {};
};

// The bytes of one group. All figures are exact and page-granular.
struct GroupBytes {
  std::size_t page = 0;       // one page: page_tokens positions of all the group's layers and heads
  int pages_per_row = 0;      // most pages one row holds between steps
  int pages = 0;              // pages of the pool
  std::size_t total = 0;      // page * pages
  std::size_t per_token = 0;  // physical bytes that one more position costs one row, amortized (C13)
};

// The bytes of one recurrent group. One more token costs nothing (C13).
struct RecurrentBytes {
  std::size_t state = 0;   // of one row: all the group's layers
  int states = 0;          // of the pool: two a row, since a step works on a state of its own
  std::size_t record = 0;  // what replays up to verify_tokens tokens of one row
  int records = 0;
  std::size_t total = 0;  // state * states + record * records
};

class WINDROW_API StatePlan {
 public:
  class WINDROW_API Builder {
   public:
    explicit Builder(Limits limits);
    // Adds a group; what is wrong with it is said by build().
    Builder& attention(AttentionGroup group);
    Builder& recurrent(RecurrentGroup group);
    // Positions of a page: a power of two from 1 to 256. Small pages waste less at window edges and in
    // short rows, large ones make page tables short. Default 32. The kernels read whole tiles of 16
    // positions; smaller pages are copied together first, which is slow and meant for tests.
    Builder& page_tokens(int tokens);
    Result<StatePlan> build() const;

   private:
    Limits limits_;
    int page_tokens_ = 32;
    std::vector<AttentionGroup> groups_;
    std::vector<RecurrentGroup> recurrent_;
  };

  const Limits& limits() const noexcept;
  int page_tokens() const noexcept;
  int group_count() const noexcept;
  const AttentionGroup& group(int g) const noexcept;  // value_dim filled in
  const GroupBytes& group_bytes(int g) const noexcept;
  // The pool of a delayed group's first codecs; all zero for other groups.
  const GroupBytes& delayed_bytes(int g) const noexcept;
  int recurrent_count() const noexcept;
  const RecurrentGroup& recurrent(int g) const noexcept;
  const RecurrentBytes& recurrent_bytes(int g) const noexcept;
  // The attention group of a layer (a sharer's is its owner's), or -1; its place in that group, which is
  // the owner's for a sharer.
  int group_of_layer(int layer) const noexcept;
  int slot_of_layer(int layer) const noexcept;
  // The layer whose keys and values a layer attends over: itself, or its owner; -1 if it is not in the plan.
  int owner_of_layer(int layer) const noexcept;
  // The recurrent group of a layer and its place there, or -1.
  int recurrent_of_layer(int layer) const noexcept;
  int recurrent_slot_of_layer(int layer) const noexcept;

  // Bytes of all pools, states and records included: what a StateStore maps, exactly.
  std::size_t bytes() const noexcept;
  // Bytes of the pages and states that one row of `tokens` positions holds between steps (C14).
  // 0 <= tokens; more than limits().tokens counts as limits().tokens.
  std::size_t projected_bytes(int tokens) const noexcept;
  // The same state with every codec replaced and nothing delayed, for comparisons ("against bf16").
  Result<StatePlan> with_codec(const Codec& codec) const;

  // Identity of everything that decides what stored bytes mean: groups, windows, heads, dims,
  // codecs. Rows move only between stores of equal signature (C26). Limits are not part of it.
  const std::string& signature() const noexcept;
  // {"bytes": ..., "page_tokens": ..., "limits": {...}, "groups": [{"layers": [...], ...}],
  //  "recurrent": [{"layers": [...], ...}]}
  std::string to_json() const;

  struct Impl;  // internal

 private:
  friend class Builder;
  friend class StateStore;
  explicit StatePlan(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace windrow
