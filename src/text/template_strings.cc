// String methods.
#include "text/template_strings.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "base/utf8.h"

namespace windrow::text {

bool is_python_space(char32_t c) noexcept { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::int64_t count_characters(std::string_view text) noexcept {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::size_t character_offset(std::string_view text, std::int64_t n) noexcept {
  std::size_t at = 0;
  while (n-- > 0 && at < text.size()) at += utf8_length(text, at);
  return at;
}

Span strip_span(std::string_view text, const std::string* characters, bool left, bool right) {
  std::vector<char32_t> set;  // sorted: a long text may be stripped of a long set
  for (std::size_t at = 0; characters != nullptr && at < characters->size();)
    set.push_back(next_utf8(*characters, at));
  std::sort(set.begin(), set.end());
  const auto cut = [&](std::string_view character) {
    std::size_t at = 0;
    const char32_t c = next_utf8(character, at);
    return characters == nullptr ? is_python_space(c) : std::binary_search(set.begin(), set.end(), c);
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const std::size_t n = utf8_length(text, begin);
    if (!cut(text.substr(begin, n))) break;
    begin += n;
  }
  while (right && end > begin) {
    const std::size_t at = previous_utf8(text, end);
    if (!cut(text.substr(at, end - at))) break;
    end = at;
  }
  return {begin, end};
}

std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return text.npos;
  if (needle.empty()) return from;
  // std::string::find is quadratic for needles like aaab; memmem is not.
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at == nullptr ? text.npos : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

namespace {

std::vector<Span> split_at_spaces(std::string_view text, std::int64_t limit) {
  std::vector<Span> parts;
  std::size_t at = 0;
  const auto space_at = [&](std::size_t i) {
    std::size_t next = i;
    return is_python_space(next_utf8(text, next)) ? next - i : 0;
  };
  while (true) {
    while (at < text.size() && space_at(at) > 0) at += space_at(at);
    if (at == text.size()) return parts;
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) == limit) {
      parts.push_back({at, strip_span(text, nullptr, false, true).end});
      return parts;
    }
    const std::size_t begin = at;
    while (at < text.size() && space_at(at) == 0) at += utf8_length(text, at);
    parts.push_back({begin, at});
  }
}

}  // namespace

std::vector<Span> split_spans(std::string_view text, const std::string* separator, std::int64_t limit,
                              bool from_right, Budget& budget) {
  budget.read(text.size());
  if (separator == nullptr) {
    if (from_right && limit >= 0)
      template_error("rsplit at white space with a limit is not supported", StatusCode::kUnsupported);
    std::vector<Span> parts = split_at_spaces(text, limit);
    budget.allocate_items(parts.size());
    return parts;
  }
  std::vector<Span> parts;
  std::size_t begin = 0;
  for (std::size_t at; (at = find_text(text, *separator, begin)) != text.npos;) {
    if (!from_right && limit >= 0 && static_cast<std::int64_t>(parts.size()) == limit) break;
    budget.allocate_items(1);
    parts.push_back({begin, at});
    begin = at + separator->size();
  }
  parts.push_back({begin, text.size()});
  // Separators that overlap (aa in aaa) would be cut elsewhere from the right; templates don't have them.
  if (from_right && limit >= 0 && parts.size() > static_cast<std::size_t>(limit) + 1) {
    const std::size_t joined = parts.size() - static_cast<std::size_t>(limit);  // they stay one
    parts[joined - 1].begin = 0;
    parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(joined) - 1);
  }
  return parts;
}

std::vector<Span> line_spans(std::string_view text, bool keep_ends) {
  std::vector<Span> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t here = at;
    const char32_t c = next_utf8(text, at);
    const bool ends =
        (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') at++;
    lines.push_back({begin, keep_ends ? at : here});
    begin = at;
  }
  if (begin < text.size()) lines.push_back({begin, text.size()});
  return lines;
}

TaintedText replace_text(const TaintedText& text, std::string_view from, const TaintedText& to,
                         std::int64_t limit, Budget& budget) {
  if (from.empty()) template_error("replace of an empty text is not supported", StatusCode::kUnsupported);
  TaintedText out;
  std::size_t done = 0;
  budget.read(text.size());
  for (std::size_t at; limit != 0 && (at = find_text(text.bytes(), from, done)) != std::string::npos;
       limit--) {
    budget.allocate(to.cost());
    out.append(text, done, at);
    out.append(to);
    done = at + from.size();
  }
  out.append(text, done, text.size());
  return out;
}

TaintedText map_case(const TaintedText& text, Case how, Budget& budget) {
  budget.allocate(2 * text.cost());
  TaintedText out;
  std::string mapped;
  bool in_word = false;
  const std::string& bytes = text.bytes();
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    const char32_t c = next_utf8(bytes, at);
    const auto code = static_cast<utf8proc_int32_t>(c);
    const bool upper = how == Case::kUpper || (how != Case::kLower && !in_word);
    mapped.clear();
    if (how == Case::kUpper && c == 0xDF) {
      mapped = "SS";
    } else {
      append_utf8(mapped, static_cast<char32_t>(!upper                ? utf8proc_tolower(code)
                                                : how == Case::kTitle ? utf8proc_totitle(code)
                                                                      : utf8proc_toupper(code)));
    }
    out.append(mapped, text.plain_at(begin));
    if (how == Case::kTitle) {
      in_word = utf8proc_toupper(code) != code || utf8proc_tolower(code) != code;
    } else if (how == Case::kTitleOfWords) {
      in_word = !is_python_space(c) && std::u32string_view(U"-({[<").find(c) == std::u32string_view::npos;
    } else {
      in_word = true;
    }
  }
  return out;
}

TaintedText indent_text(const TaintedText& text, const TaintedText& indent, bool first, bool blank,
                        Budget& budget) {
  TaintedText out;
  const std::string& bytes = text.bytes();
  budget.allocate(text.cost());
  bool at_first = true;
  for (std::size_t begin = 0;;) {
    const std::size_t newline = bytes.find('\n', begin);
    const std::size_t end = newline == bytes.npos ? bytes.size() : newline;
    if (at_first ? first : (blank || end > begin)) {
      budget.allocate(indent.cost());
      out.append(indent);
    }
    at_first = false;
    if (newline == bytes.npos) {
      out.append(text, begin, end);
      return out;
    }
    out.append(text, begin, newline + 1);
    begin = newline + 1;
  }
}

}  // namespace windrow::text
