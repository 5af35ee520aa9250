// UTF-8 by the table of RFC 3629, section 4.
#include "base/utf8.h"

#include <algorithm>

namespace windrow {
namespace {

unsigned char byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

// The length that a lead byte announces; 0 for a byte that can't lead.
std::size_t announced_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;  // a continuation byte, or an overlong form of ASCII
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// Whether `second` may follow `lead`: excludes overlong forms, surrogates and what is above U+10FFFF.
bool second_fits(unsigned char lead, unsigned char second) {
  if ((second & 0xC0) != 0x80) return false;
  if (lead == 0xE0) return second >= 0xA0;
  if (lead == 0xED) return second <= 0x9F;
  if (lead == 0xF0) return second >= 0x90;
  if (lead == 0xF4) return second <= 0x8F;
  return true;
}

// How many bytes from text[at] on fit a well-formed sequence of `announced` bytes.
std::size_t fitting(std::string_view text, std::size_t at, std::size_t announced) {
  const std::size_t limit = std::min(announced, text.size() - at);
  if (limit < 2) return limit;
  if (!second_fits(byte_at(text, at), byte_at(text, at + 1))) return 1;
  std::size_t n = 2;
  while (n < limit && (byte_at(text, at + n) & 0xC0) == 0x80) n++;
  return n;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) noexcept {
  const std::size_t announced = announced_length(byte_at(text, at));
  return fitting(text, at, announced) == announced ? announced : 0;
}

std::size_t utf8_cut_length(std::string_view text, std::size_t at) noexcept {
  const std::size_t announced = announced_length(byte_at(text, at));
  const std::size_t n = fitting(text, at, announced);
  return n < announced && at + n == text.size() ? n : 0;
}

std::size_t utf8_bad_length(std::string_view text, std::size_t at) noexcept {
  return std::max<std::size_t>(1, fitting(text, at, announced_length(byte_at(text, at))));
}

std::size_t find_invalid_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = utf8_length(text, at);
    if (n == 0) return at;
    at += n;
  }
  return std::string_view::npos;
}

char32_t next_utf8(std::string_view text, std::size_t& at) noexcept {
  const unsigned char lead = byte_at(text, at);
  const std::size_t n = announced_length(lead);
  char32_t c = n == 1 ? lead : lead & (0x7FU >> n);
  for (std::size_t k = 1; k < n; k++) c = c << 6 | (byte_at(text, at + k) & 0x3FU);
  at += n;
  return c;
}

std::size_t previous_utf8(std::string_view text, std::size_t at) noexcept {
  do {
    at--;
  } while (at > 0 && (byte_at(text, at) & 0xC0) == 0x80);
  return at;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool is_white_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace windrow
