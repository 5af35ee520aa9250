// Cutting text into words.
#include "text/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/normalizer.h"

namespace windrow::text {
namespace {

// GPT-2's cut: contractions, words, numbers and other signs with the space before them, white space.
constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Words and runs of signs, where \w is Rust's: Oniguruma's and Join_Control, less Latin-1's fractions.
constexpr const char* kWhitespace =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\s]+)";
// Category P, and what ASCII counts as punctuation besides.
constexpr const char* kPunctuation = R"([\p{P}$+<=>^`|~])";

SplitBehavior behavior_of(Component& component, SplitBehavior fallback) {
  constexpr std::pair<const char*, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  if (!component.has("behavior")) return fallback;
  const std::string name = component.string_or("behavior", "");
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  component.fail("behavior", fmt::format("is {}, which is not supported", quote(name)),
                 StatusCode::kUnsupported);
  return fallback;
}

struct Part {
  Span span;
  bool match;
};

// The whole of `text` as matches and what lies between them.
void cut_at_matches(std::string_view text, const std::vector<Span>& matches, bool invert,
                    std::vector<Part>& parts) {
  std::size_t done = 0;
  for (const Span& match : matches) {
    if (done != match.begin) parts.push_back({{done, match.begin}, invert});
    parts.push_back({match, !invert});
    done = match.end;
  }
  if (done != text.size()) parts.push_back({{done, text.size()}, invert});
}

// Appends the words that the parts make, `base` added to their offsets.
void append_words(const std::vector<Part>& parts, SplitBehavior behavior, std::size_t base,
                  std::vector<Span>& words) {
  const auto add = [&](Span span) {
    if (span.begin != span.end) words.push_back({base + span.begin, base + span.end});
  };
  bool open = false;
  Span word{0, 0};
  for (std::size_t i = 0; i < parts.size(); i++) {
    const bool match = parts[i].match;
    const bool before = i > 0 && parts[i - 1].match;
    bool joins = false;  // the word that is open
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (match) continue;
        break;
      case SplitBehavior::kIsolated: break;
      case SplitBehavior::kMergedWithPrevious: joins = match && !before; break;
      // A match goes to what follows it, unless that is a match too.
      case SplitBehavior::kMergedWithNext: joins = i > 0 && before && !match; break;
      case SplitBehavior::kContiguous: joins = match == before; break;
    }
    if (open && joins) {
      word.end = parts[i].span.end;
      continue;
    }
    if (open) add(word);
    word = parts[i].span;
    open = true;
  }
  if (open) add(word);
}

}  // namespace

PreTokenizer PreTokenizer::parse(Component& component) {
  PreTokenizer result;
  result.append(component);
  return result;
}

void PreTokenizer::append_split(Pattern pattern, SplitBehavior behavior, bool invert) {
  Step step;
  step.pattern = std::move(pattern);
  step.behavior = behavior;
  step.invert = invert;
  steps_.push_back(std::move(step));
}

