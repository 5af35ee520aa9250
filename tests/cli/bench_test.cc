// windrow bench: shapes and their bytes, figures of a small one, and what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "model/model_fixture.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT
using Json = nlohmann::json;

Json run_bench(std::vector<std::string> args) {
  args.insert(args.begin(), "bench");
  args.push_back("--json");
  const Ended end = run_program(args);
  EXPECT_EQ(end.code, 0) << end.err;
  return Json::parse(end.out, nullptr, false);
}

TEST(CliBench, ListsThePublishedShapesWithTheirBytes) {
  const Json list = run_bench({"--shape", "list"});
  std::vector<std::string> names;
  for (const Json& s : list) names.push_back(s["shape"]);
  EXPECT_EQ(names, (std::vector<std::string>{"gemma3-1b", "gemma3-4b", "gemma3-12b", "mistral-7b",
                                             "llama3-8b", "qwen3-0.6b", "qwen3-4b", "qwen3-8b", "gpt-oss-20b",
                                             "phi3-mini", "olmo3-7b", "qwen3-next-80b"}));
  // Gemma 3 1B: 26 layers of 26,836,992 weights, and 262,144 x 1,152 of head and embedding each.
  const std::size_t matrices = 26 * std::size_t{26836992}, vocabulary = std::size_t{262144} * 1152;
  EXPECT_EQ(list[0]["bytes_bf16"], 2 * (matrices + 2 * vocabulary));
  EXPECT_EQ(list[0]["bytes_q4"], (matrices + 2 * vocabulary) / 64 * (64 / 2 + 4));
  // Published totals: 7.24, 8.03, 20.9 and 79.7 billion parameters (and the embedding once more as the head).
  const auto billions = [&](int i) { return list[i]["bytes_bf16"].get<double>() / 2e9; };
  EXPECT_NEAR(billions(3), 7.24, 0.01);
  EXPECT_NEAR(billions(4), 8.03, 0.01);
  EXPECT_NEAR(billions(8), 20.9, 0.1);
  EXPECT_NEAR(billions(11), 79.7, 0.3);
}

TEST(CliBench, AFoldersConfigIsAShapeToo) {
  for (const std::string family : {"gemma3", "gemma2", "gemma3n", "gemma4", "gpt_oss", "llama", "mistral",
                                   "olmo3", "phi3", "qwen3", "qwen3_next"}) {
    SCOPED_TRACE(family);
    const Json j = run_bench({"--shape",   WINDROW_TEST_DATA "/hf/" + family,
                              "--weights", "q4:32",
                              "--kv",      "q8",
                              "--rows",    "3",
                              "--context", "20",
                              "--prompt",  "24",
                              "--steps",   "2",
                              "--repeats", "2",
                              "--threads", "1",
                              "--compute", "fast"});
    EXPECT_EQ(j["rows"], 3);
    EXPECT_EQ(j["compute"], "fast");
    EXPECT_GT(j["prefill"]["tokens_per_s"].get<double>(), 0.0);
    EXPECT_GT(j["decode"]["tokens_per_s"].get<double>(), 0.0);
    EXPECT_GT(j["decode"]["time"]["products"].get<double>(), 0.0);
    EXPECT_GT(j["decode"]["one_row_tokens_per_s"].get<double>(), 0.0);
    EXPECT_GT(j["decode"]["over_one_row"].get<double>(), 0.0);
    EXPECT_GT(j["weight_bytes"].get<std::size_t>(), 10000u);
    EXPECT_GT(j["state_bytes"].get<std::size_t>(), 1000u);
  }
}

TEST(CliBench, StateBytesFollowFromTheCodecAndTheWindow) {
  // The storyteller: 5 layers of window 64 and a full one, 2 kv heads of dim 64; bf16: 512 bytes a position.
  const Json j = run_bench({"--shape", kStoryteller, "--weights", "bf16", "--context", "200", "--prompt", "0",
                            "--steps", "1", "--repeats", "1", "--threads", "1"});
  EXPECT_EQ(j["state_bytes_per_position"], 6 * 512);
  EXPECT_EQ(j["state_bytes_read_per_token"], (5 * 64 + 200) * 512);
  EXPECT_FALSE(j.contains("prefill"));
  // All matrices and the head, none of them padded.
  EXPECT_EQ(j["weight_bytes"], 2 * (6 * (256 * 256 * 2 + 2 * 128 * 256 + 3 * 256 * 768) + 2048 * 256));
}

TEST(CliBench, TextTellsTheProbesAndTheShares) {
  const Ended end = run_program({"bench", "--shape", kStoryteller, "--context", "8", "--prompt", "8",
                                 "--steps", "1", "--repeats", "1", "--threads", "1"});
  EXPECT_EQ(end.code, 0) << end.err;
  for (const char* line : {"weights q4, state bf16, default, 1 thread\n", "\nprobes  ", "\nweights  ",
                           "\nstate  ", "\nprefill  ", "\ndecode  "}) {
    EXPECT_NE(end.out.find(line), std::string::npos) << line << end.out;
  }
}

TEST(CliBench, WhatCannotBeMeasuredIsNamed) {
  const auto error = [](std::vector<std::string> args) {
    args.insert(args.begin(), "bench");
    const Ended end = run_program(args);
    EXPECT_NE(end.code, 0);
    return end.err;
  };
  const std::string unknown = error({"--shape", "gemma9"});
  EXPECT_TRUE(unknown.starts_with(
      "windrow: --shape: \"gemma9\" is no folder with a config.json, and none of gemma3-1b,"))
      << unknown;
  EXPECT_EQ(error({"--shape", kStoryteller, "--weights", "f16"}),
            "windrow: --weights: \"f16\": expected bf16, qBITS or qBITS:GROUP (see: windrow bench --help)\n");
  EXPECT_EQ(error({"--shape", kStoryteller, "--context", "5000"}),
            "windrow: --context: 5050 tokens with the measured ones, " + kStoryteller +
                "/config.json was made for 4096 (see: windrow bench --help)\n");
  // 1024 rows of 130,000 positions: some TB of state.
  const std::string large = error({"--shape", "llama3-8b", "--rows", "1024", "--context", "130000"});
  EXPECT_TRUE(large.starts_with("windrow: llama3-8b with q4 weights needs ")) << large;
  EXPECT_NE(large.find(" of weights, "), std::string::npos) << large;
}

}  // namespace
}  // namespace windrow
