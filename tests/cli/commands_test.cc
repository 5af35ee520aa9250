// What each subcommand prints when all is well.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/program.h"
#include "model/model_fixture.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT
using Json = nlohmann::json;

std::string joined(const std::vector<std::int32_t>& ids) { return fmt::format("{}", fmt::join(ids, ",")); }

Json run_json(std::vector<std::string> args) {
  args.push_back("--json");
  const Ended end = run_program(args[0] == "generate" ? on_one_thread(args) : args);
  EXPECT_EQ(end.code, 0) << end.err;
  return Json::parse(end.out, nullptr, false);
}

TEST(CliGenerate, WritesTheGoldenGreedyTextOfEachPrompt) {
  const Json golden = Json::parse(read_whole_file(kStoryteller + "/golden.json"));
  for (std::size_t p = 0; p < 4; p++) {
    const std::string prompt = golden["prompts"][p];
    const Ended end = run_program({"generate", "--model", kStoryteller, "--prompt", prompt, "--max-tokens",
                                   "120", "--kv", "f32", "--quiet", "--echo", "--threads", "1"});
    EXPECT_EQ(end.code, 0);
    EXPECT_EQ(end.out, golden["greedy"][p].get<std::string>() + "\n");
    EXPECT_EQ(end.err, "");
  }
}

TEST(CliGenerate, JsonHasThePromisedObject) {
  const std::vector<std::string> args = {
      "generate", "--model", kStoryteller, "--prompt", "Alice said to the Wizard:", "--max-tokens", "12",
      "--kv",     "q4",      "--kv-full",  "q8:32"};
  const Json j = run_json(args);
  std::vector<std::string> keys;
  for (const auto& item : j.items()) keys.push_back(item.key());
  EXPECT_EQ(keys, (std::vector<std::string>{"drafts", "finish_reason", "ids", "occupancy", "prompt_ids",
                                            "reused_tokens", "rows", "state", "text", "timings"}));
  EXPECT_EQ(j["prompt_ids"].get<std::vector<std::int32_t>>(), Golden(kStoryteller).ids("p2_prompt"));
  EXPECT_EQ(j["ids"].size(), 12u);
  EXPECT_EQ(j["finish_reason"], "length");
  for (const char* t : {"load_s", "prefill_s", "decode_s", "prefill_tokens_per_s", "decode_tokens_per_s"}) {
    EXPECT_GT(j["timings"][t].get<double>(), 0.0) << t;
  }
  const Json& groups = j["state"]["groups"];
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0]["layers"], Json::parse("[0,1,2,3,4]"));
  EXPECT_EQ(groups[0]["window"], 64);
  EXPECT_EQ(groups[0]["codec_keys"], "q4:64");
  EXPECT_EQ(groups[1]["window"], Json());
  EXPECT_EQ(groups[1]["codec_values"], "q8:32");
  EXPECT_EQ(j["state"]["bytes"],
            groups[0]["bytes"].get<std::size_t>() + groups[1]["bytes"].get<std::size_t>());
  EXPECT_GT(j["state"]["bytes_bf16"], j["state"]["bytes"]);
  const Ended text = run_program(on_one_thread(args));
  EXPECT_EQ(text.out, j["text"].get<std::string>() + "\n");
}

TEST(CliGenerate, ASeedGivesTheSameTextOnAnyThreadsAndChunks) {
  const std::vector<std::string> args = {"generate",
                                         "--model",
                                         kStoryteller,
                                         "--prompt",
                                         "The old sailor told the boys",
                                         "--max-tokens",
                                         "40",
                                         "--temperature",
                                         "0.9",
                                         "--top-p",
                                         "0.95",
                                         "--seed",
                                         "5",
                                         "--kv",
                                         "q4",
                                         "--quiet"};
  std::vector<std::string> outs;
  for (const auto& [threads, chunk] :
       std::vector<std::pair<const char*, const char*>>{{"1", "512"}, {"2", "1"}, {"3", "3"}}) {
    std::vector<std::string> more = args;
    more.insert(more.end(), {"--threads", threads, "--prefill-chunk", chunk});
    const Ended end = run_program(more);
    EXPECT_EQ(end.code, 0);
    EXPECT_GT(end.out.size(), 40u);
    outs.push_back(end.out);
  }
  EXPECT_EQ(outs[0], outs[1]);
  EXPECT_EQ(outs[0], outs[2]);
}

