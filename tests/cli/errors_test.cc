// Every wrong command line has its exit code and its one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

const std::string kStoryteller = WINDROW_MODELS "/storyteller";
const std::string kTiny = WINDROW_TEST_DATA "/hf/gemma3";

struct Case {
  std::vector<std::string> args;
  int code;
  std::string err;  // without "windrow: " and the hint
};

std::vector<std::string> with(std::vector<std::string> base, const std::vector<std::string>& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

void expect_errors(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    std::string line;
    for (const std::string& a : c.args) line += a + " ";
    SCOPED_TRACE(line);
    const Ended end = run_program(c.args);
    EXPECT_EQ(end.code, c.code);
    EXPECT_EQ(end.out, "");
    const bool subcommand = !c.args.empty() && c.args[0][0] != '-' && c.args[0] != "sing";
    const std::string hint =
        c.code == 2 ? " (see: windrow" + (subcommand ? " " + c.args[0] : "") + " --help)" : "";
    EXPECT_EQ(end.err, "windrow: " + c.err + hint + "\n");
  }
}

TEST(CliErrors, NumbersOutOfRangeNameTheFlagTheTextAndTheRange) {
  const std::vector<std::string> base = {"generate", "--model", kTiny, "--ids", "1,2"};
  const auto flag = [&](const std::string& name, const std::string& value, const std::string& err) {
    return Case{with(base, {name, value}), 2, name + ": " + err};
  };
  expect_errors({
      flag("--threads", "0", "\"0\" is not a whole number from 1 to 256"),
      flag("--threads", "-1", "\"-1\" is not a whole number from 1 to 256"),
      flag("--threads", "100000", "\"100000\" is not a whole number from 1 to 256"),
      flag("--threads", "two", "\"two\" is not a whole number from 1 to 256"),
      flag("--max-tokens", "-5", "\"-5\" is not a whole number from 0 to 1073741824"),
      flag("--max-tokens", "1e3", "\"1e3\" is not a whole number from 0 to 1073741824"),
      flag("--max-tokens", "99999999999", "\"99999999999\" is not a whole number from 0 to 1073741824"),
      flag("--temperature", "nan", "\"nan\" is not a number from 0 to 100"),
      flag("--temperature", "-0.5", "\"-0.5\" is not a number from 0 to 100"),
      flag("--temperature", "inf", "\"inf\" is not a number from 0 to 100"),
      flag("--temperature", "0.8x", "\"0.8x\" is not a number from 0 to 100"),
      flag("--top-p", "2", "\"2\" is not a number above 0 to 1"),
      flag("--top-p", "0", "\"0\" is not a number above 0 to 1"),
      flag("--min-p", "1", "\"1\" is not a number from 0, below 1"),
      flag("--top-k", "-1", "\"-1\" is not a whole number from 0 to 1073741824"),
      flag("--repetition-penalty", "0", "\"0\" is not a number from 0.01 to 100"),
      flag("--seed", "18446744073709551616",
           "\"18446744073709551616\" is not a whole number from 0 to 18446744073709551615"),
      flag("--seed", "-1", "\"-1\" is not a whole number from 0 to 18446744073709551615"),
      flag("--prefill-chunk", "0", "\"0\" is not a whole number from 1 to 65536"),
      flag("--prefill-chunk", "", "\"\" is not a whole number from 1 to 65536"),
  });
}

TEST(CliErrors, IdsAreCheckedOneByOne) {
  const auto ids = [](const std::string& text, const std::string& err) {
    return Case{{"generate", "--model", kTiny, "--ids", text}, 2, "--ids: " + err};
  };
  const std::string rule = " is not a token id (ids are whole numbers from 0, joined by commas)";
  expect_errors({
      ids("1,,2", "\"\" at place 1" + rule),
      ids("1,2,", "\"\" at place 2" + rule),
      ids("", "\"\" at place 0" + rule),
      ids("1;2", "\"1;2\" at place 0" + rule),
      ids("1,-2", "\"-2\" at place 1" + rule),
      ids("7,4294967296", "\"4294967296\" at place 1" + rule),
      ids("1,320", "id 320 at place 1 is outside the model's vocabulary, 0 to 319"),
      {{"detokenize", "--model", kStoryteller, "--ids", "5,x"}, 2, "--ids: \"x\" at place 1" + rule},
  });
}

