// Sessions of generate, and windrow session: show and verify.
#include "cli/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"
#include "io/file.h"

namespace windrow::cli {

using Json = nlohmann::json;

std::optional<SessionFile> open_session(const std::string& path) {
  if (path.empty() || !path_exists(path)) return std::nullopt;
  SessionFile file = need(SessionFile::open(path));
  if (file.rows() != 1)
    throw Failure{kFailure,
                  fmt::format("{}: {} rows, generate goes on with sessions of one", path, file.rows())};
  return file;
}

std::vector<std::int32_t> session_tokens(const SessionFile& file, const ModelInfo& info) {
  const std::vector<std::int32_t>& tokens = file.row(0).tokens;
  const auto wrong =
      std::find_if(tokens.begin(), tokens.end(), [&](std::int32_t id) { return id >= info.vocab_size; });
  if (tokens.empty()) throw Failure{kFailure, "--session: the file holds no text to go on with"};
  if (wrong != tokens.end()) {
    throw Failure{kFailure,
                  fmt::format("--session: token {} of the file is outside the model's vocabulary, 0 to {}",
                              *wrong, info.vocab_size - 1)};
  }
  return tokens;
}

void check_length(const std::string& path, std::size_t tokens, const ModelInfo& info) {
  if (tokens <= static_cast<std::size_t>(info.max_positions)) return;
  throw Failure{kFailure, fmt::format("{}: the text has {} tokens, the model was made for {}", path, tokens,
                                      info.max_positions)};
}

SessionIdentity session_identity(const std::string& folder, const char* compute, ThreadPool& pool) {
  SessionIdentity identity;
  identity.model = need(model_fingerprint(folder, pool));
  const std::string tokenizer = folder + "/tokenizer.json";
  if (path_exists(tokenizer)) identity.tokenizer = need(file_fingerprint(tokenizer));
  identity.rope = need(rope_parameters(folder));
  identity.numerics = fmt::format("{} {}", kNumericVersion, compute);
  return identity;
}

void restore_session(const SessionFile& file, const SessionIdentity& identity, Generator& generator,
                     ThreadPool& pool) {
  std::vector<Row> rows = need(file.restore(generator.store(), identity, SessionCheck::kAll, &pool));
  const SessionRow& row = file.row(0);
  need(generator.set_row(std::move(rows[0]),
                         std::span(row.tokens).first(static_cast<std::size_t>(row.length))));
}

void save_session(const std::string& path, const SessionIdentity& identity, const Generator& generator,
                  std::vector<std::int32_t> prompt, const Generation& generation) {
  prompt.insert(prompt.end(), generation.ids.begin(), generation.ids.end());
  SessionWriter writer = need(SessionWriter::create(generator.plan(), identity));
  need(writer.add(generator.row(), prompt));
  need(writer.save(path));
}

namespace {

struct SessionFlags {
  std::string file;
  bool json = false;
  bool show_tokens = false;
  bool quick = false;
};

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

std::string show_text(const std::string& path, const SessionFile& file, bool show_tokens) {
  const Json json = Json::parse(file.to_json(false));
  const SessionIdentity& id = file.identity();
  std::string text =
      fmt::format("{}: {}, {} row{}, sha256 {}\n", path, human_bytes(json["bytes"].get<std::size_t>()),
                  file.rows(), file.rows() == 1 ? "" : "s", file.sha256());
  text += fmt::format(
      "  model      {}\n  tokenizer  {}\n  rope       {}\n  adapter    {}\n  numerics   {}\n  tenant     "
      "{}\n",
      or_none(id.model), or_none(id.tokenizer), or_none(id.rope), or_none(id.adapter), or_none(id.numerics),
      or_none(id.tenant));
  for (const Json& group : json["groups"]["attention"]) {
    text +=
        fmt::format("  {} layers, {}, {} kv heads of {}: keys {}, values {}\n", group["layers"].size(),
                    group["window"].is_null() ? "full" : fmt::format("window {}", group["window"].get<int>()),
                    group["kv_heads"].get<int>(), group["head_dim"].get<int>(),
                    group["keys"].get<std::string>(), group["values"].get<std::string>());
  }
  for (const Json& group : json["groups"]["recurrent"])
    text += fmt::format("  {} recurrent layers\n", group["layers"].size());
  for (int r = 0; r < file.rows(); r++) {
    const SessionRow& row = file.row(r);
    text += fmt::format("  row {}: {} positions, {} tokens, can be cut down to {}\n", r, row.length,
                        row.tokens.size(), row.minimum_length);
    if (show_tokens) text += fmt::format("    {}\n", fmt::join(row.tokens, ","));
  }
  return text;
}

// What a file holds comes from outside: control characters stay off the terminal, line ends aside.
std::string printable(const std::string& text) {
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out += one_line(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return out;
}

int show(const SessionFlags& flags) {
  const SessionFile file = need(SessionFile::open(flags.file));
  write_stdout(flags.json ? file.to_json(flags.show_tokens) + "\n"
                          : printable(show_text(flags.file, file, flags.show_tokens)));
  flush_stdout();
  return kSuccess;
}

int verify(const SessionFlags& flags) {
  const SessionFile file = need(SessionFile::open(flags.file));
  ThreadPool pool = need(ThreadPool::create(ThreadPool::available()));
  need(file.verify(flags.quick ? SessionCheck::kXxh3 : SessionCheck::kAll, &pool));
  write_stdout(flags.json ? Json{{"ok", true}, {"sha256", file.sha256()}}.dump() + "\n"
                          : fmt::format("{}: intact, sha256 {}\n", one_line(flags.file), file.sha256()));
  flush_stdout();
  return kSuccess;
}

}  // namespace

void add_session(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("session", "look at a file of generate --session");
  sub->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, int (*command)(const SessionFlags&)) {
    CLI::App* below = sub->add_subcommand(name, help);
    auto flags = std::make_shared<SessionFlags>();
    below->add_option("FILE", flags->file, "a session")->required();
    bool_flag(*below, "--json", &flags->json, "print one JSON object");
    below->callback([flags, &run, command] { run = [flags, command] { return command(*flags); }; });
    return std::pair(below, flags);
  };
  const auto [show_app, show_flags] =
      add("show", "what a session holds; nothing of its text unless asked", show);
  bool_flag(*show_app, "--show-tokens", &show_flags->show_tokens, "the token ids of the text, too");
  const auto [verify_app, verify_flags] = add("verify", "check every byte of a session", verify);
  bool_flag(*verify_app, "--quick", &verify_flags->quick, "by XXH3 alone, without SHA-256");
}

}  // namespace windrow::cli
