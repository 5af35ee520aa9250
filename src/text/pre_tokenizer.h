// The "pre_tokenizer" of tokenizer.json: how normalized text is cut into the words that BPE sees.
//
// Types: Sequence, Split, ByteLevel, Metaspace, Whitespace, WhitespaceSplit, Digits, Punctuation,
// CharDelimiterSplit. All but ByteLevel and Metaspace are a Split by a pattern of their own.
// Thread safety: immutable after parse.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/component.h"
#include "text/regex.h"
#include "windrow/status.h"

namespace windrow::text {

// Text and the words in it, in order, without overlap, none empty.
struct Words {
  std::string text;
  std::vector<Span> spans;
  bool at_start = true;  // text[0] is the beginning of what the caller encodes

  std::string_view word(std::size_t i) const {
    return std::string_view(text).substr(spans[i].begin, spans[i].end - spans[i].begin);
  }
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class PreTokenizer {
 public:
  // Errors go to the component.
  static PreTokenizer parse(Component& component);
  Status apply(Words& words) const;

 private:
  enum class Kind { kSplit, kByteLevel, kMetaspace };
  enum class Prepend { kNever, kFirst, kAlways };
  struct Step {
    Kind kind = Kind::kSplit;
    Pattern pattern;  // of kSplit and of a Metaspace that splits
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    bool split = true;  // of kMetaspace
    Prepend prepend = Prepend::kNever;
    std::string replacement = " ";  // of kMetaspace: what stands for a space and is prepended
  };
  void append(Component& component);
  static Step parse_metaspace(Component& component);
  static Status split(const Step& step, Words& words);
  static void prepend_and_replace(const Step& step, Words& words);
  static void to_byte_level(Words& words);
  void append_split(Pattern pattern, SplitBehavior behavior, bool invert = false);

  std::vector<Step> steps_;
};

}  // namespace windrow::text
