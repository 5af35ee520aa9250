// Encoding by byte pairs.
#include "text/bpe.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "base/utf8.h"

namespace windrow::text {
namespace {

// A heap with the lowest order on top.
bool later(const Bpe::Candidate& a, const Bpe::Candidate& b) { return a.order > b.order; }

}  // namespace

// The finalizer of splitmix64 over the pair and a seed that differs from process to process, so that
// no file can be made whose merges all fall together.
std::size_t Bpe::slot_of(std::uint64_t pair) const {
  std::uint64_t h = pair ^ seed_;
  h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9U;
  h = (h ^ h >> 27) * 0x94D049BB133111EBU;
  return static_cast<std::size_t>(h ^ h >> 31) & (merges_.size() - 1);
}

const Bpe::Merge* Bpe::find_merge(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  for (std::size_t slot = slot_of(pair);; slot = (slot + 1) & (merges_.size() - 1)) {
    if (merges_[slot].pair == pair) return &merges_[slot];
    if (merges_[slot].pair == kFree) return nullptr;
  }
}

std::int32_t Bpe::character_id(char32_t c) const {
  return character_ids_[static_cast<std::size_t>(pages_[c >> 8]) << 8 | (c & 0xFF)];
}

void Bpe::split_characters(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  const auto add = [&](std::int32_t id) {
    const auto index = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  };
  bool in_unknown = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t begin = at;
    std::int32_t id = character_id(next_utf8(word, at));
    if (id >= 0 && scratch.forbids(id)) id = -1;
    const bool unknown = id < 0 && byte_ids_.empty();
    if (id >= 0) {
      add(id);
    } else if (!unknown) {
      for (std::size_t i = begin; i < at; i++) add(byte_ids_[static_cast<unsigned char>(word[i])]);
    } else if (unknown_id_ >= 0 && !(in_unknown && fuse_unknown_)) {
      add(unknown_id_);
    }
    in_unknown = unknown;
  }
  if (!symbols.empty()) symbols.back().next = -1;
}

void Bpe::push_candidate(Scratch& scratch, std::int32_t left, bool heapify) const {
  if (left < 0) return;
  const Symbol& symbol = scratch.symbols[static_cast<std::size_t>(left)];
  if (symbol.next < 0) return;
  const Merge* merge = find_merge(symbol.id, scratch.symbols[static_cast<std::size_t>(symbol.next)].id);
  if (merge == nullptr || scratch.forbids(merge->id)) return;
  const auto rank = static_cast<std::uint64_t>(merge->rank);
  scratch.heap.push_back({rank << 32 | static_cast<std::uint32_t>(left), merge->id});
  if (heapify) std::push_heap(scratch.heap.begin(), scratch.heap.end(), later);
}

void Bpe::merge_all(Scratch& scratch) const {
  constexpr std::int32_t kDead = -1;  // the id of a symbol that was merged into its left neighbour
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  const auto n = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i + 1 < n; i++) push_candidate(scratch, i, false);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate candidate = heap.back();
    heap.pop_back();
    scratch.candidates++;
    const auto left = static_cast<std::int32_t>(candidate.order & 0xFFFFFFFFU);
    Symbol& symbol = symbols[static_cast<std::size_t>(left)];
    if (symbol.id == kDead || symbol.next < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(symbol.next)];
    // The pair may have become another one since; then its own candidate is in the heap.
    const Merge* merge = find_merge(symbol.id, right.id);
    if (merge == nullptr || merge->id != candidate.id) continue;
    symbol.id = candidate.id;
    symbol.next = right.next;
    right.id = kDead;
    if (symbol.next >= 0) symbols[static_cast<std::size_t>(symbol.next)].previous = left;
    push_candidate(scratch, symbol.previous, true);
    push_candidate(scratch, left, true);
  }
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  assert(word.size() <= std::numeric_limits<std::int32_t>::max());
  if (ignore_merges_) {
    if (const auto id = vocabulary_.id_of(word); id && !scratch.forbids(*id)) {
      ids.push_back(*id);
      return;
    }
  }
  split_characters(word, scratch);
  if (scratch.symbols.empty()) return;
  merge_all(scratch);
  for (std::int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<std::size_t>(i)].next) {
    ids.push_back(scratch.symbols[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace windrow::text
