// A conversation with a model: messages rendered by its chat template, answers written in one row of state.
//
// Thread safety: belongs to one thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/chat.h"
#include "windrow/engine.h"
#include "windrow/tokenizer.h"

namespace windrow::cli {

struct Answer {
  std::string text;
  std::string prompt;  // the whole conversation, rendered
  std::vector<std::int32_t> prompt_ids;
  Generation generation;
};

class ChatSession {
 public:
  // All references outlive the session. `options` without stop ids and callbacks.
  ChatSession(const Tokenizer& tokenizer, const ChatTemplate& chat, const ModelInfo& info,
              Generator& generator, ChatOptions chat_options, GenerateOptions options);

  void set_system(const std::string& text) { messages_.push_back({"system", text}); }
  // Adds the user's message, writes the answer and adds it, too. `on_text` gets the text as it comes.
  // Throws a Failure; then the conversation is as before. What a template refuses, and a conversation
  // longer than the state, are failures.
  Answer say(const std::string& text, const std::function<void(const std::string&)>& on_text,
             const std::function<void(int, int)>& on_prefill);

 private:
  std::vector<std::int32_t> stop_ids() const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  const ModelInfo& info_;
  Generator& generator_;
  ChatOptions chat_options_;
  GenerateOptions options_;
  std::vector<ChatMessage> messages_;
  std::uint64_t turn_ = 0;
};

// The id that ends an assistant's turn in this template: the special token right behind what it said;
// nullopt where there is none.
std::optional<std::int32_t> end_of_turn(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                        ChatOptions options);

}  // namespace windrow::cli
