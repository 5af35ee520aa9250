// What a session file holds and where: the index that stands in its header, and the tensors that follow from
// it. docs/session-format.md is the grammar.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/block_layout.h"
#include "io/safetensors_format.h"
#include "store/digest.h"
#include "windrow/plan.h"
#include "windrow/session.h"
#include "windrow/status.h"

namespace windrow::session {

inline constexpr const char* kFormat = "windrow-session";
inline constexpr const char* kVersion = "1";
// Positions are cut at multiples of this, a power of two, in all rows of a file, so that equal ranges of
// several rows meet. 256 of them are 32 KiB to 1 MiB of one layer: enough that a tensor's name, checksum and
// seek cost nothing beside its bytes, and a fork stores at most that much twice.
inline constexpr int kPiecePositions = 256;
// Rows and lists in one file; more are no session of ours.
inline constexpr int kMaxRows = 1 << 16;

// A range of positions of one group, all layers and heads, as some rows hold it.
struct Piece {
  int group = 0;
  bool converted = true;  // false: in the group's delayed codecs
  int begin = 0;
  int end = 0;  // not beyond the next multiple of kPiecePositions
};

// A row's positions of one group: [0, sinks) and [begin, length), see LayerRecords.
struct RowGroup {
  bool converted = true;
  int sinks = 0;
  int begin = 0;
  std::vector<int> pieces;  // one for each of its cuts, in order
};

struct RowEntry {
  int length = 0;
  int minimum_length = 0;
  int tokens = 0;                // number of the token list
  std::vector<RowGroup> groups;  // of each attention group
  std::vector<int> states;       // of each recurrent group: number of the state
};

struct Layout {
  SessionIdentity identity;
  StatePlan plan;  // of its groups; a reader's has the least limits
  std::vector<Piece> pieces;
  std::vector<int> states;       // of each recurrent group: how many
  std::vector<int> token_lists;  // ids of each
  std::vector<RowEntry> rows;
};

// Ranges that positions [0, sinks) and [begin, length) are cut into, in order.
class Cuts {
 public:
  Cuts(int sinks, int begin, int length) : sinks_(sinks), begin_(begin), length_(length) {}
  struct Range {
    int begin = 0;
    int end = 0;
  };
  std::optional<Range> next();

 private:
  int sinks_, begin_, length_;
  int at_ = 0;
};

// One tensor of a piece: a part of its keys or values, [layers, kv_heads, positions, inner].
struct PieceTensor {
  bool keys = true;
  RecordPart part = RecordPart::kCodes;
  DType dtype = DType::kF32;
  std::size_t inner = 0;
  std::size_t bytes() const { return inner * dtype_size(dtype); }  // of one position of one head
};
// In the order of the file: keys, then values.
std::vector<PieceTensor> piece_tensors(const AttentionGroup& group, bool converted);

// A tensor of the file and what it is.
struct Tensor {
  enum class Kind { kTokens, kPiece, kState, kTail };
  Kind kind = Kind::kTokens;
  int index = 0;      // of the token list or piece; of states: which
  int group = 0;      // of states and pieces
  int part = 0;       // of pieces: which of piece_tensors()
  PieceTensor piece;  // and that one
  safetensors::Entry entry;
};
// All tensors in file order. nullopt where a size overflows or there are too many.
std::optional<std::vector<Tensor>> tensors_of(const Layout& layout);

// The items of "__metadata__", in order; the digests are zeros, to be put in with seal(). `checksums`: of the
// tensors, in order.
std::vector<safetensors::MetadataItem> metadata_of(const Layout& layout,
                                                   std::span<const std::uint64_t> checksums);

// Where the digests of the header lie in it (with the 8 bytes of its length).
struct SealPlaces {
  std::size_t sha256 = 0;
  std::size_t xxh3 = 0;
};
// nullopt: the header of no session.
std::optional<SealPlaces> seal_places(std::string_view header);

// The header (with its length) as metadata_of and safetensors::make_header wrote it, read back and checked
// but for its digests and the identity.
struct Parsed {
  Layout layout;
  std::vector<Tensor> tensors;
  std::vector<std::uint64_t> checksums;  // of each tensor
};
Result<Parsed> parse(std::string_view header, std::size_t data_bytes, const std::string& name);

// The header's XXH3: over all of it, with zeros for itself. The caller compares.
std::uint64_t header_xxh3(std::string header, const SealPlaces& places);
// The text that the file's SHA-256 begins with, before the tensors' digests: the header with zeros for both.
std::string blanked(std::string header, const SealPlaces& places);
// Puts both digests into a header whose digests are zeros.
void seal(std::string& header, const Sha256Digest& sha256);

// kFailedPrecondition naming every field that differs, with both values; an empty text reads "none".
Status compare_identities(const SessionIdentity& file, const std::string& file_signature,
                          const SessionIdentity& here, const std::string& here_signature);

// The groups of a plan and an identity, as the header holds them: JSON texts.
std::string groups_text(const StatePlan& plan);
std::string identity_text(const SessionIdentity& identity);

}  // namespace windrow::session
