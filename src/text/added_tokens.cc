// Finding added tokens in text.
#include "text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/regex.h"

namespace windrow::text {
namespace {

constexpr std::size_t kMaxTokenBytes = 1024;  // known ones have up to 60

bool word_before(std::string_view text, std::size_t at) {
  if (at == 0) return false;
  const std::size_t begin = previous_utf8(text, at);
  return is_word_character(text.substr(begin, at - begin));
}

bool word_at(std::string_view text, std::size_t at) {
  return at < text.size() && is_word_character(text.substr(at, utf8_length(text, at)));
}

// Where the white space before `end` begins, not before `floor`.
std::size_t space_begin(std::string_view text, std::size_t end, std::size_t floor) {
  while (end > floor) {
    const std::size_t begin = previous_utf8(text, end);
    std::size_t at = begin;
    if (!is_white_space(next_utf8(text, at))) break;
    end = begin;
  }
  return end;
}

std::size_t space_end(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    std::size_t at = begin;
    if (!is_white_space(next_utf8(text, at))) break;
    begin = at;
  }
  return begin;
}

// A tag like <think>, not a word, a sign or white space.
bool looks_like_markup(std::string_view text) {
  const auto punctuation = [](char c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  };
  return text.size() >= 3 && std::any_of(text.begin(), text.end(), punctuation);
}

}  // namespace

void AddedTokens::Trie::add(std::string_view text, std::size_t token) {
  const auto child = [&](std::int32_t& slot) {
    if (slot == 0) {
      slot = static_cast<std::int32_t>(tokens_.size());
      tokens_.push_back(-1);
    }
    return slot;
  };
  std::int32_t node = child(roots_[static_cast<unsigned char>(text[0])]);
  for (const char c : text.substr(1)) {
    node = child(children_[static_cast<std::uint64_t>(node) << 8 | static_cast<unsigned char>(c)]);
  }
  std::int32_t& end = tokens_[static_cast<std::size_t>(node)];
  if (end < 0) end = static_cast<std::int32_t>(token);  // of two that are alike when normalized, the first
}

template <class F>
void AddedTokens::Trie::each_at(std::string_view text, std::size_t at, const F& f) const {
  std::int32_t node = roots_[static_cast<unsigned char>(text[at])];
  for (std::size_t n = 1; node != 0; n++) {
    const std::int32_t token = tokens_[static_cast<std::size_t>(node)];
    if (token >= 0) f(n, static_cast<std::size_t>(token));
    if (at + n >= text.size()) break;
    const auto it =
        children_.find(static_cast<std::uint64_t>(node) << 8 | static_cast<unsigned char>(text[at + n]));
    node = it == children_.end() ? 0 : it->second;
  }
}

void AddedTokens::Trie::split(const AddedTokens& tokens, std::string_view text, const ControlGuard* guard,
                              std::vector<Segment>& segments) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 0, index = 0;
    each_at(text, at, [&](std::size_t n, std::size_t i) {
      if (guard == nullptr || guard->allows(tokens.tokens_[i].id, at, at + n)) length = n, index = i;
    });
    if (length == 0) {
      at++;
      continue;
    }
    const AddedToken& token = tokens.tokens_[index];
    std::size_t begin = at;
    std::size_t end = at + length;
    at = end;
    if (token.single_word && (word_before(text, begin) || word_at(text, end))) continue;
    if (token.left_strip) begin = space_begin(text, begin, done);
    if (token.right_strip) at = end = space_end(text, end);
    if (done < begin) segments.push_back({text.substr(done, begin - done), -1});
    segments.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done), -1});
}

bool ControlGuard::touches_plain(std::size_t begin, std::size_t end) const {
  const auto it = std::upper_bound(plain.begin(), plain.end(), begin,
                                   [](std::size_t at, const Span& span) { return at < span.end; });
  return it != plain.end() && it->begin < end;
}

std::vector<bool> AddedTokens::control_ids(std::string_view markup) const {
  std::vector<bool> control(static_cast<std::size_t>(end_id_), false);
  for (const AddedToken& token : tokens_) {
    if (token.special) control[static_cast<std::size_t>(token.id)] = true;
  }
  for (std::size_t at = 0; at < markup.size(); at++) {
    const auto mark = [&](std::size_t, std::size_t index) {
      const AddedToken& token = tokens_[index];
      if (looks_like_markup(token.text)) control[static_cast<std::size_t>(token.id)] = true;
    };
    raw_.each_at(markup, at, mark);
    normalized_.each_at(markup, at, mark);
  }
  return control;
}

AddedToken AddedTokens::parse_token(Component& item, const Vocabulary& vocabulary) {
  item.allow({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token;
  token.text = item.require_string("content");
  token.id = item.require_int("id", 0, kMaxIds - 1);
  token.special = item.bool_or("special", false);
  token.single_word = item.bool_or("single_word", false);
  token.left_strip = item.bool_or("lstrip", false);
  token.right_strip = item.bool_or("rstrip", false);
  token.normalized = item.bool_or("normalized", !token.special);
  if (!item.ok()) return token;
  const auto known = vocabulary.id_of(token.text);
  const auto other = vocabulary.piece_of(token.id);
  if (token.text.empty()) {
    item.fail("content", "is empty");
  } else if (token.text.size() > kMaxTokenBytes) {
    item.fail("content", fmt::format("has {} bytes, the limit is {}", token.text.size(), kMaxTokenBytes),
              StatusCode::kUnsupported);
  } else if (known && *known != token.id) {
    item.fail("id", fmt::format("is {}, but the vocabulary gives {} the id {}", token.id, quote(token.text),
                                *known));
  } else if (other && *other != token.text) {
    item.fail("id", fmt::format("is {}, which the vocabulary gives to {}", token.id, quote(*other)));
  } else if (find(token.text) != nullptr) {
    item.fail("content", fmt::format("is {} a second time", quote(token.text)));
  } else if (const AddedToken* taken = find(token.id)) {
    item.fail("id", fmt::format("is {}, which {} has", token.id, quote(taken->text)));
  }
  return token;
}

AddedTokens AddedTokens::parse(Component& root, const Vocabulary& vocabulary, const Normalizer& normalizer) {
  AddedTokens result;
  if (!root.has("added_tokens")) return result;
  root.each("added_tokens", [&](Component& item) {
    AddedToken token = result.parse_token(item, vocabulary);
    if (!item.ok()) return;
    token.pattern = token.text;
    if (token.normalized) {
      if (Status status = normalizer.apply(token.pattern); !status.ok()) {
        return item.fail("content", "is refused: " + status.message(), status.code());
      }
      if (token.pattern.size() > kMaxTokenBytes) {
        return item.fail("content",
                         fmt::format("has {} bytes when normalized, the limit is {}", token.pattern.size(),
                                     kMaxTokenBytes),
                         StatusCode::kUnsupported);
      }
    }
    const std::size_t index = result.tokens_.size();
    if (!token.pattern.empty())
      (token.normalized ? result.normalized_ : result.raw_).add(token.pattern, index);
    result.by_text_.emplace(token.text, index);
    result.by_id_.emplace(token.id, index);
    result.end_id_ = std::max(result.end_id_, token.id + 1);
    result.tokens_.push_back(std::move(token));
  });
  return result;
}

const AddedToken* AddedTokens::find(std::string_view text) const {
  const auto it = by_text_.find(std::string(text));
  return it == by_text_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

}  // namespace windrow::text