TEST(CliGenerate, WithoutTokenizerTheIdsThemselvesAreWritten) {
  const Golden golden(kTiny);
  const std::vector<std::int32_t> all = golden.ids("greedy20_ids");
  const std::vector<std::int32_t> prompt(all.begin(), all.begin() + 20), rest(all.begin() + 20, all.end());
  const Ended end = run_program({"generate", "--model", kTiny, "--ids", joined(prompt), "--max-tokens", "40",
                                 "--kv", "f32", "--ignore-eos", "--quiet", "--threads", "1"});
  EXPECT_EQ(end.out, joined(rest) + "\n");
}

TEST(CliGenerate, TheModelsContextBoundsTheText) {
  std::string ids = "5";
  for (int i = 1; i < 510; i++) ids += ",5";
  const Json j =
      run_json({"generate", "--model", kTiny, "--ids", ids, "--max-tokens", "100", "--ignore-eos"});
  EXPECT_EQ(j["ids"].size(), 3u);  // positions 510 and 511 are fed, the third token is not
  EXPECT_EQ(j["finish_reason"], "length");
}

TEST(CliGenerate, TheSummaryStandsOnStderrWithTheRing) {
  const Ended end = run_program({"generate", "--model", kStoryteller, "--prompt", "It was a dark night, and",
                                 "--max-tokens", "200", "--kv", "q4:64", "--summary", "--threads", "1"});
  EXPECT_EQ(end.code, 0);
  for (const char* part : {"7 tokens in ", "200 written in ", "tokens/s", "q4:64", "bf16, unbounded",
                           "this run", "5 layers slide over 64 positions", "█"}) {
    EXPECT_NE(end.err.find(part), std::string::npos) << part << "\n" << end.err;
  }
  EXPECT_EQ(end.err.find('\x1b'), std::string::npos) << "no colours off a terminal";
}

TEST(CliGenerate, TheSummaryComparesWithBf16OnlyWhatIsNotBf16) {
  const auto err = [](std::vector<std::string> more) {
    std::vector<std::string> args = {"generate", "--model",      kStoryteller, "--prompt",
                                     "a",        "--max-tokens", "3"};
    args.insert(args.end(), more.begin(), more.end());
    return run_program(on_one_thread(args)).err;
  };
  EXPECT_NE(err({}).find("state of 4 positions: 96.0 KiB as bf16, 96.0 KiB as bf16 without windows\n"),
            std::string::npos);
  EXPECT_NE(err({"--kv-keys", "q8"}).find(" as q8:64/bf16, 96.0 KiB as bf16, 96.0 KiB as bf16 without"),
            std::string::npos);
  const std::string whole = err({"--summary"});
  EXPECT_NE(whole.find("    bf16     "), std::string::npos);
  EXPECT_EQ(whole.find("    bf16     "), whole.rfind("    bf16     ")) << whole;
}

TEST(CliGenerate, PromptFilesAreReadAsTheyAre) {
  const TempFolder dir;
  dir.write("prompt.txt", "Alice said to the Wizard:");
  const std::vector<std::string> base = {"generate", "--model", kStoryteller, "--max-tokens", "8", "--quiet"};
  std::vector<std::string> file = base, text = base;
  file.insert(file.end(), {"--prompt-file", dir.path("prompt.txt")});
  text.insert(text.end(), {"--prompt", "Alice said to the Wizard:"});
  EXPECT_EQ(run_program(on_one_thread(file)).out, run_program(on_one_thread(text)).out);
}

