// generate --draft, as a user would: the same text in fewer steps.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "model/model_fixture.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT
using Json = nlohmann::json;
using Args = std::vector<std::string>;

Args joined(Args a, const Args& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Json generate(const Args& args, const std::string& model = kStoryteller) {
  const Ended end =
      run_program(on_one_thread(joined({"generate", "--model", model, "--json", "--quiet"}, args)));
  EXPECT_EQ(end.code, 0) << end.err;
  return Json::parse(end.out, nullptr, false);
}

TEST(CliDraft, TheTextIsThatOfPlainDecodingWithEveryDraftCodecAndSampler) {
  const Args samplers[] = {
      {"--kv", "bf16"},
      {"--kv", "q4", "--temperature", "0.8", "--top-k", "20", "--seed", "7"},
      {"--kv", "q8", "--temperature", "1", "--top-p", "0.9", "--repetition-penalty", "1.2"}};
  for (const Args& sampler : samplers) {
    const Args args = joined({"--prompt", "The lantern", "--max-tokens", "120"}, sampler);
    const Json plain = generate(args);
    EXPECT_TRUE(plain["drafts"].is_null());
    EXPECT_EQ(plain["rows"], 1);
    for (const Args& draft : {Args{"--draft", kStorytellerDraft},
                              {"--draft", "ngram", "--draft-tokens", "5"},
                              {"--draft", kStorytellerDraft, "--draft-tree", "3", "--draft-tokens", "12"}}) {
      const Json drafted = generate(joined(args, draft));
      EXPECT_EQ(drafted["ids"], plain["ids"]) << draft[1] << sampler[1];
      EXPECT_EQ(drafted["text"], plain["text"]);
      const Json& d = drafted["drafts"];
      const double rounds = d["verify_steps"], accepted = d["accepted"], tokens = d["drafted"];
      EXPECT_LE(accepted, tokens);
      if (tokens > 0) {
        EXPECT_DOUBLE_EQ(d["acceptance"], accepted / tokens);
        EXPECT_DOUBLE_EQ(d["tokens_per_verify_step"], 1 + accepted / rounds);
      }
    }
  }
}

TEST(CliDraft, DraftsWorkInSessionsAndSessionsWithoutDraftsGoOnFromThem) {
  const TempFolder folder;
  const std::string file = folder.path("s");
  const Json whole = generate({"--kv", "q4", "--prompt", "The lantern", "--max-tokens", "150"});
  std::vector<int> ids;
  const Args parts[] = {{"--prompt", "The lantern", "--draft", kStorytellerDraft},
                        {},
                        {"--draft", "ngram"},
                        {"--draft", kStorytellerDraft, "--draft-tree", "2"},
                        {}};
  for (const Args& part : parts) {
    const Json j = generate(joined({"--kv", "q4", "--session", file, "--max-tokens", "30"}, part));
    for (const int id : j["ids"]) ids.push_back(id);
    const std::size_t prompt = j["prompt_ids"].size();
    EXPECT_EQ(prompt - j["reused_tokens"].get<std::size_t>(), ids.size() == 30 ? prompt : 1u);
  }
  EXPECT_EQ(ids, whole["ids"].get<std::vector<int>>());
}

TEST(CliDraft, ARecurrentModelIsDraftedFor) {
  const std::string hybrid = WINDROW_TEST_DATA "/hf/qwen3_next";
  const Args args = {"--ids", "5,6,7,8,5,6,7,8,5,6", "--max-tokens", "60", "--ignore-eos"};
  const Json plain = generate(args, hybrid);
  EXPECT_EQ(generate(joined(args, {"--draft", "ngram"}), hybrid)["ids"], plain["ids"]);
  const Json tree =
      generate(joined(args, {"--draft", kTiny, "--draft-tree", "4", "--draft-tokens", "16"}), hybrid);
  EXPECT_EQ(tree["ids"], plain["ids"]);
}

TEST(CliDraft, TheSummaryTellsWhatDraftsBrought) {
  const Ended end =
      run_program(on_one_thread({"generate", "--model", kStoryteller, "--prompt", "The lantern",
                                 "--max-tokens", "60", "--draft", kStorytellerDraft, "--summary"}));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("tokens accepted ("), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("tokens a step"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("60 written"), std::string::npos) << end.err;
}

TEST(CliDraft, WhatCanNotDraftIsNamed) {
  const auto refused = [&](const std::string& model, const Args& args, int code) {
    const Ended end = run_program(
        on_one_thread(joined({"generate", "--model", model, "--ids", "1", "--max-tokens", "3"}, args)));
    EXPECT_EQ(end.code, code) << end.err;
    EXPECT_EQ(end.out, "");
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
    const std::string advice = " (see: windrow generate --help)\n";
    EXPECT_EQ(end.err.ends_with(advice), code == 2) << end.err;
    return end.err.substr(0, end.err.size() - (code == 2 ? advice.size() : 1));
  };
  EXPECT_EQ(refused(kStoryteller, {"--draft", kTiny}, 2),
            "windrow: --draft: " + kTiny + " has 320 ids, the model 2048");
  EXPECT_EQ(refused(kStoryteller, {"--draft", "ngram", "--draft-tree", "2"}, 2),
            "windrow: --draft-tree: is for draft models, ngram guesses one chain");
  EXPECT_EQ(refused(kStoryteller, {"--draft-tokens", "2"}, 2), "windrow: --draft-tokens: needs --draft");
  EXPECT_EQ(refused(kStoryteller, {"--draft-tree", "1"}, 2), "windrow: --draft-tree: needs --draft");
  EXPECT_EQ(refused(kStoryteller, {"--draft", "ngram", "--draft-tokens", "33"}, 2),
            "windrow: --draft-tokens: \"33\" is not a whole number from 1 to 32");
  EXPECT_EQ(refused(kTiny, {"--draft", WINDROW_TEST_DATA "/hf/qwen3_next"}, 1),
            "windrow: draft model: it has recurrent layers, whose rows can't be cut");
  const std::string gone = refused(kStoryteller, {"--draft", "/no/such/folder"}, 1);
  EXPECT_NE(gone.find("/no/such/folder"), std::string::npos) << gone;
}

}  // namespace
}  // namespace windrow
