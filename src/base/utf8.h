// UTF-8 (RFC 3629): checking, decoding, encoding; and the White_Space property.
//
// Thread safety: free functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace windrow {

// U+FFFD, which stands for bytes that are no character.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// The length of the well-formed sequence at text[at], 0 if there is none. REQUIRES at < text.size().
std::size_t utf8_length(std::string_view text, std::size_t at) noexcept;

// How many bytes from text[at] on are the beginning of some well-formed sequence that `text` cuts off:
// the rest of `text` if it could be continued, else 0. REQUIRES utf8_length(text, at) == 0.
std::size_t utf8_cut_length(std::string_view text, std::size_t at) noexcept;

// The number of bytes that one U+FFFD replaces at text[at]: the longest beginning of a well-formed
// sequence, at least 1 (Unicode 15, section 3.9, "maximal subpart"). REQUIRES utf8_length(text, at) == 0.
std::size_t utf8_bad_length(std::string_view text, std::size_t at) noexcept;

// The offset of the first byte that is not part of a well-formed sequence; npos if there is none.
std::size_t find_invalid_utf8(std::string_view text) noexcept;

// The character at text[at]; moves `at` behind it. REQUIRES well-formed text.
char32_t next_utf8(std::string_view text, std::size_t& at) noexcept;

// The offset of the character that ends before text[at]. REQUIRES well-formed text, at > 0.
std::size_t previous_utf8(std::string_view text, std::size_t at) noexcept;

void append_utf8(std::string& out, char32_t c);

// The property White_Space of Unicode (PropList.txt; unchanged since 6.3).
bool is_white_space(char32_t c) noexcept;

}  // namespace windrow
