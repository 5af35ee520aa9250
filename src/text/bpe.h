// Byte-pair encoding: a word starts as its characters, then the pair of neighbours whose merge stands
// earliest in the file is joined, the leftmost first, until no pair has a merge.
//
// A character without a piece becomes its bytes' pieces <0x00>..<0xFF> (with "byte_fallback"), else
// unk_token (with "fuse_unk" one for a run of such characters), else nothing.
//
// Cost: O(n log n) in the word: a heap of candidate merges over a linked list of symbols. A merge adds
// two candidates at most, so a word of n symbols sees fewer than 3n of them.
//
// Thread safety: immutable after parse; a Scratch belongs to one call at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/component.h"
#include "text/vocabulary.h"

namespace windrow::text {

class Bpe {
 public:
  // Reads the object at "model". Errors go to the component.
  static Bpe parse(Component& model);

  struct Symbol {
    std::int32_t id;
    std::int32_t previous;  // index of the neighbours that still live, -1 at the ends
    std::int32_t next;
  };
  struct Candidate {
    std::uint64_t order;  // rank << 32 | index of the left symbol
    std::int32_t id;      // of what the merge makes
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::uint64_t candidates = 0;  // taken from the heap so far: the measure of the cost
    // [id]: pieces that must not come out (unk_token may). Null: all may.
    const std::vector<bool>* forbidden = nullptr;

    bool forbids(std::int32_t id) const {
      return forbidden != nullptr && static_cast<std::size_t>(id) < forbidden->size() &&
             (*forbidden)[static_cast<std::size_t>(id)];
    }
  };

  // Appends the ids of a word of at most 2^31 - 1 bytes of well-formed UTF-8.
  void encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;

  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }

 private:
  struct Merge {
    std::uint64_t pair;  // left id << 32 | right id; kFree in an empty slot
    std::int32_t rank;
    std::int32_t id;
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};

  void read_vocabulary(Component& model);
  void read_merges(Component& model);
  void read_unknown(Component& model);
  void read_byte_pieces(Component& model);
  void map_characters();
  std::size_t slot_of(std::uint64_t pair) const;
  void add_merge(const Merge& merge);
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  std::int32_t character_id(char32_t c) const;

  void split_characters(std::string_view word, Scratch& scratch) const;
  void push_candidate(Scratch& scratch, std::int32_t left, bool heapify) const;
  void merge_all(Scratch& scratch) const;

  Vocabulary vocabulary_;
  std::vector<Merge> merges_;  // open addressing, a power of two of slots, at most half full
  std::uint64_t seed_ = 0;
  std::vector<std::uint16_t> pages_;         // of characters, by c >> 8; 0 is the empty page
  std::vector<std::int32_t> character_ids_;  // 256 a page, -1 for none
  std::vector<std::int32_t> byte_ids_;       // 256, or none
  std::int32_t unknown_id_ = -1;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
};

}  // namespace windrow::text
