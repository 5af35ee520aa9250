// The tokenizer: the parts of tokenizer.json in the order in which text goes through them.
#include "windrow/tokenizer.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
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

Result<std::string> read_file(const std::string& path) {
  const auto failed = [&](int error) {
    return Status(StatusCode::kIo, fmt::format("{}: {}", path, std::strerror(error)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (file == nullptr) return failed(errno);
  struct stat info {};
  if (fstat(fileno(file.get()), &info) != 0) return failed(errno);
  if (!S_ISREG(info.st_mode)) return Status(StatusCode::kIo, path + ": not a regular file");
  if (static_cast<std::size_t>(info.st_size) > kMaxFileBytes) {
    return Status(StatusCode::kCorrupt,
                  fmt::format("{}: {} bytes, the limit is {}", path, info.st_size, kMaxFileBytes));
  }
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  const std::size_t n = std::fread(bytes.data(), 1, bytes.size(), file.get());
  if (std::ferror(file.get()) != 0) return failed(errno);
  bytes.resize(n);
  return bytes;
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
  Status encode(std::string_view text, std::vector<std::int32_t>& ids) const;
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

Status Tokenizer::Impl::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  text::Bpe::Scratch scratch;
  std::vector<text::Segment> raw, cut;
  added.split_raw(text, raw);
  for (const text::Segment& segment : raw) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    std::string normal(segment.text);
    if (Status status = normalizer.apply(normal); !status.ok()) return status;
    cut.clear();
    added.split_normalized(normal, cut);
    for (const text::Segment& part : cut) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        continue;
      }
      const bool at_start = segment.text.data() == text.data() && part.text.data() == normal.data();
      if (Status status = encode_text(std::string(part.text), at_start, scratch, ids); !status.ok())
        return status;
    }
  }
  return Status();
}

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<Tokenizer> Tokenizer::parse(std::string_view json) { return Impl::parse(json, "tokenizer.json"); }

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  return guarded("reading a tokenizer", [&]() -> Result<Tokenizer> {
    const Result<std::string> bytes = read_file(path);
    if (!bytes.ok()) return bytes.status();
    return Impl::parse(*bytes, path.substr(path.rfind('/') + 1));
  });
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text, bool special) const {
  return guarded("encoding text", [&]() -> Result<std::vector<std::int32_t>> {
    if (text.size() > text::kMaxTextBytes) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("text of {} bytes, the limit is {}", text.size(), text::kMaxTextBytes));
    }
    if (const std::size_t bad = find_invalid_utf8(text); bad != text.npos) {
      return Status(StatusCode::kInvalidArgument, fmt::format("text is not UTF-8 at byte {}", bad));
    }
    std::vector<std::int32_t> ids;
    if (special) ids = impl_->post_processor.before();
    if (Status status = impl_->encode(text, ids); !status.ok()) return status;
    const auto& after = impl_->post_processor.after();
    if (special) ids.insert(ids.end(), after.begin(), after.end());
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
