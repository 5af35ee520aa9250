// Normalizers; the Unicode forms and properties are utf8proc's.
#include "text/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <new>

#include "base/utf8.h"
#include "text/byte_level.h"

namespace windrow::text {
namespace {

Status too_long() {
  return Status(StatusCode::kResourceExhausted,
                fmt::format("normalized text is longer than {} bytes", kMaxTextBytes));
}

Status to_unicode_form(int form, std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out, static_cast<utf8proc_option_t>(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
  if (n == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (n < 0)
    return Status(StatusCode::kInvalidArgument, fmt::format("Unicode normalization: {}", utf8proc_errmsg(n)));
  text.assign(reinterpret_cast<const char*>(out), static_cast<std::size_t>(n));
  return Status();
}

// Each character's own lower case, without regard to its neighbours (a sigma stays medial).
void to_lowercase(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_utf8(text, at);
    if (c == 0x130) {  // the only one whose lower case is two characters (SpecialCasing.txt)
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  text = std::move(out);
}

void strip(bool left, bool right, std::string& text) {
  std::size_t begin = 0;
  while (left && begin < text.size()) {
    std::size_t next = begin;
    if (!is_white_space(next_utf8(text, next))) break;
    begin = next;
  }
  std::size_t end = text.size();
  while (right && end > begin) {
    std::size_t at = previous_utf8(text, end);
    const std::size_t last = at;
    if (!is_white_space(next_utf8(text, at))) break;
    end = last;
  }
  text = text.substr(begin, end - begin);
}

void strip_accents(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_utf8(text, at);
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    const bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                      category == UTF8PROC_CATEGORY_ME;
    if (!mark) append_utf8(out, c);
  }
  text = std::move(out);
}

}  // namespace

Status replace_all(const Pattern& pattern, std::string_view content, std::string& text) {
  std::vector<Span> matches;
  if (Status status = pattern.find_all(text, matches); !status.ok()) return status;
  if (matches.empty()) return Status();
  if (content.size() > kMaxTextBytes / matches.size()) return too_long();
  std::string out;
  out.reserve(text.size() + content.size() * matches.size());
  std::size_t done = 0;
  for (const Span& match : matches) {
    out.append(text, done, match.begin - done);
    out.append(content);
    done = match.end;
  }
  out.append(text, done);
  text = std::move(out);
  return Status();
}

Normalizer Normalizer::parse(Component& component) {
  Normalizer normalizer;
  normalizer.append(component);
  return normalizer;
}

void Normalizer::append(Component& component) {
  constexpr int kCompose = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
  constexpr int kDecompose = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  const std::string type = component.type();
  if (type == "Sequence") {
    component.allow({"normalizers"});
    component.each("normalizers", [this](Component& item) { append(item); });
    return;
  }
  Step step{Kind::kUnicode, Pattern(), "", 0, false, false};
  if (type == "Replace") {
    component.allow({"pattern", "content"});
    step.kind = Kind::kReplace;
    step.pattern = Pattern::parse(component, "pattern");
    step.content = component.require_string("content");
  } else if (type == "Prepend") {
    component.allow({"prepend"});
    step.kind = Kind::kPrepend;
    step.content = component.require_string("prepend");
  } else if (type == "Strip") {
    component.allow({"strip_left", "strip_right"});
    step.kind = Kind::kStrip;
    step.left = component.bool_or("strip_left", true);
    step.right = component.bool_or("strip_right", true);
  } else {
    if (type == "NFC") {
      step.form = kCompose;
    } else if (type == "NFD") {
      step.form = kDecompose;
    } else if (type == "NFKC") {
      step.form = kCompose | UTF8PROC_COMPAT;
    } else if (type == "NFKD") {
      step.form = kDecompose | UTF8PROC_COMPAT;
    } else if (type == "Lowercase") {
      step.kind = Kind::kLowercase;
    } else if (type == "StripAccents") {
      step.kind = Kind::kStripAccents;
    } else if (type == "ByteLevel") {
      step.kind = Kind::kByteLevel;
    } else {
      component.refuse_type(type);
    }
    component.allow({});
  }
  steps_.push_back(std::move(step));
}

Status Normalizer::apply_step(const Step& step, std::string& text) {
  switch (step.kind) {
    case Kind::kReplace: return replace_all(step.pattern, step.content, text);
    case Kind::kPrepend: text.insert(0, step.content); break;
    case Kind::kUnicode: return to_unicode_form(step.form, text);
    case Kind::kLowercase: to_lowercase(text); break;
    case Kind::kStrip: strip(step.left, step.right, text); break;
    case Kind::kStripAccents: strip_accents(text); break;
    case Kind::kByteLevel: {
      std::string out;
      append_byte_level(text, out);
      text = std::move(out);
      break;
    }
  }
  return Status();
}

Status Normalizer::apply(std::string& text) const {
  for (const Step& step : steps_) {
    if (text.empty()) return Status();
    if (Status status = apply_step(step, text); !status.ok()) return status;
    if (text.size() > kMaxTextBytes) return too_long();
  }
  return Status();
}

}  // namespace windrow::text
