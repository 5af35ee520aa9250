// The tokenizer: the parts of tokenizer.json in the order in which text goes through them.
#include "windrow/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
#include "io/file.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/component.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"

namespace windrow {

using text::Component;

namespace {

// The largest known file (262,144 tokens, merges as pairs) has 33 MB.
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

// Runs f, turning what the standard library throws (memory, entropy) into a status.
template <typename F>
auto guarded(const char* what, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, fmt::format("out of memory while {}", what));
  } catch (const std::exception& e) {
    return Status(StatusCode::kResourceExhausted, fmt::format("failed while {}: {}", what, e.what()));
  }
}

}  // namespace

struct Tokenizer::Impl {
  text::Bpe bpe;
  text::Normalizer normalizer;
  text::AddedTokens added;
  text::PreTokenizer pre_tokenizer;
  text::PostProcessor post_processor;
  text::DecoderChain decoder;
  int vocab_size = 0;

  static Result<Tokenizer> parse(std::string_view json, const std::string& name);
  Status read(Component& root);
  Status encode_text(std::string text, bool at_start, text::Bpe::Scratch& scratch,
                     std::vector<std::int32_t>& ids) const;
  // A part of the text that is normalized on its own, and whether it is free of guarded bytes.
  struct Part {
    std::string_view text;
    bool trusted;
  };
  Status parts_of(std::string_view segment, std::size_t offset, const text::ControlGuard* guard,
                  std::vector<Part>& parts) const;
  Status encode_part(const Part& part, bool at_start, const text::ControlGuard* guard,
                     text::Bpe::Scratch& scratch, std::vector<std::int32_t>& ids) const;
  // `guard` may be null: nothing is forbidden.
  Status encode(std::string_view text, const text::ControlGuard* guard, std::vector<std::int32_t>& ids) const;
  std::optional<std::string_view> token_of(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  Result<std::string_view> piece_to_decode(std::int32_t id) const;
};

Status Tokenizer::Impl::read(Component& root) {
  root.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
              "post_processor", "decoder", "model"});
  if (root.has("version") && root.string_or("version", "") != "1.0") {
    root.fail("version", fmt::format("is {}, expected \"1.0\"", describe(*root.find("version"))),
              StatusCode::kUnsupported);
  }
  for (const char* key : {"truncation", "padding"}) {
    if (root.has(key)) root.fail(key, "is not null, which is not supported", StatusCode::kUnsupported);
  }
  if (!root.has("model")) root.fail("model", "is missing");
  // Calls f with the component at `key`, if there is one.
  const auto with = [&](const char* key, auto f) {
    if (!root.ok() || !root.has(key)) return;
    Component component(*root.find(key), root.name(), root.error(), key);
    if (root.ok()) f(component);
  };
  with("model", [&](Component& c) { bpe = text::Bpe::parse(c); });
  with("normalizer", [&](Component& c) { normalizer = text::Normalizer::parse(c); });
  with("pre_tokenizer", [&](Component& c) { pre_tokenizer = text::PreTokenizer::parse(c); });
  with("decoder", [&](Component& c) { decoder = text::DecoderChain::parse(c); });
  if (root.ok()) added = text::AddedTokens::parse(root, bpe.vocabulary(), normalizer);
  const auto known = [&](std::int32_t id) { return token_of(id).has_value(); };
  with("post_processor", [&](Component& c) { post_processor = text::PostProcessor::parse(c, known); });
  vocab_size = std::max(bpe.vocabulary().end_id(), added.end_id());
  return root.error();
}

Result<Tokenizer> Tokenizer::Impl::parse(std::string_view json, const std::string& name) {
  return guarded("reading a tokenizer", [&]() -> Result<Tokenizer> {
    const Result<Json> parsed = parse_json(json, name, {.max_bytes = kMaxFileBytes});
    if (!parsed.ok()) return parsed.status();
    Status error;
    Component root(*parsed, name, error, "");
    auto impl = std::make_shared<Impl>();
    if (error.ok()) error = impl->read(root);
    if (!error.ok()) return error;
    return Tokenizer(std::move(impl));
  });
}

std::optional<std::string_view> Tokenizer::Impl::token_of(std::int32_t id) const {
  if (const text::AddedToken* token = added.find(id)) return token->text;
  return bpe.vocabulary().piece_of(id);
}

bool Tokenizer::Impl::is_special(std::int32_t id) const {
  const text::AddedToken* token = added.find(id);
  return token != nullptr && token->special;
}

