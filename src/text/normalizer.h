// The "normalizer" of tokenizer.json: what is done to the text before it is cut.
//
// Types: Sequence, Replace, Prepend, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, ByteLevel.
// Thread safety: immutable after parse.
#pragma once

#include <string>
#include <vector>

#include "text/component.h"
#include "text/regex.h"
#include "windrow/status.h"

namespace windrow::text {

// No text may grow beyond this inside the tokenizer: 16 MiB, some 4 million tokens. A tokenizer.json
// that replaces one character by a thousand, twice, is stopped here and not by the memory.
inline constexpr std::size_t kMaxTextBytes = std::size_t{16} << 20;

class Normalizer {
 public:
  // Errors go to the component.
  static Normalizer parse(Component& component);

  bool empty() const noexcept { return steps_.empty(); }
  // REQUIRES well-formed UTF-8, and leaves it. kResourceExhausted above kMaxTextBytes.
  Status apply(std::string& text) const;

 private:
  enum class Kind { kReplace, kPrepend, kUnicode, kLowercase, kStrip, kStripAccents, kByteLevel };
  struct Step {
    Kind kind;
    Pattern pattern;
    std::string content;  // of Replace and Prepend
    int form = 0;         // of kUnicode: utf8proc's options
    bool left = false;    // of Strip
    bool right = false;
  };
  static Status apply_step(const Step& step, std::string& text);
  void append(Component& component);

  std::vector<Step> steps_;
};

// `text` with every match of `pattern` replaced by `content`.
Status replace_all(const Pattern& pattern, std::string_view content, std::string& text);

}  // namespace windrow::text
