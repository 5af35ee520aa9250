// windrow tokenize: text to token ids.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "windrow/tokenizer.h"

namespace windrow::cli {
namespace {

struct TokenizeFlags {
  std::string model, text;
  CLI::Option* text_option = nullptr;
  bool no_special = false;
  bool json = false;
};

constexpr std::size_t kMaxInputBytes = std::size_t{256} << 20;

int tokenize(const TokenizeFlags& flags) {
  const Tokenizer tokenizer = need(Tokenizer::load(flags.model + "/tokenizer.json"));
  const bool from_flag = flags.text_option->count() > 0;
  const std::string text = from_flag ? flags.text : read_all(stdin, "stdin", kMaxInputBytes);
  const Result<std::vector<std::int32_t>> ids = tokenizer.encode(text, !flags.no_special);
  if (!ids.ok()) {
    if (from_flag) usage_error("--text", ids.status().message());
    throw Failure{kFailure, "stdin: " + ids.status().message()};
  }
  if (flags.json) {
    nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
    for (const std::int32_t id : *ids) tokens.push_back(std::string(tokenizer.token_of(id).value_or("")));
    const nlohmann::ordered_json object{{"ids", *ids}, {"tokens", std::move(tokens)}};
    write_stdout(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  } else {
    write_stdout(fmt::format("{}\n", fmt::join(*ids, ",")));
  }
  flush_stdout();
  return kSuccess;
}

}  // namespace

void add_tokenize(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("tokenize", "print the token ids of a text, joined by commas");
  auto flags = std::make_shared<TokenizeFlags>();
  path_flag(*sub, "--model", &flags->model, "DIR", "a folder with a tokenizer.json")->required();
  flags->text_option = text_flag(*sub, "--text", &flags->text, "TEXT", "the text; without it, stdin is read");
  bool_flag(*sub, "--no-special", &flags->no_special,
            "without the tokens that a model expects around a text (bos)");
  bool_flag(*sub, "--json", &flags->json, "print {\"ids\": [...], \"tokens\": [...]}");
  sub->callback([flags, &run] { run = [flags] { return tokenize(*flags); }; });
}

}  // namespace windrow::cli