TEST(CliErrors, ThePromptHasExactlyOneSource) {
  const std::vector<std::string> base = {"generate", "--model", kStoryteller};
  expect_errors({
      {base, 2, "--prompt, --prompt-file, --ids: one of them is needed"},
      {with(base, {"--prompt", "a", "--ids", "1"}), 2, "--ids: can't be given together with --prompt"},
      {with(base, {"--prompt", ""}), 2, "--prompt: is empty"},
      {with(base, {"--prompt", "a\xff"}), 2, "--prompt: text is not UTF-8 at byte 1"},
      {{"logits", "--model", kStoryteller, "--out", "x"}, 2, "--prompt, --ids: one of them is needed"},
      {{"logits", "--model", kTiny, "--ids", "1", "--out", ""}, 2, "--out: is empty"},
      {with(base, {"--prompt-file", "/nowhere/prompt.txt"}), 1,
       "/nowhere/prompt.txt: cannot open: No such file or directory"},
  });
}

TEST(CliErrors, CodecsAreCheckedAgainstTheModel) {
  const std::vector<std::string> base = {"plan", "--model", kTiny, "--context", "16"};
  const auto message = [&](std::vector<std::string> more) { return run_program(with(base, more)); };
  for (const char* flag : {"--kv", "--kv-sliding", "--kv-full", "--kv-keys", "--kv-values"}) {
    for (const char* codec : {"q7", "f64", "q4:", "q4:63", "", "bf16:64", "Q4"}) {
      const Ended end = message({flag, codec});
      EXPECT_EQ(end.code, 2) << flag << " " << codec;
      EXPECT_EQ(end.err.rfind(std::string("windrow: ") + flag + ": ", 0), 0u) << end.err;
    }
    const Ended end = message({flag, "q4:128"});  // head_dim 64
    EXPECT_EQ(end.code, 2);
    EXPECT_EQ(end.err.rfind(std::string("windrow: ") + flag + ": ", 0), 0u) << end.err;
  }
}

TEST(CliErrors, TheCommandLineItself) {
  expect_errors({
      {{},
       2,
       "a subcommand is needed: generate, chat, session, batch, logits, plan, quality, convert, bench, "
       "tokenize, detokenize"},
      {{"sing"}, 2, "\"sing\" is no subcommand"},
      {{"generate", "--ids", "1"}, 2, "--model is required"},
      {{"plan", "--model", kTiny}, 2, "--context is required"},
      {{"plan", "--model", kTiny, "--context", "513"},
       2,
       "--context: 513 tokens, the model was made for 512"},
      {{"plan", "--model", kTiny, "--context", "8", "--rows", "0"},
       2,
       "--rows: \"0\" is not a whole number from 1 to 65536"},
      {{"generate", "--model", "", "--ids", "1"}, 2, "--model: is empty"},
      {{"tokenize", "--model", ""}, 2, "--model: is empty"},
  });
  const std::vector<std::string> base = {"generate", "--model", kTiny, "--ids", "1"};
  expect_errors({
      {with(base, {"--colour"}), 2, "--colour: no such flag"},
      {with(base, {"--promt", "a"}), 2, "--promt: no such flag, did you mean --prompt?"},
      {with(base, {"--temp=1"}), 2, "--temp: no such flag, did you mean --temperature?"},
      {with(base, {"--temp", "1"}), 2, "--temp: no such flag, did you mean --temperature?"},
      {with(base, {"2"}), 2, "\"2\" is not expected"},
      {with(base, {"plan"}), 2, "\"plan\" is not expected"},
      {with(base, {"--seed"}), 2, "--seed: its value is missing (N)"},
      {with(base, {"--kv", "q4", "--kv"}), 2, "--kv: its value is missing (CODEC)"},
      {with(base, {"--ids", "2"}), 2, "--ids: given 2 times, allowed is once"},
      {with(base, {"--quiet=3"}), 2, "--quiet: takes no value"},
      {with(base, {"--prompt-file", ""}), 2, "--prompt-file: is empty"},
  });
  EXPECT_EQ(run_program({"genrate"}).err,
            "windrow: \"genrate\" is no subcommand, did you mean generate? (see: windrow --help)\n");
}

