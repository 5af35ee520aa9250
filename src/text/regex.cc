// PCRE2 behind the interface of regex.h.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cassert>
#include <new>

#include "base/utf8.h"

namespace windrow::text {
namespace {

constexpr std::size_t kMaxPatternBytes = 1 << 14;  // the longest known one (o200k) has about 500
constexpr std::size_t kMatchesPerByte = 16;
constexpr std::size_t kMatchesFixed = 10'000;
constexpr std::uint32_t kHeapKib = 64 * 1024;  // of the interpreter, where there is no JIT
constexpr std::size_t kJitStackBytes = 1 << 20;

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct FreeContext {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
struct FreeCompile {
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
};
struct FreeStack {
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// What one search needs besides the expression.
class Search {
 public:
  Search(const pcre2_code* code, std::string_view text)
      : code_(code),
        text_(text),
        match_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    if (match_ == nullptr || context_ == nullptr) throw std::bad_alloc();
    const std::size_t limit = std::min<std::size_t>(text.size() * kMatchesPerByte + kMatchesFixed, 1U << 31);
    pcre2_set_match_limit(context_.get(), static_cast<std::uint32_t>(limit));
    pcre2_set_heap_limit(context_.get(), kHeapKib);
  }

  // Below 0: PCRE2's error.
  int at(std::size_t start) {
    int rc = run(start, 0);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && stack_ == nullptr) {  // PCRE2's own stack of 32 KiB is spent
      stack_.reset(pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr));
      pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
      rc = run(start, 0);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = run(start, PCRE2_NO_JIT);
    return rc;
  }

  Span found() const {
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match_.get());
    return {offsets[0], offsets[1]};
  }

 private:
  int run(std::size_t start, std::uint32_t options) {
    // The text was checked once; checking it again at each start would make the scan quadratic.
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), start,
                       options | PCRE2_NO_UTF_CHECK, match_.get(), context_.get());
  }

  const pcre2_code* code_;
  std::string_view text_;
  std::unique_ptr<pcre2_match_data, FreeMatch> match_;
  std::unique_ptr<pcre2_match_context, FreeContext> context_;
  std::unique_ptr<pcre2_jit_stack, FreeStack> stack_;
};

}  // namespace

struct Regex::Code {
  std::string pattern;  // as written, for messages
  std::unique_ptr<pcre2_code, FreeCode> code;
};

Result<Regex> Regex::compile(const std::string& oniguruma) {
  if (oniguruma.size() > kMaxPatternBytes) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("regex of {} bytes, the limit is {}", oniguruma.size(), kMaxPatternBytes));
  }
  Result<std::string> pattern = translate_regex(oniguruma);
  if (!pattern.ok()) return pattern.status().with_context(fmt::format("regex {}", quote(oniguruma)));

  std::unique_ptr<pcre2_compile_context, FreeCompile> context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // Oniguruma's only one
  // In Ruby's syntax ^ and $ always stand at lines.
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->pattern = oniguruma;
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern->data()), pattern->size(), kOptions,
                                 &error, &offset, context.get()));
  if (code->code == nullptr) {
    return Status(StatusCode::kCorrupt,
                  fmt::format("regex {} does not compile: {}", quote(oniguruma), message_of(error)));
  }
  pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);  // where it fails, matches are interpreted
  return Regex(std::move(code));
}

Status Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  if (text.empty()) return Status();
  Search search(code_->code.get(), text);
  std::size_t start = 0;
  std::size_t last_end = std::string_view::npos;  // of the last match
  while (start <= text.size()) {
    const int rc = search.at(start);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return Status(StatusCode::kResourceExhausted,
                    fmt::format("regex {} gives up on {} bytes of text: {}", quote(code_->pattern),
                                text.size(), message_of(rc)));
    }
    const Span found = search.found();
    const bool empty = found.begin == found.end;
    if (!empty || found.end != last_end) {
      matches.push_back(found);
      last_end = found.end;
      start = found.end;
    } else if (start < text.size()) {
      start += utf8_length(text, start);
    } else {
      break;
    }
  }
  return Status();
}

bool is_word_character(std::string_view character) {
  static const Pattern kWord = Pattern::of(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}])");
  std::vector<Span> matches;
  return kWord.find_all(character, matches).ok() && !matches.empty();
}

Pattern Pattern::parse(Component& component, const char* key) {
  Pattern pattern;
  const Json* value = component.find(key);
  if (value == nullptr) {
    component.fail(key, "is missing");
    return pattern;
  }
  const bool one = value->is_object() && value->size() == 1 && value->begin()->is_string();
  const std::string kind = one ? value->begin().key() : "";
  if (kind != "String" && kind != "Regex") {
    component.fail(
        key, fmt::format("is {}, expected {{\"String\": ...}} or {{\"Regex\": ...}}", describe(*value)));
    return pattern;
  }
  const auto& text = value->begin()->get_ref<const std::string&>();
  if (text.empty()) {
    component.fail(key, "is empty", StatusCode::kUnsupported);
  } else if (kind == "String") {
    pattern.kind_ = text;
  } else if (Result<Regex> regex = Regex::compile(text); regex.ok()) {
    pattern.kind_ = std::move(*regex);
  } else {
    component.fail(key, "is refused: " + regex.status().message(), regex.status().code());
  }
  return pattern;
}

Pattern Pattern::of_literal(std::string literal) {
  Pattern pattern;
  pattern.kind_ = std::move(literal);
  return pattern;
}

Pattern Pattern::of(const char* regex) {
  Result<Regex> compiled = Regex::compile(regex);
  assert(compiled.ok());
  return Pattern(std::move(*compiled));
}

Status Pattern::find_all(std::string_view text, std::vector<Span>& matches) const {
  if (const auto* regex = std::get_if<Regex>(&kind_)) return regex->find_all(text, matches);
  const auto& literal = std::get<std::string>(kind_);
  if (literal.empty()) return Status();
  for (std::size_t at = text.find(literal); at != text.npos; at = text.find(literal, at + literal.size())) {
    matches.push_back({at, at + literal.size()});
  }
  return Status();
}

}  // namespace windrow::text
