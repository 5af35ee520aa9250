// Copying marks along with bytes.
#include "text/tainted_text.h"

#include <algorithm>
#include <cassert>

namespace windrow::text {

TaintedText::TaintedText(std::string bytes, bool plain) : bytes_(std::move(bytes)) {
  if (plain && !bytes_.empty()) plain_.push_back({0, bytes_.size()});
}

bool TaintedText::plain_at(std::size_t at) const noexcept {
  const auto it = std::upper_bound(plain_.begin(), plain_.end(), at,
                                   [](std::size_t a, const Span& span) { return a < span.end; });
  return it != plain_.end() && it->begin <= at;
}

void TaintedText::append(std::string_view bytes, bool plain) {
  if (bytes.empty()) return;
  const std::size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (!plain) return;
  if (!plain_.empty() && plain_.back().end == begin) {
    plain_.back().end = bytes_.size();
  } else {
    plain_.push_back({begin, bytes_.size()});
  }
}

void TaintedText::append(const TaintedText& other, std::size_t begin, std::size_t end) {
  assert(this != &other && begin <= end && end <= other.size());
  if (begin == end) return;  // also inside of plain bytes: an empty span is none
  const std::size_t base = bytes_.size();
  bytes_.append(other.bytes_, begin, end - begin);
  auto it = std::upper_bound(other.plain_.begin(), other.plain_.end(), begin,
                             [](std::size_t a, const Span& span) { return a < span.end; });
  for (; it != other.plain_.end() && it->begin < end; ++it) {
    const Span span{base + std::max(it->begin, begin) - begin, base + std::min(it->end, end) - begin};
    if (!plain_.empty() && plain_.back().end == span.begin) {
      plain_.back().end = span.end;
    } else {
      plain_.push_back(span);
    }
  }
}

TaintedText TaintedText::slice(std::size_t begin, std::size_t end) const {
  TaintedText out;
  out.append(*this, begin, end);
  return out;
}

}  // namespace windrow::text