PreTokenizer::Step PreTokenizer::parse_metaspace(Component& component) {
  component.allow({"replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  Step step;
  step.kind = Kind::kMetaspace;
  step.behavior = SplitBehavior::kMergedWithNext;
  step.replacement.clear();
  append_utf8(step.replacement, component.require_char("replacement"));
  step.split = component.bool_or("split", true);
  // Older files have add_prefix_space alone; newer ones may have both, which then must agree.
  const bool add = component.bool_or("add_prefix_space", true);
  const std::string scheme = component.string_or("prepend_scheme", add ? "always" : "never");
  step.prepend = scheme == "never" ? Prepend::kNever : scheme == "first" ? Prepend::kFirst : Prepend::kAlways;
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    component.fail("prepend_scheme", fmt::format("is {}, which is not supported", quote(scheme)),
                   StatusCode::kUnsupported);
  } else if (!add && step.prepend != Prepend::kNever) {
    component.fail("prepend_scheme", fmt::format("is {} where add_prefix_space is false", quote(scheme)));
  }
  step.pattern = Pattern::of_literal(step.replacement);
  return step;
}

void PreTokenizer::append(Component& component) {
  const std::string type = component.type();
  if (type == "Sequence") {
    component.allow({"pretokenizers"});
    component.each("pretokenizers", [this](Component& item) { append(item); });
  } else if (type == "Split") {
    component.allow({"pattern", "behavior", "invert"});
    Pattern pattern = Pattern::parse(component, "pattern");
    if (!component.has("behavior")) component.fail("behavior", "is missing");
    append_split(std::move(pattern), behavior_of(component, SplitBehavior::kIsolated),
                 component.bool_or("invert", false));
  } else if (type == "ByteLevel") {
    component.allow({"add_prefix_space", "trim_offsets", "use_regex"});  // offsets are not ours
    Step step;
    step.kind = Kind::kMetaspace;
    step.split = false;
    step.prepend = component.bool_or("add_prefix_space", true) ? Prepend::kAlways : Prepend::kNever;
    if (step.prepend == Prepend::kAlways) steps_.push_back(step);  // " " replaces itself
    if (component.bool_or("use_regex", true))
      append_split(Pattern::of(kGpt2Pattern), SplitBehavior::kIsolated);
    step.kind = Kind::kByteLevel;
    steps_.push_back(step);
  } else if (type == "Metaspace") {
    steps_.push_back(parse_metaspace(component));
  } else if (type == "Whitespace") {
    component.allow({});
    append_split(Pattern::of(kWhitespace), SplitBehavior::kRemoved, true);
  } else if (type == "WhitespaceSplit") {
    component.allow({});
    append_split(Pattern::of(R"(\s)"), SplitBehavior::kRemoved);
  } else if (type == "Digits") {
    component.allow({"individual_digits"});
    append_split(Pattern::of(R"(\p{N})"), component.bool_or("individual_digits", false)
                                              ? SplitBehavior::kIsolated
                                              : SplitBehavior::kContiguous);
  } else if (type == "Punctuation") {
    component.allow({"behavior"});
    append_split(Pattern::of(kPunctuation), behavior_of(component, SplitBehavior::kIsolated));
  } else if (type == "CharDelimiterSplit") {
    component.allow({"delimiter"});
    std::string delimiter;
    append_utf8(delimiter, component.require_char("delimiter"));
    append_split(Pattern::of_literal(delimiter), SplitBehavior::kRemoved);
  } else {
    component.refuse_type(type);
  }
}

Status PreTokenizer::split(const Step& step, Words& words) {
  std::vector<Span> spans, matches;
  std::vector<Part> parts;
  for (std::size_t i = 0; i < words.spans.size(); i++) {
    matches.clear();
    parts.clear();
    // Each word is searched alone: what stands beside it must not be seen by a lookahead.
    if (Status status = step.pattern.find_all(words.word(i), matches); !status.ok()) return status;
    cut_at_matches(words.word(i), matches, step.invert, parts);
    append_words(parts, step.behavior, words.spans[i].begin, spans);
  }
  words.spans = std::move(spans);
  return Status();
}

// Spaces become the replacement, and a word that does not begin with it gets one in front.
void PreTokenizer::prepend_and_replace(const Step& step, Words& words) {
  Words out;
  out.text.reserve(words.text.size() + step.replacement.size());
  for (std::size_t i = 0; i < words.spans.size(); i++) {
    const std::string_view word = words.word(i);
    const std::size_t begin = out.text.size();
    const bool prefixed = word.front() == ' ' || word.starts_with(step.replacement);
    const bool first = words.at_start && words.spans[i].begin == 0;
    if (!prefixed && (step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && first))) {
      out.text += step.replacement;
    }
    for (const char c : word) {
      if (c == ' ') {
        out.text += step.replacement;
      } else {
        out.text += c;
      }
    }
    out.spans.push_back({begin, out.text.size()});
  }
  out.at_start = words.at_start && !words.spans.empty() && words.spans[0].begin == 0;
  words = std::move(out);
}

void PreTokenizer::to_byte_level(Words& words) {
  Words out;
  out.text.reserve(words.text.size() + words.text.size() / 2);
  for (std::size_t i = 0; i < words.spans.size(); i++) {
    const std::size_t begin = out.text.size();
    append_byte_level(words.word(i), out.text);
    out.spans.push_back({begin, out.text.size()});
  }
  out.at_start = words.at_start && !words.spans.empty() && words.spans[0].begin == 0;
  words = std::move(out);
}

Status PreTokenizer::apply(Words& words) const {
  for (const Step& step : steps_) {
    if (step.kind == Kind::kByteLevel) {
      to_byte_level(words);
    } else if (step.kind == Kind::kMetaspace) {
      prepend_and_replace(step, words);
    }
    const bool splits = step.kind == Kind::kSplit || (step.kind == Kind::kMetaspace && step.split);
    if (splits) {
      if (Status status = split(step, words); !status.ok()) return status;
    }
    if (words.text.size() > 2 * kMaxTextBytes) {
      return Status(StatusCode::kResourceExhausted, fmt::format("text of {} bytes to cut, the limit is {}",
                                                                words.text.size(), 2 * kMaxTextBytes));
    }
  }
  return Status();
}

}  // namespace windrow::text
