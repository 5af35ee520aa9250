// The byte <-> character tables of byte-level BPE.
#include "text/byte_level.h"

#include <array>

#include "base/utf8.h"

namespace windrow::text {
namespace {

constexpr char32_t kFirstShifted = 0x100;
constexpr std::size_t kShifted = 68;  // 0x00-0x20, 0x7F-0xA0 and 0xAD: 33 + 34 + 1

constexpr bool prints(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<unsigned char, kShifted> shifted{};  // the byte of U+0100 + index
};

constexpr Tables make_tables() {
  Tables tables;
  std::size_t n = 0;
  for (unsigned byte = 0; byte < 256; byte++) {
    if (!prints(byte)) tables.shifted[n] = static_cast<unsigned char>(byte);
    tables.character[byte] = prints(byte) ? byte : kFirstShifted + static_cast<char32_t>(n++);
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

void append_byte_level(std::string_view bytes, std::string& out) {
  for (const char b : bytes) append_utf8(out, kTables.character[static_cast<unsigned char>(b)]);
}

std::optional<unsigned char> byte_of_stand_in(char32_t c) noexcept {
  if (c >= kFirstShifted && c < kFirstShifted + kShifted) return kTables.shifted[c - kFirstShifted];
  if (c < 0x100 && prints(static_cast<unsigned>(c))) return static_cast<unsigned char>(c);
  return std::nullopt;
}

void append_bytes_of(std::string_view text, std::string& out) {
  const std::size_t before = out.size();
  for (std::size_t at = 0; at < text.size();) {
    const std::optional<unsigned char> byte = byte_of_stand_in(next_utf8(text, at));
    if (!byte) {
      out.resize(before);
      out.append(text);
      return;
    }
    out.push_back(static_cast<char>(*byte));
  }
}

}  // namespace windrow::text