Result<std::string_view> Tokenizer::Impl::piece_to_decode(std::int32_t id) const {
  if (const text::AddedToken* token = added.find(id)) return std::string_view(token->pattern);
  if (const auto piece = bpe.vocabulary().piece_of(id)) return *piece;
  if (id >= 0 && id < vocab_size) {
    return Status(StatusCode::kInvalidArgument, fmt::format("token id {} stands for nothing", id));
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("token id {} is outside the vocabulary of {}", id, vocab_size));
}

// `text`: normalized, without added tokens, not empty.
Status Tokenizer::Impl::encode_text(std::string text, bool at_start, text::Bpe::Scratch& scratch,
                                    std::vector<std::int32_t>& ids) const {
  text::Words words;
  words.text = std::move(text);
  words.spans.push_back({0, words.text.size()});
  words.at_start = at_start;
  if (Status status = pre_tokenizer.apply(words); !status.ok()) return status;
  for (std::size_t i = 0; i < words.spans.size(); i++) bpe.encode(words.word(i), scratch, ids);
  return Status();
}

// Normalization does not say where its bytes came from. So a control token that is looked for in normalized
// text counts only where the template's own bytes make it up by themselves: there the segment is cut.
Status Tokenizer::Impl::parts_of(std::string_view segment, std::size_t offset,
                                 const text::ControlGuard* guard, std::vector<Part>& parts) const {
  if (guard == nullptr || !guard->touches_plain(offset, offset + segment.size())) {
    parts.push_back({segment, true});
    return Status();
  }
  std::size_t done = 0;
  const auto look = [&](std::size_t begin, std::size_t end) -> Status {  // at bytes that are not plain
    if (begin >= end) return Status();
    std::string normal(segment.substr(begin, end - begin));
    if (Status status = normalizer.apply(normal); !status.ok()) return status;
    std::vector<text::Segment> found;
    added.split_normalized(normal, nullptr, found);
    const bool control = std::any_of(found.begin(), found.end(), [&](const text::Segment& s) {
      return s.id >= 0 && guard->is_control(s.id);
    });
    if (!control) return Status();
    if (done < begin) parts.push_back({segment.substr(done, begin - done), false});
    parts.push_back({segment.substr(begin, end - begin), true});
    done = end;
    return Status();
  };
  std::size_t at = 0;
  for (const text::Span& span : guard->plain) {
    if (span.end <= offset) continue;
    if (span.begin >= offset + segment.size()) break;
    if (Status status = look(at, span.begin > offset ? span.begin - offset : 0); !status.ok()) return status;
    at = span.end - offset;
  }
  if (Status status = look(at, segment.size()); !status.ok()) return status;
  if (done < segment.size()) parts.push_back({segment.substr(done), false});
  return Status();
}

Status Tokenizer::Impl::encode_part(const Part& part, bool at_start, const text::ControlGuard* guard,
                                    text::Bpe::Scratch& scratch, std::vector<std::int32_t>& ids) const {
  std::string normal(part.text);
  if (Status status = normalizer.apply(normal); !status.ok()) return status;
  std::vector<text::Segment> cut;
  text::ControlGuard all;  // in a part that is not trusted every byte is guarded
  if (!part.trusted) all = {guard->control, {{0, normal.size()}}};
  added.split_normalized(normal, part.trusted ? nullptr : &all, cut);
  scratch.forbidden = part.trusted ? nullptr : &guard->control;
  for (const text::Segment& word : cut) {
    if (word.id >= 0) {
      ids.push_back(word.id);
      continue;
    }
    if (Status status =
            encode_text(std::string(word.text), at_start && word.text.data() == normal.data(), scratch, ids);
        !status.ok())
      return status;
  }
  return Status();
}

Status Tokenizer::Impl::encode(std::string_view text, const text::ControlGuard* guard,
                               std::vector<std::int32_t>& ids) const {
  text::Bpe::Scratch scratch;
  std::vector<text::Segment> raw;
  std::vector<Part> parts;
  added.split_raw(text, guard, raw);
  for (const text::Segment& segment : raw) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    parts.clear();
    const auto offset = static_cast<std::size_t>(segment.text.data() - text.data());
    if (Status status = parts_of(segment.text, offset, guard, parts); !status.ok()) return status;
    for (const Part& part : parts) {
      if (Status status = encode_part(part, part.text.data() == text.data(), guard, scratch, ids);
          !status.ok())
        return status;
    }
  }
  return Status();
}

