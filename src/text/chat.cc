// Chat templates: from a folder's files to segments and ids.
#include "windrow/chat.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>

#include "base/json.h"
#include "text/template.h"
#include "text/template_json.h"
#include "text/tokenizer_config.h"

namespace windrow {

using text::TaintedText;
using text::Template;
using text::TokenizerConfig;

struct ChatTemplate::Impl {
  Template chat;
  TokenizerConfig config;
  std::string markup;  // in which the control tokens stand that are not special in tokenizer.json

  static Result<ChatTemplate> make(std::string_view source, const std::string& name, TokenizerConfig config);
};

Result<ChatTemplate> ChatTemplate::Impl::make(std::string_view source, const std::string& name,
                                              TokenizerConfig config) {
  Result<Template> parsed = Template::parse(source, name);
  if (!parsed.ok()) return parsed.status();
  std::string markup = parsed->source();
  for (const auto& [unused, token] : config.special_tokens) markup += "\n" + token;
  for (const TokenizerConfig::Added& token : config.added) {
    if (token.special) markup += "\n" + token.content;
  }
  return ChatTemplate(
      std::make_shared<const Impl>(Impl{std::move(*parsed), std::move(config), std::move(markup)}));
}

namespace {

template <class F>
auto guarded(F f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, "chat template: out of memory");
  } catch (const std::exception& e) {
    return Status(StatusCode::kInternal, fmt::format("chat template: {}", e.what()));
  }
}

// A message as the JSON object that the template sees. Members of `more` that repeat role or content win:
// they are put first, and ours are left out.
Result<std::string> message_json(const ChatMessage& message, std::size_t index) {
  const std::string name = fmt::format("messages[{}]", index);
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  object["role"] = message.role;
  object["content"] = message.content;
  try {
    std::string text = object.dump();  // throws where a text is not UTF-8
    if (message.more.empty()) return text;
    const Result<Json> more = parse_json(message.more, name + ".more", {.max_bytes = text::kMaxJsonBytes});
    if (!more.ok()) return Status(StatusCode::kInvalidArgument, more.status().message());
    if (!more->is_object()) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{}.more is {}, expected an object", name, describe(*more)));
    }
    for (const char* key : {"role", "content"}) {
      if (more->contains(key)) object.erase(key);
    }
    if (more->empty()) return text;
    const std::size_t open = message.more.find('{');  // parsed above: nothing but space stands before it
    text = object.dump();
    text.pop_back();
    return text + (object.empty() ? "" : ",") + message.more.substr(open + 1);
  } catch (const Json::exception&) {
    return Status(StatusCode::kInvalidArgument, fmt::format("{}: role or content is not UTF-8", name));
  }
}

std::vector<TextSegment> segments_of(const TaintedText& text) {
  std::vector<TextSegment> segments;
  std::size_t at = 0;
  const auto add = [&](std::size_t end, bool plain) {
    if (at < end) segments.push_back({text.bytes().substr(at, end - at), plain});
    at = end;
  };
  for (const text::Span& span : text.plain()) {
    add(span.begin, false);
    add(span.end, true);
  }
  add(text.size(), false);
  return segments;
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<ChatTemplate> ChatTemplate::load(const std::string& folder, const std::string& name) {
  return guarded([&]() -> Result<ChatTemplate> {
    Result<TokenizerConfig> config = text::load_tokenizer_config(folder);
    if (!config.ok()) return config.status();
    if (config->templates.empty()) {
      return Status(StatusCode::kUnsupported,
                    fmt::format("{}: no chat template (chat_template.jinja, or \"chat_template\" in "
                                "chat_template.json or tokenizer_config.json)",
                                folder));
    }
    auto found = config->templates.find(name);
    // One that is alone needs no name.
    if (found == config->templates.end() && name == "default" && config->templates.size() == 1)
      found = config->templates.begin();
    if (found == config->templates.end()) {
      std::vector<std::string> names;
      for (const auto& [known, unused] : config->templates) names.push_back(quote(known));
      return Status(StatusCode::kUnsupported,
                    fmt::format("{}: no chat template named {}, there are {}", config->templates_from,
                                quote(name), fmt::join(names, ", ")));
    }
    const std::string source = std::move(found->second), from = config->templates_from;
    config->templates.clear();
    return Impl::make(source, from, std::move(*config));
  });
}

Result<ChatTemplate> ChatTemplate::load_with(const std::string& folder, std::string_view source,
                                             const std::string& source_name) {
  return guarded([&]() -> Result<ChatTemplate> {
    Result<TokenizerConfig> config = text::load_tokenizer_config(folder);
    if (!config.ok()) return config.status();
    config->templates.clear();
    return Impl::make(source, source_name, std::move(*config));
  });
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string& bos_token,
                                         const std::string& eos_token) {
  return guarded([&]() -> Result<ChatTemplate> {
    TokenizerConfig config;
    if (!bos_token.empty()) config.special_tokens.emplace_back("bos_token", bos_token);
    if (!eos_token.empty()) config.special_tokens.emplace_back("eos_token", eos_token);
    return Impl::make(source, "chat template", std::move(config));
  });
}

Result<std::vector<TextSegment>> ChatTemplate::render(std::span<const ChatMessage> messages,
                                                      const ChatOptions& options) const {
  return guarded([&]() -> Result<std::vector<TextSegment>> {
    std::string list = "[";
    for (std::size_t i = 0; i < messages.size(); i++) {
      const Result<std::string> message = message_json(messages[i], i);
      if (!message.ok()) return message.status();
      list += (i > 0 ? "," : "") + *message;
    }
    Template::Input input;
    input.variables = options.variables;
    input.texts = impl_->config.special_tokens;
    input.flags = {{"add_generation_prompt", options.add_generation_prompt}};
    input.json = {{"messages", list + "]"}};
    input.now = options.now;
    const Result<TaintedText> text = impl_->chat.render(input);
    if (!text.ok()) return text.status();
    return segments_of(*text);
  });
}

Result<std::vector<std::int32_t>> ChatTemplate::encode(const Tokenizer& tokenizer,
                                                       std::span<const TextSegment> segments) const {
  return tokenizer.encode_segments(segments, impl_->markup);
}

Status ChatTemplate::check(const Tokenizer& tokenizer) const {
  return guarded([&]() -> Status {
    for (const TokenizerConfig::Added& token : impl_->config.added) {
      const auto id = tokenizer.id_of(token.content);
      if (id == token.id) continue;
      return Status(StatusCode::kUnsupported,
                    fmt::format("tokenizer_config.json: added token {} has the id {}, tokenizer.json {}",
                                quote(token.content), token.id,
                                id ? fmt::format("gives it {}", *id) : std::string("does not have it")));
    }
    return Status();
  });
}

std::optional<std::string_view> ChatTemplate::special_token(std::string_view name) const {
  for (const auto& [known, token] : impl_->config.special_tokens) {
    if (known == name) return token;
  }
  return std::nullopt;
}

}  // namespace windrow
