// windrow quality: what it prints and writes, and how it fails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT
using Json = nlohmann::json;

const std::string kStoryteller = WINDROW_MODELS "/storyteller";
const std::string kTiny = WINDROW_TEST_DATA "/hf/gemma3";
const std::string kText = WINDROW_TEST_DATA "/quality/lantern.txt";

// `windrow quality` over 60 tokens of the text.
std::vector<std::string> args(const std::vector<std::string>& more) {
  std::vector<std::string> all = {"quality", "--model",   kStoryteller, "--text",    kText, "--tokens",
                                  "60",      "--context", "40",         "--threads", "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Json run_json(std::vector<std::string> more) {
  more.push_back("--json");
  const Ended end = run_program(args(more));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.err, "");
  return Json::parse(end.out, nullptr, false);
}

void expect_usage_error(const std::vector<std::string>& command, const std::string& err) {
  const Ended end = run_program(command);
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.out, "");
  EXPECT_EQ(end.err, "windrow: " + err + fmt::format(" (see: windrow {} --help)\n", command[0]));
}

void expect_failure(const std::vector<std::string>& command, const std::string& err) {
  const Ended end = run_program(command);
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.out, "");
  EXPECT_EQ(end.err, "windrow: " + err + "\n");
}

TEST(CliQuality, TheTableHasEveryCodecGroupAndLayer) {
  const Ended end = run_program(args({"--kv", "q8,q4:32,q2"}));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.err, "");
  for (const char* part :
       {"60 tokens of ", "in 2 windows of 40 positions", "perplexity ", "with f32 state", "\nall layers\n",
        "\nq8:64 ", "\nq4:32 ", "\nq2:64 ", "only layers 0-4 (window 64), all else f32",
        "only layer 5 (full), all else f32", "error of attention outputs", "\n0 ", "\n5 "}) {
    EXPECT_NE(end.out.find(part), std::string::npos) << part << "\n" << end.out;
  }
}

TEST(CliQuality, TheJsonHasThePromisedObject) {
  const Json j = run_json({"--kv", "f32,q8,q3"});
  EXPECT_EQ(j["tokens"], 60);
  EXPECT_EQ(j["windows"], 2);
  EXPECT_EQ(j["context"], 40);
  EXPECT_EQ(j["model_type"], "gemma3_text");
  ASSERT_EQ(j["codecs"].size(), 3u);
  const Json &f32 = j["codecs"][0], &q8 = j["codecs"][1], &q3 = j["codecs"][2];
  EXPECT_EQ(f32["codec"], "f32");
  EXPECT_EQ(f32["kld"]["max"], 0.0);
  EXPECT_EQ(f32["same_top"], 1.0);
  EXPECT_EQ(f32["perplexity"], j["reference"]["perplexity"]);
  EXPECT_EQ(f32["bytes_per_token"], 6 * 2 * 2 * 64 * 4);
  EXPECT_EQ(q8["bytes_per_token"], 6 * 2 * 2 * (64 + 4));
  for (const char* key : {"mean", "median", "p99", "max"}) {
    EXPECT_LT(q8["kld"][key].get<double>(), q3["kld"][key].get<double>()) << key;
  }
  EXPECT_EQ(q3["attention_error"].size(), 6u);
  EXPECT_EQ(j["groups"].size(), 2u);
  EXPECT_EQ(j["groups"][0]["layers"], Json::parse("[0,1,2,3,4]"));
  EXPECT_EQ(j["groups"][1]["window"], Json());
  EXPECT_EQ(j["groups"][1]["codecs"][2]["codec"], "q3:64");
  EXPECT_EQ(j["groups"][1]["codecs"][2]["bytes_per_token"].get<int>() * 6, q3["bytes_per_token"].get<int>());
  EXPECT_FALSE(j.contains("suggestion"));
  EXPECT_FALSE(j.contains("compute"));
}