namespace {

Status check_text(std::string_view text) {
  if (text.size() > text::kMaxTextBytes) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("text of {} bytes, the limit is {}", text.size(), text::kMaxTextBytes));
  }
  if (const std::size_t bad = find_invalid_utf8(text); bad != text.npos) {
    return Status(StatusCode::kInvalidArgument, fmt::format("text is not UTF-8 at byte {}", bad));
  }
  return Status();
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<Tokenizer> Tokenizer::parse(std::string_view json) { return Impl::parse(json, "tokenizer.json"); }

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  return guarded("reading a tokenizer", [&]() -> Result<Tokenizer> {
    const Result<std::string> bytes = read_file(path, kMaxFileBytes);
    if (!bytes.ok()) return bytes.status();
    return Impl::parse(*bytes, path);
  });
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text, bool special) const {
  return guarded("encoding text", [&]() -> Result<std::vector<std::int32_t>> {
    if (Status status = check_text(text); !status.ok()) return status;
    std::vector<std::int32_t> ids;
    if (special) ids = impl_->post_processor.before();
    if (Status status = impl_->encode(text, nullptr, ids); !status.ok()) return status;
    const auto& after = impl_->post_processor.after();
    if (special) ids.insert(ids.end(), after.begin(), after.end());
    return ids;
  });
}

Result<std::vector<std::int32_t>> Tokenizer::encode_segments(std::span<const TextSegment> segments,
                                                             std::string_view markup) const {
  return guarded("encoding text", [&]() -> Result<std::vector<std::int32_t>> {
    std::string text;
    text::ControlGuard guard{impl_->added.control_ids(markup), {}};
    for (const TextSegment& segment : segments) {
      const std::size_t begin = text.size();
      text += segment.text;
      if (!segment.plain || segment.text.empty()) continue;
      if (!guard.plain.empty() && guard.plain.back().end == begin) {
        guard.plain.back().end = text.size();
      } else {
        guard.plain.push_back({begin, text.size()});
      }
    }
    if (Status status = check_text(text); !status.ok()) return status;
    std::vector<std::int32_t> ids;
    if (Status status = impl_->encode(text, &guard, ids); !status.ok()) return status;
    return ids;
  });
}

Result<std::string> Tokenizer::decode(std::span<const std::int32_t> ids, bool keep_special) const {
  return guarded("decoding ids", [&]() -> Result<std::string> {
    text::DecoderState state(impl_->decoder);
    std::string out;
    for (const std::int32_t id : ids) {
      const Result<std::string_view> piece = impl_->piece_to_decode(id);
      if (!piece.ok()) return piece.status();
      if (!keep_special && impl_->is_special(id)) continue;
      if (Status status = state.push(*piece, out); !status.ok()) return status;
    }
    state.finish(out);
    return out;
  });
}

int Tokenizer::vocab_size() const noexcept { return impl_->vocab_size; }

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const text::AddedToken* added = impl_->added.find(token)) return added->id;
  return impl_->bpe.vocabulary().id_of(token);
}

std::optional<std::string_view> Tokenizer::token_of(std::int32_t id) const { return impl_->token_of(id); }

bool Tokenizer::is_special(std::int32_t id) const noexcept { return impl_->is_special(id); }

struct Tokenizer::Decoder::Impl {
  explicit Impl(std::shared_ptr<const Tokenizer::Impl> t)
      : tokenizer(std::move(t)), state(tokenizer->decoder) {}
  std::shared_ptr<const Tokenizer::Impl> tokenizer;
  text::DecoderState state;
};

Tokenizer::Decoder::Decoder(const Tokenizer& tokenizer) : impl_(std::make_unique<Impl>(tokenizer.impl_)) {}
Tokenizer::Decoder::Decoder(Decoder&&) noexcept = default;
Tokenizer::Decoder& Tokenizer::Decoder::operator=(Decoder&&) noexcept = default;
Tokenizer::Decoder::~Decoder() = default;

Result<std::string> Tokenizer::Decoder::push(std::int32_t id) {
  return guarded("decoding ids", [&]() -> Result<std::string> {
    const Result<std::string_view> piece = impl_->tokenizer->piece_to_decode(id);
    if (!piece.ok()) return piece.status();
    std::string out;
    if (impl_->tokenizer->is_special(id)) return out;
    if (Status status = impl_->state.push(*piece, out); !status.ok()) return status;
    return out;
  });
}

std::string Tokenizer::Decoder::finish() {
  std::string out;
  impl_->state.finish(out);
  return out;
}

}  // namespace windrow
