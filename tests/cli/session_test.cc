// generate --session and windrow session, as a user would.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "model/model_fixture.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT
using Json = nlohmann::json;

Ended generate(std::vector<std::string> args) {
  args.insert(args.begin(), {"generate", "--model", kStoryteller, "--kv", "q4", "--quiet"});
  return run_program(on_one_thread(std::move(args)));
}
Json generate_json(std::vector<std::string> args) {
  args.push_back("--json");
  const Ended end = generate(std::move(args));
  EXPECT_EQ(end.code, 0) << end.err;
  return Json::parse(end.out, nullptr, false);
}

TEST(CliSession, ATextInThreeRunsIsTheTextOfOne) {
  const TempFolder folder;
  const std::string file = folder.path("s");
  const Json whole = generate_json({"--prompt", "The lantern", "--max-tokens", "90"});
  std::vector<int> ids;
  std::string text;
  for (int run = 0; run < 3; run++) {
    std::vector<std::string> args = {"--session", file, "--max-tokens", "30"};
    if (run == 0) args.insert(args.end(), {"--prompt", "The lantern"});
    const Json j = generate_json(args);
    for (const int id : j["ids"]) ids.push_back(id);
    text += j["text"].get<std::string>();
    // A restored text costs one token: the one that was chosen last.
    EXPECT_EQ(j["prompt_ids"].size() - j["reused_tokens"].get<std::size_t>(),
              run == 0 ? j["prompt_ids"].size() : 1u);
  }
  EXPECT_EQ(ids, whole["ids"].get<std::vector<int>>());
  EXPECT_EQ(text, whole["text"].get<std::string>());
}

TEST(CliSession, ANewPromptStandsBehindTheTextSoFar) {
  const TempFolder folder;
  const std::string file = folder.path("s");
  const Json first = generate_json({"--session", file, "--ids", "2,17,5", "--max-tokens", "10"});
  const Json second = generate_json({"--session", file, "--ids", "30,31", "--max-tokens", "10"});
  std::vector<int> all = {2, 17, 5};
  for (const int id : first["ids"]) all.push_back(id);
  all.insert(all.end(), {30, 31});
  EXPECT_EQ(second["prompt_ids"].get<std::vector<int>>(), all);
  EXPECT_EQ(second["ids"],
            generate_json({"--ids", fmt::format("{}", fmt::join(all, ",")), "--max-tokens", "10"})["ids"]);
}

TEST(CliSession, CtrlCSavesWhatIsThere) {
  const TempFolder folder, dir;
  const std::string file = folder.path("s");
  const pid_t pid = start_program(
      dir, on_one_thread({"generate", "--model", kStoryteller, "--kv", "q4", "--prompt", "The lantern",
                          "--session", file, "--max-tokens", "5000", "--ignore-eos", "--quiet"}));
  ASSERT_TRUE(eventually([&] { return read_whole_file(dir.path("stdout")).size() > 50 || has_ended(pid); }));
  ASSERT_EQ(kill(pid, SIGINT), 0);
  const Ended end = wait_program(dir, pid);
  EXPECT_EQ(end.code, 130) << end.err;
  const Json shown = Json::parse(run_program({"session", "show", file, "--json", "--show-tokens"}).out);
  const std::vector<int> tokens = shown["rows"][0]["token_ids"];
  ASSERT_GT(tokens.size(), 8u);
  // It goes on as if nobody had pressed anything.
  const Json more = generate_json({"--session", file, "--max-tokens", "20", "--ignore-eos"});
  const Json whole = generate_json(
      {"--ids", fmt::format("{}", fmt::join(tokens, ",")), "--max-tokens", "20", "--ignore-eos"});
  EXPECT_EQ(more["ids"], whole["ids"]);
  EXPECT_EQ(more["prompt_ids"].size() - more["reused_tokens"].get<std::size_t>(), 1u);
}

TEST(CliSession, AnotherModelOrCodecIsRefusedNamingBoth) {
  const TempFolder folder;
  const std::string file = folder.path("s");
  ASSERT_EQ(generate({"--session", file, "--prompt", "Once", "--max-tokens", "3"}).code, 0);
  const std::string before = read_whole_file(file);
  const Ended codec = run_program(on_one_thread({"generate", "--model", kStoryteller, "--session", file}));
  EXPECT_EQ(codec.code, 1);
  EXPECT_NE(codec.err.find("keys=q4:64"), std::string::npos) << codec.err;
  EXPECT_NE(codec.err.find("keys=bf16"), std::string::npos) << codec.err;
  const Ended model = run_program(
      on_one_thread({"generate", "--model", kTiny, "--kv", "q4", "--session", file, "--max-tokens", "3"}));
  EXPECT_EQ(model.code, 1);
  EXPECT_NE(model.err.find("model is "), std::string::npos) << model.err;
  EXPECT_NE(model.err.find(" in the file and "), std::string::npos) << model.err;
  EXPECT_EQ(read_whole_file(file), before);
}

TEST(CliSession, ShowTellsNothingOfTheTextUnlessAsked) {
  const TempFolder folder;
  const std::string file = folder.path("s");
  ASSERT_EQ(generate({"--session", file, "--ids", "2,171,151,119", "--max-tokens", "3"}).code, 0);
  const Ended shown = run_program({"session", "show", file});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_NE(shown.out.find("6 positions, 7 tokens"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("q4:64"), std::string::npos) << shown.out;
  EXPECT_EQ(shown.out.find("171,151"), std::string::npos);
  EXPECT_EQ(run_program({"session", "show", file, "--json"}).out.find("171,151"), std::string::npos);
  EXPECT_NE(run_program({"session", "show", file, "--show-tokens"}).out.find("2,171,151,119"),
            std::string::npos);
  const Ended verified = run_program({"session", "verify", file});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_NE(verified.out.find("intact"), std::string::npos);

  std::string bytes = read_whole_file(file);
  bytes[bytes.size() - 9] ^= 16;
  folder.write("s", bytes);
  for (const std::vector<std::string>& args : {std::vector<std::string>{"session", "verify", file},
                                               {"session", "verify", file, "--quick", "--json"}}) {
    const Ended damaged = run_program(args);
    EXPECT_EQ(damaged.code, 1);
    EXPECT_NE(damaged.err.find("is damaged"), std::string::npos) << damaged.err;
  }
  const Ended refused = generate({"--session", file, "--max-tokens", "3"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(read_whole_file(file), bytes);  // what can't be read is not overwritten
}

TEST(CliSession, WrongUsageIsNamed) {
  const TempFolder folder;
  const Ended none = generate({"--session", folder.path("new"), "--max-tokens", "3"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("one of them is needed"), std::string::npos) << none.err;
  EXPECT_EQ(folder.entries(), 0);
  EXPECT_EQ(run_program({"session"}).code, 2);
  EXPECT_EQ(run_program({"session", "show"}).code, 2);
  EXPECT_EQ(run_program({"session", "show", folder.path("gone")}).code, 1);
  const Ended help = run_program({"session", "show", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("windrow session show"), std::string::npos) << help.out;
  EXPECT_NE(help.out.find("--show-tokens"), std::string::npos) << help.out;
}

}  // namespace
}  // namespace windrow
