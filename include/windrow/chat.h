// Conversations as a model expects them: a folder's chat template, rendered and encoded.
//
//   Result<Tokenizer> tokenizer = Tokenizer::load(folder + "/tokenizer.json");
//   Result<ChatTemplate> chat = ChatTemplate::load(folder);
//   const std::vector<ChatMessage> messages = {{.role = "user", .content = "Tell me a story."}};
//   Result<std::vector<TextSegment>> text = chat->render(messages, {.add_generation_prompt = true});
//   Result<std::vector<std::int32_t>> ids = chat->encode(*tokenizer, *text);
//
// Templates are the Jinja subset that published chat templates use, run by an engine of our own that can
// do nothing but build text: no files, no clock, no environment, and bounded steps, memory, depth and
// output. What it does not know is refused by name, with the line.
//
// Control tokens: what a message says never becomes one. Rendering keeps apart what the template itself
// says and what came in as data (messages, variables, the time), through every string operation; encode()
// takes control tokens from the former only. A control token is an added token that tokenizer.json or
// tokenizer_config.json calls special, or whose text stands in the template (as <think> may, which is no
// special one). In data they become ordinary pieces; everything else of the encoding is as of the whole
// text at once, so that ids differ from a plain encoding only where data spells a control token.
//
// Thread safety: a ChatTemplate is immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/export.h"
#include "windrow/status.h"
#include "windrow/tokenizer.h"

namespace windrow {

struct ChatMessage {
  std::string role;     // "system", "user", "assistant", "tool", ...
  std::string content;  // UTF-8
  // More members as a JSON object, e.g. {"tool_calls": [...], "reasoning_content": "..."}; "" for none. A
  // "role" or "content" here replaces the one above (content may be null, or a list of parts).
  std::string more = {};
};

// A moment for strftime_now, in the proleptic Gregorian calendar.
struct CivilTime {
  int year = 1970;  // 1 to 9999
  int month = 1;    // 1 to 12
  int day = 1;
  int hour = 0;
  int minute = 0;
  int second = 0;
};

struct ChatOptions {
  bool add_generation_prompt = true;  // end with the beginning of the assistant's turn
  // More variables as a JSON object, e.g. {"tools": [...], "enable_thinking": false}; "" for none. It can't
  // name messages, add_generation_prompt or a special token.
  std::string variables = {};
  // Without it a template that asks for the time is refused: the library reads no clock.
  std::optional<CivilTime> now = {};
};

class WINDROW_API ChatTemplate {
 public:
  // The template of a model folder: chat_template.jinja, else "chat_template" of chat_template.json, else of
  // tokenizer_config.json. Where there are several by name ([{name, template}], or an object of name to
  // template) `name` picks one: "default" unless said otherwise. Special tokens (bos_token, eos_token, ...)
  // come from tokenizer_config.json, as strings or as objects with "content".
  //
  // What encodes is tokenizer.json alone: add_bos_token and add_eos_token are not followed, and tokens in
  // added_tokens_decoder must be in tokenizer.json (see check()).
  //
  // kUnsupported where the folder has no template.
  static Result<ChatTemplate> load(const std::string& folder, const std::string& name = "default");
  // The template of `source` with the special tokens of the folder's tokenizer_config.json, if it has one.
  static Result<ChatTemplate> load_with(const std::string& folder, std::string_view source,
                                        const std::string& source_name = "chat template");
  // Without a folder: bos_token and eos_token are these, and undefined where empty.
  static Result<ChatTemplate> parse(std::string_view source, const std::string& bos_token = "",
                                    const std::string& eos_token = "");

  // The conversation as text. kInvalidArgument: the template refuses it (raise_exception), or JSON in a
  // message or in the variables is malformed; the message names which. kResourceExhausted: a limit.
  Result<std::vector<TextSegment>> render(std::span<const ChatMessage> messages,
                                          const ChatOptions& options = {}) const;
  // Adds nothing around the text: the template says bos itself.
  Result<std::vector<std::int32_t>> encode(const Tokenizer& tokenizer,
                                           std::span<const TextSegment> segments) const;

  // Whether the tokenizer knows the tokens that tokenizer_config.json speaks of by the same ids;
  // kUnsupported names the first that it does not.
  Status check(const Tokenizer& tokenizer) const;

  // A special token of tokenizer_config.json, e.g. "bos_token"; nullopt where it has none.
  std::optional<std::string_view> special_token(std::string_view name) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace windrow
