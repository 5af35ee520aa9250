// The pieces of a session that is being written: ranges of positions of several rows, equal content once.
//
// Two rows that were forked from one another agree up to some position, and each keeps what its windows
// need. So their cuts of one range may overlap without being equal: [768, 1000) of the one is the beginning
// of [768, 1024) of the other. A cut joins a piece of its range when both agree wherever they overlap; the
// piece then grows to hold both, and each row refers to its part.
//
// Thread safety: one thread at a time. Members throw bad_alloc, and then nothing is changed.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "store/session_layout.h"
#include "windrow/records.h"

namespace windrow::session {

// A range of positions in the tensors' order: of each of piece_tensors(), [layers * kv_heads, positions] of
// tensor.bytes() each.
struct PieceData {
  Piece place;
  std::vector<std::vector<std::byte>> tensors;
};

class Pieces {
 public:
  explicit Pieces(const StatePlan& plan) : plan_(&plan) {}

  // A cut out of a row's records of one group, all its layers.
  int add(const Piece& place, std::span<const LayerRecords> layers);
  const std::vector<PieceData>& all() const noexcept { return pieces_; }
  // Ends what was added since the last commit(): for good, or as if it had not been.
  void commit();
  void rollback() noexcept;

 private:
  const StatePlan* plan_;
  std::vector<PieceData> pieces_;
  struct Before {  // of a piece that was changed since the last commit
    std::size_t index = 0;
    PieceData data;
  };
  std::vector<Before> before_;
  std::size_t committed_ = 0;
};

}  // namespace windrow::session
