// Turns of a conversation.
#include "cli/chat_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/failure.h"

namespace windrow::cli {
namespace {

// Streams an answer; the engine's callbacks must not throw, so a failure is kept.
class Stream {
 public:
  Stream(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
         const std::function<void(const std::string&)>& on_text)
      : decoder_(tokenizer), on_text_(on_text) {
    // Whether a leading space is dropped depends on what stands before.
    for (const std::int32_t id : prompt) need(decoder_.push(id));
  }

  bool push(std::int32_t id) {
    try {
      put(need(decoder_.push(id)));
    } catch (const Failure& failure) {
      failure_ = failure;
    }
    return !failure_;
  }

  std::string finish() {
    if (failure_) throw *failure_;
    put(decoder_.finish());
    return std::move(text_);
  }

 private:
  void put(const std::string& piece) {
    text_ += piece;
    if (!piece.empty()) on_text_(piece);
  }

  Tokenizer::Decoder decoder_;
  const std::function<void(const std::string&)>& on_text_;
  std::optional<Failure> failure_;
  std::string text_;
};

}  // namespace

std::optional<std::int32_t> end_of_turn(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                        ChatOptions options) {
  const std::string said = "answer";
  const std::vector<ChatMessage> messages = {{"user", "question"}, {"assistant", said}};
  options.add_generation_prompt = false;
  const Result<std::vector<TextSegment>> segments = chat.render(messages, options);
  if (!segments.ok()) return std::nullopt;
  for (std::size_t i = segments->size(); i-- > 1;) {
    if (!(*segments)[i - 1].plain || (*segments)[i - 1].text != said) continue;
    const Result<std::vector<std::int32_t>> ids = chat.encode(tokenizer, {&(*segments)[i], 1});
    if (ids.ok() && !ids->empty() && tokenizer.is_special(ids->front())) return ids->front();
    break;
  }
  return std::nullopt;
}

ChatSession::ChatSession(const Tokenizer& tokenizer, const ChatTemplate& chat, const ModelInfo& info,
                         Generator& generator, ChatOptions chat_options, GenerateOptions options)
    : tokenizer_(tokenizer),
      chat_(chat),
      info_(info),
      generator_(generator),
      chat_options_(std::move(chat_options)),
      options_(std::move(options)) {
  options_.reuse = true;
  options_.stop_ids = stop_ids();
}

// What generation_config.json, tokenizer_config.json and the template each call the end.
std::vector<std::int32_t> ChatSession::stop_ids() const {
  std::vector<std::int32_t> ids = info_.eos_ids;
  if (const auto eos = chat_.special_token("eos_token")) {
    if (const auto id = tokenizer_.id_of(*eos)) ids.push_back(*id);
  }
  if (const auto id = end_of_turn(tokenizer_, chat_, chat_options_)) ids.push_back(*id);
  return ids;
}

Answer ChatSession::say(const std::string& text, const std::function<void(const std::string&)>& on_text,
                        const std::function<void(int, int)>& on_prefill) {
  std::vector<ChatMessage> messages = messages_;
  messages.push_back({"user", text});
  Answer answer;
  const std::vector<TextSegment> segments = need(chat_.render(messages, chat_options_));
  for (const TextSegment& segment : segments) answer.prompt += segment.text;
  answer.prompt_ids = need(chat_.encode(tokenizer_, segments));
  const auto bad = std::find_if(answer.prompt_ids.begin(), answer.prompt_ids.end(),
                                [this](std::int32_t id) { return id >= info_.vocab_size; });
  if (bad != answer.prompt_ids.end()) {
    throw Failure{kFailure, fmt::format("the conversation has token id {}, the model's vocabulary ends at {}",
                                        *bad, info_.vocab_size - 1)};
  }
  if (answer.prompt_ids.empty())
    throw Failure{kFailure, "the template makes an empty text of the conversation"};
  const int most = generator_.plan().limits().tokens;
  const int length = static_cast<int>(answer.prompt_ids.size());
  if (length > most) {
    throw Failure{kFailure, fmt::format("the conversation has {} tokens, the context is {}", length, most)};
  }

  Stream stream(tokenizer_, answer.prompt_ids, on_text);
  GenerateOptions options = options_;
  options.max_tokens = std::min(options_.max_tokens, most - length + 1);
  options.sampling.seed = options_.sampling.seed + turn_;  // else each turn would draw the same numbers
  options.on_prefill = on_prefill;
  options.on_token = [&](std::int32_t id) { return stream.push(id); };
  answer.generation = need(generator_.generate(answer.prompt_ids, options));
  answer.text = stream.finish();
  messages.push_back({"assistant", answer.text});
  messages_ = std::move(messages);
  turn_++;
  return answer;
}

}  // namespace windrow::cli
