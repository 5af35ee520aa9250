// windrow detokenize: token ids to text.
#include "cli/command.h"
#include "cli/output.h"
#include "windrow/tokenizer.h"

namespace windrow::cli {
namespace {

struct DetokenizeFlags {
  std::string model;
  std::vector<std::int32_t> ids;
  bool keep_special = false;
};

int detokenize(const DetokenizeFlags& flags) {
  const Tokenizer tokenizer = need(Tokenizer::load(flags.model + "/tokenizer.json"));
  const Result<std::string> text = tokenizer.decode(flags.ids, flags.keep_special);
  if (!text.ok()) usage_error("--ids", text.status().message());
  write_stdout(*text + "\n");
  flush_stdout();
  return kSuccess;
}

}  // namespace

void add_detokenize(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("detokenize", "print the text of token ids");
  auto flags = std::make_shared<DetokenizeFlags>();
  path_flag(*sub, "--model", &flags->model, "DIR", "a folder with a tokenizer.json")->required();
  ids_flag(*sub, "--ids", &flags->ids, "e.g. 2,17,5")->required();
  bool_flag(*sub, "--keep-special", &flags->keep_special, "print special tokens (bos, ...) too");
  sub->callback([flags, &run] { run = [flags] { return detokenize(*flags); }; });
}

}  // namespace windrow::cli
