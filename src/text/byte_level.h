// GPT-2's printable stand-in for each byte: bytes that print in Latin-1 stand for themselves, the
// other 68 are U+0100, U+0101, ... in order of their value.
//
// Thread safety: free functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace windrow::text {

// Appends the stand-ins of the bytes.
void append_byte_level(std::string_view bytes, std::string& out);

// The byte that a character stands for.
std::optional<unsigned char> byte_of_stand_in(char32_t c) noexcept;

// Appends the bytes that `text` stands for; `text` itself where some character of it stands for none.
void append_bytes_of(std::string_view text, std::string& out);

}  // namespace windrow::text
