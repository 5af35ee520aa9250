// Text that remembers which of its bytes came from outside.
//
// What a chat template itself says ("template" bytes) may hold control tokens; what the messages say
// ("plain" bytes) must never become one. A TaintedText carries the border between the two through
// everything that is done to a string: pieces are copied with their marks, and what is put together keeps
// the mark of each piece.
//
// Thread safety: a value.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"  // Span

namespace windrow::text {

class TaintedText {
 public:
  TaintedText() = default;
  TaintedText(std::string bytes, bool plain);

  const std::string& bytes() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return bytes_.size(); }
  bool empty() const noexcept { return bytes_.empty(); }
  // The plain bytes: ascending, none empty, no two touch.
  const std::vector<Span>& plain() const noexcept { return plain_; }
  bool any_plain() const noexcept { return !plain_.empty(); }
  bool plain_at(std::size_t at) const noexcept;
  // Memory that the text takes, about.
  std::size_t cost() const noexcept { return bytes_.size() + plain_.size() * sizeof(Span); }

  void append(std::string_view bytes, bool plain);
  void append(const TaintedText& other) { append(other, 0, other.size()); }
  // The bytes [begin, end) of `other`, which must not be this.
  void append(const TaintedText& other, std::size_t begin, std::size_t end);
  TaintedText slice(std::size_t begin, std::size_t end) const;

 private:
  std::string bytes_;
  std::vector<Span> plain_;
};

}  // namespace windrow::text
