// Pieces in one buffer, with a table by id and a hash by text.
#include "text/vocabulary.h"

#include <cassert>

namespace windrow::text {

void Vocabulary::reserve(std::size_t pieces, std::size_t bytes) {
  assert(pieces_.empty());
  bytes_.reserve(bytes);
  pieces_.reserve(pieces);
  ids_.reserve(pieces);
}

bool Vocabulary::add(std::string_view piece, std::int32_t id) {
  assert(id >= 0 && id < kMaxIds && bytes_.size() + piece.size() <= bytes_.capacity());
  const auto slot = static_cast<std::size_t>(id);
  if (piece_of(id) || ids_.contains(piece)) return false;
  if (slot >= slots_.size()) slots_.resize(slot + 1, -1);
  const std::size_t begin = bytes_.size();
  bytes_.insert(bytes_.end(), piece.begin(), piece.end());
  slots_[slot] = static_cast<std::int32_t>(pieces_.size());
  pieces_.emplace_back(bytes_.data() + begin, piece.size());
  ids_.emplace(pieces_.back(), id);
  return true;
}

std::optional<std::int32_t> Vocabulary::id_of(std::string_view piece) const {
  const auto it = ids_.find(piece);
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<std::string_view> Vocabulary::piece_of(std::int32_t id) const {
  if (id < 0 || id >= end_id()) return std::nullopt;
  const std::int32_t slot = slots_[static_cast<std::size_t>(id)];
  return slot < 0 ? std::nullopt : std::optional(pieces_[static_cast<std::size_t>(slot)]);
}

}  // namespace windrow::text
