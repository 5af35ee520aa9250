// Pieces of text and their ids, one to one; ids may have holes.
//
// Thread safety: immutable once built.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace windrow::text {

// Ids lie below this. The largest known vocabulary has 262,208; the bound keeps a file of a hundred
// bytes from asking for gigabytes through one huge id.
inline constexpr int kMaxIds = 1 << 21;

class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;  // the views stay valid: a vector's buffer moves along
  Vocabulary& operator=(Vocabulary&&) = default;

  // Makes room; add() REQUIRES that no more pieces and bytes come than were reserved.
  void reserve(std::size_t pieces, std::size_t bytes);
  // False where the piece or the id is taken. REQUIRES 0 <= id < kMaxIds.
  bool add(std::string_view piece, std::int32_t id);

  std::optional<std::int32_t> id_of(std::string_view piece) const;
  std::optional<std::string_view> piece_of(std::int32_t id) const;
  int end_id() const noexcept { return static_cast<int>(slots_.size()); }  // 1 + the largest id
  std::size_t size() const noexcept { return pieces_.size(); }

 private:
  std::vector<char> bytes_;  // all pieces; reserved once, so that the views stay valid
  std::vector<std::string_view> pieces_;
  std::vector<std::int32_t> slots_;  // id -> index into pieces_, -1 for none
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

}  // namespace windrow::text