TEST(CliQuality, ASuggestionIsWrittenAndReadByEveryCommand) {
  const TempFolder dir;
  const std::string out = dir.path("kv.json"), svg = dir.path("plot.svg");
  const Json j = run_json({"--kv", "q8,q4,q3,q2", "--suggest", "48K", "--out", out, "--svg", svg});
  const Json& s = j["suggestion"];
  EXPECT_EQ(s["budget"], 48 << 10);
  EXPECT_LE(s["row_bytes"], s["budget"]);
  EXPECT_EQ(s["uniform"]["codec"], "q3:64");
  EXPECT_LT(s["kld"]["mean"].get<double>(), s["uniform"]["kld"]["mean"].get<double>());

  const Json again = run_json({"--kv", "q8", "--kv-file", out});
  EXPECT_EQ(again["kv_file"]["kld"], s["kld"]);
  EXPECT_EQ(again["kv_file"]["row_bytes"], s["row_bytes"]);
  EXPECT_EQ(again["kv_file"]["attention_error"].size(), 6u);

  const Ended plan =
      run_program({"plan", "--model", kStoryteller, "--context", "40", "--kv-file", out, "--json"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  const Json groups = Json::parse(plan.out)["groups"];
  for (const Json& part : s["layers"]) {
    bool found = false;
    for (const Json& g : groups)
      found |= g["codec_keys"] == part["keys"] && g["codec_values"] == part["values"];
    EXPECT_TRUE(found) << part << groups;
  }
  const Ended generate =
      run_program({"generate", "--model", kStoryteller, "--prompt", "The old man", "--max-tokens", "5",
                   "--kv-file", out, "--threads", "1", "--json", "--quiet"});
  ASSERT_EQ(generate.code, 0) << generate.err;
  EXPECT_EQ(Json::parse(generate.out)["state"]["groups"].size(), groups.size());
  const Ended logits = run_program({"logits", "--model", kStoryteller, "--ids", "2,5,6", "--kv-file", out,
                                    "--out", dir.path("l.safetensors"), "--threads", "1"});
  EXPECT_EQ(logits.code, 0) << logits.err;

  const std::string plot = read_whole_file(svg);
  EXPECT_EQ(plot.rfind("<svg ", 0), 0u);
  EXPECT_NE(plot.find("</svg>"), std::string::npos);
  for (const char* part : {"all layers", "only 0-4 (window 64)", "only 5 (full)", "suggested", ">q4:64<"}) {
    EXPECT_NE(plot.find(part), std::string::npos) << part;
  }
}

TEST(CliQuality, PerLayerEachLayerIsAGroup) {
  const Json j = run_json({"--kv", "q4,q2", "--per-layer"});
  ASSERT_EQ(j["groups"].size(), 6u);
  EXPECT_EQ(j["groups"][3]["layers"], Json::parse("[3]"));
  EXPECT_EQ(j["groups"][5]["window"], Json());
}

TEST(CliQuality, ComputeModesOfUnquantizedWeightsDoNotApply) {
  EXPECT_EQ(run_json({"--kv", "q8", "--compute"})["compute"], Json::array());
  const Ended end = run_program(args({"--kv", "q8", "--compute"}));
  EXPECT_NE(end.out.find("compute modes: do not apply, the model has no quantized weights"),
            std::string::npos);
}

TEST(CliQuality, TheTextMayComeFromStdin) {
  std::vector<std::string> command = args({"--kv", "q8"});
  command[4] = "-";
  const Ended piped = run_program(command, read_whole_file(kText)), file = run_program(args({"--kv", "q8"}));
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(piped.out.substr(piped.out.find('\n', piped.out.find('\n') + 1)),
            file.out.substr(file.out.find('\n', file.out.find('\n') + 1)));
}

TEST(CliQuality, ATextThatCanNotBeMeasuredIsNamed) {
  const TempFolder dir;
  const auto with_text = [&](const std::string& text, std::vector<std::string> more = {}) {
    std::vector<std::string> command = {"quality", "--model", kStoryteller, "--text",
                                        dir.write("t.txt", text)};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  const std::string path = dir.path("t.txt");
  expect_failure(with_text(""), path + ": is empty");
  expect_failure(with_text("ab\xff"), path + ": text is not UTF-8 at byte 2");
  expect_failure(with_text("The", {"--tokens", "5"}), path + ": has 1 tokens to score, --tokens asks for 5");
  expect_failure({"quality", "--model", kStoryteller, "--text", dir.path("none")},
                 dir.path("none") + ": cannot open: No such file or directory");
  expect_failure({"quality", "--model", kTiny, "--text", kText},
                 kTiny + "/tokenizer.json: cannot open: No such file or directory");
}

TEST(CliQuality, WrongFlagsAreNamed) {
  expect_usage_error({"quality", "--model", kStoryteller}, "--text is required");
  expect_usage_error(args({"--kv", "q8,q7"}), "--kv: codec \"q7\": affine bits are 2, 3, 4, 5, 6 or 8");
  expect_usage_error(args({"--kv", "q4,q4:64"}), "--kv: q4:64 is given twice");
  expect_usage_error(
      args({"--suggest", "many"}),
      "--suggest: \"many\" is not a number of bytes (a whole number above 0, K, M or G may follow)");
  expect_usage_error(args({"--out", "x"}), "--out: needs --suggest");
  std::vector<std::string> long_context = args({});
  long_context[8] = "5000";
  expect_usage_error(long_context, "--context: 5000 tokens, the model was made for 4096");
  for (const char* bytes :
       {"", "0", "-5", "1.5K", "5T", "5KB", "K", "99999999999999999999", "99999999999999999G"}) {
    EXPECT_EQ(run_program(args({"--suggest", bytes})).code, 2) << bytes;
  }
  for (const char* list : {"", "q8,", "q8,,q4", "q4:128", "bf16,f64"}) {
    const Ended end = run_program(args({"--kv", list}));
    EXPECT_EQ(end.code, 2) << list;
    EXPECT_EQ(end.err.rfind("windrow: --kv: ", 0), 0u) << end.err;
  }
}

TEST(CliQuality, ABudgetBelowTheSmallestPlanIsRefusedWithBothNumbers) {
  const Ended plan =
      run_program({"plan", "--model", kStoryteller, "--context", "40", "--kv", "q2", "--json"});
  const std::size_t least = Json::parse(plan.out)["bytes"];
  expect_usage_error(
      args({"--suggest", "4K", "--kv", "q4,q2"}),
      fmt::format("--suggest: a budget of 4096 bytes, a row of 40 positions takes at least {}", least));
}

TEST(CliKvFile, IsRefusedTogetherWithOtherCodecsAndWhenItIsWrong) {
  const TempFolder dir;
  const std::string file =
      dir.write("kv.json", R"({"windrow_kv": 1, "default": {"keys": "q4", "values": "q4"}})");
  const std::vector<std::string> plan = {"plan", "--model",   kStoryteller, "--context",
                                         "40",   "--kv-file", file};
  EXPECT_EQ(run_program(plan).code, 0);
  for (const char* flag : {"--kv", "--kv-sliding", "--kv-full", "--kv-keys", "--kv-values"}) {
    std::vector<std::string> both = plan;
    both.insert(both.end(), {flag, "q8"});
    expect_usage_error(both, fmt::format("--kv-file: can't be given together with {}", flag));
  }
  dir.write("kv.json", R"({"windrow_kv": 1, "layers": [{"layers": [6], "keys": "q4", "values": "q4"}]})");
  expect_failure(plan, file + ": \"layers[0].layers\" names layer 6: the model has 0 to 5");
  expect_failure(args({"--kv-file", file}),
                 file + ": \"layers[0].layers\" names layer 6: the model has 0 to 5");
}

}  // namespace
}  // namespace windrow
