// windrow chat: a conversation, a turn at a time.
#include <fmt/format.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/chat_session.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/summary.h"
#include "io/file.h"

namespace windrow::cli {
namespace {

// An answer often ends in white space that the template trims, or in tokens that its text would not give
// again; with this many positions to spare such a tail is cut off the row, and the turn goes on in it.
constexpr int kRollback = 64;
constexpr int kDefaultContext = 4096;
constexpr std::size_t kMaxVariablesBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;

struct ChatFlags {
  RunFlags run;
  KvFlags kv;
  SamplerOptions sampling;
  std::string system, template_file, variables, date;
  std::vector<std::string> users;
  int context = kDefaultContext;
  int max_tokens = 512;
  bool show_prompt = false;
  bool json = false;
};

CivilTime moment(const std::string& date) {
  CivilTime time;
  if (!date.empty()) {
    char rest = 0;
    if (std::sscanf(date.c_str(), "%4d-%2d-%2d%c", &time.year, &time.month, &time.day, &rest) != 3)
      usage_error("--date", fmt::format("{} is not a date like 2026-03-07", quote(date)));
    const bool valid = time.year > 0 && time.month > 0 && time.day > 0 &&
                       (std::chrono::year(time.year) / time.month / time.day).ok();
    if (!valid) usage_error("--date", fmt::format("{} is no day of the calendar", quote(date)));
    return time;
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec};
}

void check_variables(const std::string& variables) {
  if (variables.empty()) return;
  const Result<Json> parsed = parse_json(variables, "--variables", {.max_bytes = kMaxVariablesBytes});
  if (!parsed.ok()) throw Failure{kUsage, parsed.status().message()};
  if (!parsed->is_object()) usage_error("--variables", describe(*parsed) + " is not an object");
}

ChatTemplate load_template(const ChatFlags& flags) {
  if (!flags.template_file.empty()) {
    const std::string source = need(read_file(flags.template_file, kMaxTemplateBytes));
    return need(ChatTemplate::load_with(flags.run.model, source, flags.template_file));
  }
  Result<ChatTemplate> chat = ChatTemplate::load(flags.run.model);
  if (!chat.ok() && chat.status().message().find(": no chat template") != std::string::npos)
    throw Failure{kFailure, chat.status().message() + "; --template gives one"};
  return need(std::move(chat));
}

// The user's turns: those of the flags, else the lines of stdin, as they come.
class Turns {
 public:
  Turns(const std::vector<std::string>& given, bool ask) : given_(given), ask_(ask) {}
  ~Turns() { std::free(line_); }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  bool next(std::string* text) {
    if (!given_.empty()) {
      if (at_ == given_.size()) return false;
      *text = given_[at_++];
      return true;
    }
    if (ask_) write_stderr("> ");
    if (ask_ && !wait_for_line()) return false;
    const ssize_t n = ::getline(&line_, &capacity_, stdin);
    if (n < 0) {
      if (std::ferror(stdin) != 0 && !interrupted())
        throw Failure{kFailure, fmt::format("stdin: {}", std::strerror(errno))};
      if (at_ == 0 && !interrupted()) throw Failure{kFailure, "stdin: no line to answer (or give --user)"};
      return false;
    }
    at_++;
    text->assign(line_, static_cast<std::size_t>(n));
    if (text->ends_with('\n')) text->pop_back();
    return true;
  }

 private:
  // At a terminal Ctrl-C ends the wait; getline alone would go on with it (SA_RESTART). False: interrupted.
  static bool wait_for_line() {
    pollfd in{STDIN_FILENO, POLLIN, 0};
    while (poll(&in, 1, 500) <= 0) {
      if (interrupted()) return false;
    }
    return true;
  }

