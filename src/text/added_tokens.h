// The "added_tokens" of tokenizer.json: strings that are found in the text before BPE sees it.
//
// At each place the longest one counts, and the leftmost place first. A token with "normalized" false
// is looked for in the text as given, one with true in the normalized text (and its own text is
// normalized too). "single_word": not where it touches a letter; "lstrip", "rstrip": it takes the
// white space beside it along.
//
// Cost: O(text * length of the longest token), which is bounded.
// Thread safety: immutable after parse.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/component.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace windrow::text {

struct AddedToken {
  std::string text;     // as the file says it
  std::string pattern;  // what is looked for and decoded: `text`, normalized where the token is
  std::int32_t id = 0;
  bool special = false;
  bool single_word = false;
  bool left_strip = false;
  bool right_strip = false;
  bool normalized = false;
};

// A piece of text, or an added token in its place.
struct Segment {
  std::string_view text;
  std::int32_t id = -1;  // -1: text
};

// Where control tokens are not meant.
struct ControlGuard {
  std::vector<bool> control;  // [id]
  std::vector<Span> plain;    // bytes of the text that no control token may take; ascending, apart

  bool is_control(std::int32_t id) const {
    return static_cast<std::size_t>(id) < control.size() && control[static_cast<std::size_t>(id)];
  }
  bool touches_plain(std::size_t begin, std::size_t end) const;
  bool allows(std::int32_t id, std::size_t begin, std::size_t end) const {
    return !is_control(id) || !touches_plain(begin, end);
  }
};

class AddedTokens {
 public:
  // Reads the array at root's "added_tokens". Ids must agree with `vocabulary` and with each other.
  static AddedTokens parse(Component& root, const Vocabulary& vocabulary, const Normalizer& normalizer);

  // Appends the segments of `text`, none of them empty text. Views into `text`. `guard` may be null.
  void split_raw(std::string_view text, const ControlGuard* guard, std::vector<Segment>& segments) const {
    raw_.split(*this, text, guard, segments);
  }
  void split_normalized(std::string_view text, const ControlGuard* guard,
                        std::vector<Segment>& segments) const {
    normalized_.split(*this, text, guard, segments);
  }

  // [id]: the special ones, and of the others those that stand in `markup` and look like markup.
  std::vector<bool> control_ids(std::string_view markup) const;

  const AddedToken* find(std::string_view text) const;
  const AddedToken* find(std::int32_t id) const;
  int end_id() const noexcept { return end_id_; }  // 1 + the largest id, 0 for none

 private:
  // A trie over bytes.
  class Trie {
   public:
    void add(std::string_view text, std::size_t token);
    void split(const AddedTokens& tokens, std::string_view text, const ControlGuard* guard,
               std::vector<Segment>& segments) const;
    // Calls f(length, token) for each token that stands at text[at], the shortest first.
    template <class F>
    void each_at(std::string_view text, std::size_t at, const F& f) const;

   private:
    std::array<std::int32_t, 256> roots_{};                     // by the first byte, 0 for none
    std::unordered_map<std::uint64_t, std::int32_t> children_;  // node << 8 | byte
    std::vector<std::int32_t> tokens_{-1};  // by node, -1 where none ends; node 0 is no node
  };

  AddedToken parse_token(Component& item, const Vocabulary& vocabulary);

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, std::size_t> by_text_;
  std::unordered_map<std::int32_t, std::size_t> by_id_;
  int end_id_ = 0;
  Trie raw_;
  Trie normalized_;
};

}  // namespace windrow::text