TEST(CliErrors, FilesThatAreNotThereOrNotModelsAreFailures) {
  const TempFolder dir;
  dir.write("mamba/config.json", R"({"model_type": "mamba", "state_size": 16})");
  dir.write("bare/config.json", read_whole_file(kTiny + "/config.json"));
  expect_errors({
      {{"generate", "--model", "/nowhere", "--ids", "1"},
       1,
       "/nowhere/config.json: cannot open: No such file or directory"},
      {{"plan", "--model", dir.path("mamba"), "--context", "8"},
       1,
       dir.path("mamba") +
           "/config.json: model_type \"mamba\" is not supported (supported: gemma2, gemma3_text, "
           "gemma3n_text, gemma4_text, gpt_oss, llama, ministral, mistral, olmo3, phi3, qwen3, qwen3_next)"},
      {{"logits", "--model", kTiny, "--ids", "1", "--out", "/nowhere/x"},
       1,
       "/nowhere/x: cannot create a temporary file beside it: No such file or directory"},
  });
  EXPECT_EQ(run_program({"generate", "--model", dir.path("bare"), "--ids", "1"}).code, 1);
  for (const std::vector<std::string>& text : {std::vector<std::string>{"tokenize", "--text", "a"},
                                               {"generate", "--prompt", "a"},
                                               {"detokenize", "--ids", "1"}}) {
    const Ended end = run_program(with(text, {"--model", kTiny}));  // has no tokenizer
    EXPECT_EQ(end.code, 1);
    EXPECT_EQ(end.err.rfind("windrow: " + kTiny + "/tokenizer.json: ", 0), 0u) << end.err;
    EXPECT_NE(end.err.find("No such file or directory\n"), std::string::npos) << end.err;
  }
}

TEST(CliErrors, PromptsLongerThanTheModelAreRefused) {
  std::string ids = "1";
  for (int i = 1; i < 513; i++) ids += ",1";
  expect_errors(
      {{{"generate", "--model", kTiny, "--ids", ids}, 2, "--ids: 513 tokens, the model was made for 512"}});
}

TEST(CliErrors, AFullDiskAndAnInvalidTextOnStdinAreFailures) {
  const TempFolder dir;
  const Ended full =
      wait_program(dir, start_program(dir, {"generate", "--model", kTiny, "--ids", "1", "--max-tokens", "3"},
                                      "", {.in = "", .out = "/dev/full", .err = ""}));
  EXPECT_EQ(full.code, 1);
  EXPECT_EQ(full.err, "windrow: stdout: No space left on device\n");
  const Ended text = run_program({"tokenize", "--model", kStoryteller}, "ab\xc3");
  EXPECT_EQ(text.code, 1);
  EXPECT_EQ(text.err.rfind("windrow: stdin: ", 0), 0u) << text.err;
}

// The readers' malformed files, met by the whole program: the reader's message on one line, exit code 1.
void expect_refused(const std::string& name, const std::string& model, const std::string& message) {
  const Ended end = run_program({"generate", "--model", model, "--ids", "1", "--max-tokens", "1"});
  EXPECT_EQ(end.code, 1) << name;
  EXPECT_EQ(end.out, "") << name;
  EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << name << ": " << end.err;
  EXPECT_NE(end.err.find(message), std::string::npos) << name << ": " << end.err << "expected " << message;
}

std::string after_colon(const std::string& message) { return message.substr(message.find(": ")); }

TEST(CliErrors, HostileConfigsAreRefusedWithTheReadersMessage) {
  const std::string root = WINDROW_TEST_DATA "/hostile/config/";
  const auto manifest = nlohmann::json::parse(read_whole_file(root + "manifest.json"));
  EXPECT_GE(manifest.size(), 40u);
  for (const auto& [name, message] : manifest.items()) {
    // All families know a vocabulary size, so this one is of none, which the program tells first.
    const bool no_family = name == "vocab_missing";
    expect_refused(name, root + name,
                   no_family ? "\"some_llama\" is not supported" : message.get<std::string>());
  }
}

TEST(CliErrors, HostileWeightsAreRefusedWithTheReadersMessage) {
  const std::string root = WINDROW_TEST_DATA "/hostile/safetensors/";
  const auto manifest = nlohmann::json::parse(read_whole_file(root + "manifest.json"));
  EXPECT_GE(manifest.size(), 20u);
  for (const auto& [name, message] : manifest.items()) {
    const TempFolder dir;
    dir.write("config.json", read_whole_file(kTiny + "/config.json"));
    dir.write("model.safetensors", read_whole_file(root + name));
    expect_refused(name, dir.path(), after_colon(message.get<std::string>()));
  }
}

}  // namespace
}  // namespace windrow