TEST(CliGenerate, CtrlCEndsWithTheTextSoFarAndTheSummary) {
  const TempFolder dir;
  const pid_t pid =
      start_program(dir, {"generate", "--model", kStoryteller, "--prompt", "Once", "--max-tokens", "4000",
                          "--temperature", "1", "--ignore-eos", "--threads", "1"});
  for (int i = 0; i < 3000 && std::filesystem::file_size(dir.path("stdout")) < 50; i++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(pid, SIGINT);
  const Ended end = wait_program(dir, pid);
  EXPECT_EQ(end.code, 130);
  EXPECT_GE(end.out.size(), 50u);
  EXPECT_EQ(end.out.back(), '\n');
  EXPECT_NE(end.err.find("end: cancelled"), std::string::npos) << end.err;
}

TEST(CliLogits, TheFileEqualsTransformersAndHasTheSameBitsForEveryChunk) {
  const TempFolder dir;
  const Golden golden(kTiny);
  const std::string ids = joined(golden.ids("prompt"));
  std::string first;
  for (const char* chunk : {"1", "3", "7", "64", "512"}) {
    const std::string out = dir.path("logits.safetensors");
    const Ended end = run_program(
        {"logits", "--model", kTiny, "--ids", ids, "--kv", "f32", "--prefill-chunk", chunk, "--out", out});
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(end.out + end.err, "");
    const std::string bytes = read_whole_file(out);
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << chunk;
    const SafetensorsFile file = must(SafetensorsFile::open(out));
    ASSERT_EQ(file.tensors().size(), 1u);
    const TensorView* t = file.find("logits");
    ASSERT_NE(t, nullptr);
    EXPECT_EQ(t->shape, (std::vector<std::size_t>{48, 320}));
    std::vector<float> values(48 * 320);
    std::memcpy(values.data(), t->bytes.data(), t->bytes.size());
    EXPECT_LT(relative_error(values, golden.floats("prompt_logits")), 2e-5);
  }
}

TEST(CliLogits, QuantizedStateGivesTheSameFileForAnyChunkAndThreads) {
  const TempFolder dir;
  for (const char* codec : {"q8", "q4"}) {
    std::string first;
    for (const auto& [chunk, threads] :
         std::vector<std::pair<const char*, const char*>>{{"1", "1"}, {"7", "2"}, {"512", "2"}}) {
      const Ended end =
          run_program({"logits", "--model", kStoryteller, "--prompt",
                       "The pirate looked at the map and the boy looked at the pirate.", "--kv", codec,
                       "--prefill-chunk", chunk, "--threads", threads, "--out", dir.path("l")});
      EXPECT_EQ(end.code, 0) << end.err;
      const std::string bytes = read_whole_file(dir.path("l"));
      if (first.empty()) first = bytes;
      EXPECT_TRUE(bytes == first) << codec << " " << chunk << " " << threads;
    }
  }
}

TEST(CliPlan, EqualsWhatGenerateAllocates) {
  const Json run = run_json({"generate", "--model", kTiny, "--ids", "5,6,7,8,9,10,11,12", "--max-tokens",
                             "33", "--prefill-chunk", "4", "--kv", "q4", "--ignore-eos"});
  const Json plan =
      run_json({"plan", "--model", kTiny, "--context", "40", "--prefill-chunk", "4", "--kv", "q4"});
  EXPECT_EQ(plan["bytes"], run["state"]["bytes"]);
  EXPECT_EQ(plan["groups"][0]["bytes"], run["state"]["groups"][0]["bytes"]);
}

TEST(CliPlan, ThePrecedenceOfCodecFlagsIsTheirOrderInTheHelp) {
  const Json plan = run_json({"plan", "--model", kTiny, "--context", "16", "--kv-values", "q3",
                              "--kv-sliding", "q8", "--kv-full", "f16", "--kv", "q2"});
  EXPECT_EQ(plan["groups"][0]["codec_keys"], "q8:64");
  EXPECT_EQ(plan["groups"][0]["codec_values"], "q3:64");
  EXPECT_EQ(plan["groups"][1]["codec_keys"], "f16");
  EXPECT_EQ(plan["groups"][1]["codec_values"], "q3:64");
}

TEST(CliPlan, TheTableNamesGroupsAndTheSum) {
  const Ended end = run_program({"plan", "--model", kTiny, "--context", "64", "--rows", "3"});
  EXPECT_EQ(end.code, 0);
  for (const char* part : {"0-4", "full", "bf16", "3 rows of 64 tokens", "attention of layers 0-4: "}) {
    EXPECT_NE(end.out.find(part), std::string::npos) << end.out;
  }
}

TEST(CliPlan, TheJsonNamesTheKernelOfEveryKindOfRead) {
  const Json plan = run_json({"plan", "--model", kTiny, "--context", "16", "--kv", "q4"});
  ASSERT_EQ(plan["attention"].size(), plan["groups"].size());
  for (const char* kind : {"decode", "verify", "prefill", "tree", "block"}) {
    const Json& kernel = plan["attention"][0]["kernels"][kind];
    EXPECT_NE(kernel["kernel"].get<std::string>().find("keys q4:64"), std::string::npos) << plan;
    EXPECT_EQ(kernel["slow"], "") << plan;
  }
}

TEST(CliTokenize, IdsAndTextGoBothWays) {
  const std::string text = "My dear Watson, said Holmes \xE2\x80\x94 caf\xC3\xA9!";
  const Ended ids = run_program({"tokenize", "--model", kStoryteller, "--text", text});
  EXPECT_EQ(ids.code, 0) << ids.err;
  EXPECT_EQ(ids.out, run_program({"tokenize", "--model", kStoryteller}, text).out);
  EXPECT_EQ(ids.out.rfind("2,", 0), 0u) << "bos";
  const Ended plain = run_program({"tokenize", "--model", kStoryteller, "--text", text, "--no-special"});
  EXPECT_EQ("2," + plain.out, ids.out);
  const std::string list = ids.out.substr(0, ids.out.size() - 1);
  EXPECT_EQ(run_program({"detokenize", "--model", kStoryteller, "--ids", list}).out, text + "\n");
  const Json j = run_json({"tokenize", "--model", kStoryteller, "--text", "Hello"});
  EXPECT_EQ(j["ids"].size(), j["tokens"].size());
}

TEST(Cli, HelpAndVersionGoToStdoutAndEndWell) {
  EXPECT_EQ(run_program({"--version"}).out, "windrow " WINDROW_VERSION "\n");
  EXPECT_EQ(run_program({"--version"}).code, 0);
  for (const char* sub : {"generate", "logits", "plan", "quality", "tokenize", "detokenize"}) {
    const Ended end = run_program({sub, "--help"});
    EXPECT_EQ(end.code, 0);
    EXPECT_NE(end.out.find("--model"), std::string::npos);
    EXPECT_NE(run_program({"--help"}).out.find(sub), std::string::npos);
  }
}

TEST(Cli, HelpFitsATerminalAndTellsTheRangeOfEveryNumber) {
  for (const char* sub : {"generate", "logits", "plan", "quality"}) {
    std::istringstream help(run_program({sub, "--help"}).out);
    std::string all;
    for (std::string line; std::getline(help, line);) {
      EXPECT_LE(line.size(), 80u) << sub << ": " << line;
      all += line.substr(std::min(line.find_first_not_of(' '), line.size())) + " ";
    }
    // An entry runs from its flag to the next one.
    for (std::size_t at = all.find("--"), next = 0; at != std::string::npos; at = next) {
      next = all.find(" --", at + 1);
      const std::string entry = all.substr(at, next - at);
      const std::size_t type = entry.find(' ') + 1;
      if (entry[type] != 'N' && entry[type] != 'X') continue;
      EXPECT_TRUE(entry.find("(from ") != entry.npos || entry.find("(above ") != entry.npos) << entry;
      EXPECT_NE(entry.find("default ") != entry.npos, entry.find("REQUIRED") != entry.npos) << entry;
    }
  }
}

}  // namespace
}  // namespace windrow
