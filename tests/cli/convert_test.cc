// windrow convert as a user meets it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "model/model_fixture.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT
using Json = nlohmann::json;

std::string read_error(const std::vector<std::string>& args) {
  const Ended end = run_program(args);
  EXPECT_NE(end.code, 0);
  EXPECT_EQ(end.out, "");
  return end.err;
}

TEST(CliConvert, WritesAFolderThatGenerateReads) {
  const TempFolder temp;
  const Ended end = run_program({"convert", "--model", kStoryteller, "--out", temp.path("q4"), "--json",
                                 "--mixed", "embed_tokens=6,down_proj=8:32"});
  ASSERT_EQ(end.code, 0) << end.err;
  const Json j = Json::parse(end.out);
  EXPECT_EQ(j["quantized_modules"], 43);
  EXPECT_EQ(j["kept_tensors"], 37);
  EXPECT_EQ(j["parameters"], 5250048);
  EXPECT_EQ(j["files"], 1);
  EXPECT_NEAR(j["bits_per_weight"].get<double>(), 5.73, 0.01);
  EXPECT_EQ(end.err, "");
  std::string first;
  for (const char* mode : {"default", "fast", "f32"}) {
    const Ended text = run_program({"generate", "--model", temp.path("q4"), "--prompt",
                                    "Alice said to the Wizard:", "--max-tokens", "8", "--quiet", "--compute",
                                    mode, "--threads", "1"});
    EXPECT_EQ(text.code, 0) << text.err;
    if (first.empty()) first = text.out;
    EXPECT_EQ(text.out, first) << "eight tokens are the same in every mode";
  }
}

TEST(CliConvert, SaysWhatItWroteUnlessQuiet) {
  const TempFolder temp;
  const Ended said = run_program({"convert", "--model", kTiny, "--out", temp.path("a"), "--group", "32"});
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(said.out, "");
  EXPECT_TRUE(said.err.starts_with(temp.path("a") + ": 43 modules quantized, 37 tensors kept; ")) << said.err;
  const Ended quiet = run_program({"convert", "--model", kTiny, "--out", temp.path("b"), "--quiet"});
  EXPECT_EQ(quiet.err, "");
}

TEST(CliConvert, WrongFlagsAreNamed) {
  const auto error = [](std::vector<std::string> more) {
    std::vector<std::string> args = {"convert", "--model", kTiny, "--out", "/nowhere/out"};
    args.insert(args.end(), more.begin(), more.end());
    return read_error(args);
  };
  const std::string help = " (see: windrow convert --help)\n";
  EXPECT_EQ(error({"--bits", "7"}), "windrow: --bits: 7 bits, allowed are 2, 3, 4, 5, 6 and 8" + help);
  EXPECT_EQ(error({"--group", "48"}), "windrow: --group: 48, allowed are 32, 64 and 128" + help);
  EXPECT_EQ(error({"--mixed", "a=9"}),
            "windrow: --mixed: rule \"a=9\": bits are 2, 3, 4, 5, 6 or 8, the group is 32, 64 or 128" + help);
  EXPECT_EQ(error({}),
            "windrow: /nowhere/out: cannot create a temporary folder beside it: No such file or directory\n");
}

TEST(CliConvert, AnExistingFolderNeedsForce) {
  const TempFolder temp;
  temp.write("m/config.json", "mine");
  const std::vector<std::string> args = {"convert", "--model", kTiny, "--out", temp.path("m"), "--quiet"};
  EXPECT_EQ(read_error(args), "windrow: " + temp.path("m") + ": exists already\n");
  EXPECT_EQ(read_whole_file(temp.path("m/config.json")), "mine");
  std::vector<std::string> forced = args;
  forced.push_back("--force");
  EXPECT_EQ(run_program(forced).code, 0);
  EXPECT_NE(read_whole_file(temp.path("m/config.json")), "mine");
}

}  // namespace
}  // namespace windrow