  const std::vector<std::string>& given_;
  bool ask_;
  std::size_t at_ = 0;
  char* line_ = nullptr;
  std::size_t capacity_ = 0;
};

std::string turn_json(const Answer& a, bool show_prompt) {
  const Generation& g = a.generation;
  const int prompt = static_cast<int>(a.prompt_ids.size());
  nlohmann::ordered_json object{
      {"text", a.text},
      {"ids", g.ids},
      {"finish_reason", finish_reason_name(g.finish_reason)},
      {"prompt_tokens", prompt},
      {"reused_tokens", g.reused},
      {"lost_tokens", g.lost},
      {"lost_because",
       g.lost_because.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(g.lost_because)},
      {"timings",
       {{"prefill_s", g.prefill_s},
        {"decode_s", g.decode_s},
        {"decode_tokens_per_s", per_second(g.decode_steps, g.decode_s)}}}};
  if (show_prompt) {
    object["prompt"] = a.prompt;
    object["prompt_ids"] = a.prompt_ids;
  }
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string turn_summary(const Answer& a) {
  const Generation& g = a.generation;
  const int prompt = static_cast<int>(a.prompt_ids.size());
  std::string text = fmt::format(
      "windrow: {} tokens of conversation, {} of them kept from before, {:.2f} s; {} written in "
      "{:.2f} s ({:.0f} tokens/s), end: {}\n",
      prompt, g.reused, g.prefill_s, g.ids.size(), g.decode_s, per_second(g.decode_steps, g.decode_s),
      finish_reason_name(g.finish_reason));
  if (g.lost > 0)
    text += fmt::format("windrow: {} tokens were run again: {}\n", g.lost, one_line(g.lost_because));
  return text;
}

int chat(const ChatFlags& flags) {
  check_variables(flags.variables);
  const ChatOptions chat_options{
      .add_generation_prompt = true, .variables = flags.variables, .now = moment(flags.date)};
  const ModelInfo info = need(read_model_info(flags.run.model));
  const KvChoice kv = flags.kv.choose(info);
  const std::optional<Tokenizer> tokenizer = flags.run.load_tokenizer(true);
  const ChatTemplate chat = load_template(flags);
  need(chat.check(*tokenizer));

  ThreadPool pool = flags.run.make_pool();
  const Model model = flags.run.load(pool);
  const int context = std::min(flags.context, info.max_positions);
  const Limits limits{.rows = 1,
                      .tokens = context,
                      .step_tokens = std::min(flags.run.prefill_chunk, context),
                      .rollback = std::min(kRollback, context - 1),
                      .total_tokens = 0};
  Generator generator = need(Generator::create(model, kv, limits, pool));
  GenerateOptions options;
  options.max_tokens = flags.max_tokens;
  options.prefill_chunk = flags.run.prefill_chunk;
  options.sampling = flags.sampling;
  options.cancel = &interrupted();
  ChatSession session(*tokenizer, chat, info, generator, chat_options, options);
  if (!flags.system.empty()) session.set_system(flags.system);

  const bool ask = !flags.run.quiet && isatty(STDIN_FILENO) == 1;
  Turns turns(flags.users, ask);
  catch_interrupt();
  ProgressBar bar("prompt", flags.run.progress());
  std::string text;
  while (!interrupted() && turns.next(&text)) {
    bool printed = false;
    const auto on_text = [&](const std::string& piece) {
      if (flags.json) return;
      printed = true;
      write_stdout(piece);
      flush_stdout();
    };
    const auto on_prefill = [&](int done, int total) {
      done < total ? bar.update(done, total) : bar.clear();
    };
    Answer answer;
    try {
      answer = session.say(text, on_text, on_prefill);
    } catch (const Failure&) {
      bar.clear();
      if (printed) write_stdout("\n");  // the error stands on a line of its own
      throw;
    }
    bar.clear();
    if (flags.show_prompt && !flags.json) write_stderr(answer.prompt + "\n");
    write_stdout(flags.json ? turn_json(answer, flags.show_prompt) : "\n");
    flush_stdout();
    if (!flags.run.quiet && !flags.json) write_stderr(turn_summary(answer));
    if (answer.generation.finish_reason == FinishReason::kCancelled) return kInterrupted;
  }
  return interrupted() ? kInterrupted : kSuccess;
}

}  // namespace

void add_chat(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("chat", "talk with a model, in the form its chat template gives");
  auto flags = std::make_shared<ChatFlags>();
  flags->run.add_model(*sub);
  text_flag(*sub, "--system", &flags->system, "TEXT", "what the model is told before the conversation");
  sub->add_option_function<std::string>(
         "--user", [flags](const std::string& text) { flags->users.push_back(text); },
         "a turn of the user; may be given several times. Without it each line of stdin is one")
      ->type_name("TEXT")
      ->trigger_on_parse();
  path_flag(*sub, "--template", &flags->template_file, "FILE",
            "a chat template instead of the model folder's");
  text_flag(*sub, "--variables", &flags->variables, "JSON",
            "an object of more variables for the template, e.g. {\"enable_thinking\": false}");
  text_flag(*sub, "--date", &flags->date, "DATE", "what the template takes for today, e.g. 2026-03-07");
  int_flag(*sub, "--context", &flags->context, 2, 1 << 30,
           "tokens that the conversation may have; the model's longest context bounds it too");
  int_flag(*sub, "--max-tokens", &flags->max_tokens, 1, 1 << 30, "most tokens of an answer");
  add_sampling(*sub, &flags->sampling);
  flags->kv.add(*sub);
  flags->run.add_chunk(*sub);
  flags->run.add_compute(*sub);
  flags->run.add_threads(*sub);
  bool_flag(*sub, "--show-prompt", &flags->show_prompt,
            "the whole conversation as the model reads it, on stderr behind each answer, or in the JSON");
  bool_flag(*sub, "--json", &flags->json, "print one JSON object a turn, on a line, instead of the text");
  flags->run.add_quiet(*sub);
  sub->callback([flags, &run] { run = [flags] { return chat(*flags); }; });
}

}  // namespace windrow::cli
