// windrow batch, as a user would.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/program.h"
#include "engine/solo.h"
#include "model/model_fixture.h"
#include "support/sanitized.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT
using Json = nlohmann::json;
using Args = std::vector<std::string>;

struct Batched {
  Ended end;
  Json summary;
  std::map<int, Json> lines;  // by number
};

std::string requests_of(const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines) text += line.dump() + "\n";
  return text;
}

std::map<int, Json> results_of(const std::string& path) {
  std::map<int, Json> lines;
  const std::string text = read_whole_file(path);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    Json line = Json::parse(text.substr(begin, end - begin));
    const int number = line["line"];
    EXPECT_TRUE(lines.emplace(number, std::move(line)).second) << "line " << number << " twice";
    begin = end + 1;
  }
  return lines;
}

Batched batch(const TempFolder& folder, const std::string& model, const std::string& requests,
              const Args& more) {
  folder.write("in", requests);
  Args args = {"batch", "--model",          model,    "--in",   folder.path("in"),
               "--out", folder.path("out"), "--json", "--quiet"};
  args.insert(args.end(), more.begin(), more.end());
  Batched b;
  b.end = run_program(on_one_thread(args));
  b.summary = Json::parse(b.end.out, nullptr, false);
  if (std::filesystem::exists(folder.path("out"))) b.lines = results_of(folder.path("out"));
  return b;
}

// Of mixed lengths, greedy and sampled, some ended by an id of their own.
std::vector<Request> mixed_requests(int count) {
  std::mt19937 random(17);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<Request> requests;
  for (int i = 0; i < count; i++) {
    Request r;
    for (int n = 1 + below(i % 8 == 0 ? 90 : 20); n > 0; n--) r.prompt.push_back(2 + below(2000));
    r.max_tokens = 1 + below(i % 8 == 1 ? 120 : 40);
    if (i % 3 == 1) r.sampling = {.temperature = 0.8f, .top_k = 20, .seed = static_cast<std::uint64_t>(i)};
    if (i % 3 == 2)
      r.sampling = {.temperature = 1.1f, .top_p = 0.9f, .min_p = 0.01f, .repetition_penalty = 1.1f};
    requests.push_back(std::move(r));
  }
  return requests;
}

Json to_json(const Request& r) {
  const SamplerOptions& s = r.sampling;
  return {{"ids", r.prompt},
          {"max_tokens", r.max_tokens},
          {"temperature", s.temperature},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"min_p", s.min_p},
          {"seed", s.seed},
          {"repetition_penalty", s.repetition_penalty}};
}

TEST(CliBatch, SixtyFourRequestsInEightRowsAreEachTheirSoloRun) {
  const std::size_t count = kSanitized ? 12 : 64;  // instrumented, each takes seconds
  const std::vector<Request> requests = mixed_requests(static_cast<int>(count));
  std::vector<Json> lines;
  for (const Request& r : requests) lines.push_back(to_json(r));
  // Solo: no scheduler, one token a step.
  Session solo(kStoryteller, KvChoice(Codec::affine(4)), {.rows = 1, .tokens = 220, .step_tokens = 1});
  RunnerModel model(solo.runner, solo.model.info());
  std::vector<std::vector<std::int32_t>> alone;
  for (Request r : requests) {
    r.stop_ids = solo.model.info().eos_ids;
    alone.push_back(run_alone(model, solo.plan, r));
  }
  for (const Args& draft : {Args{}, {"--draft", kStorytellerDraft}, {"--draft", "ngram"}}) {
    const TempFolder folder;
    Args args = {"--rows", "8", "--kv", "q4", "--prefill-chunk", "16"};
    args.insert(args.end(), draft.begin(), draft.end());
    const Batched b = batch(folder, kStoryteller, requests_of(lines), args);
    ASSERT_EQ(b.end.code, 0) << b.end.err;
    ASSERT_EQ(b.lines.size(), count);
    for (std::size_t i = 0; i < alone.size(); i++) {
      const Json& line = b.lines.at(static_cast<int>(i) + 1);
      EXPECT_EQ(line["ids"].get<std::vector<std::int32_t>>(), alone[i]) << "line " << i + 1;
      EXPECT_EQ(line["prompt_tokens"], requests[i].prompt.size());
    }
    EXPECT_EQ(b.summary["finished"], count);
    EXPECT_EQ(b.summary["rows"], 8);
    EXPECT_GT(b.summary["occupancy"], kSanitized ? 3.0 : 4.0);
    EXPECT_LE(b.summary["occupancy"], 8.0);
    EXPECT_GT(b.summary["state_bytes"], 0);
    EXPECT_EQ(b.summary["drafts"].is_null(), draft.empty());
    if (!draft.empty()) {
      EXPECT_GT(b.summary["drafts"]["accepted"], 0);
    }
  }
}

TEST(CliBatch, AWrongLineHasItsErrorAndTheOthersGoOn) {
  const TempFolder folder;
  const std::string requests =
      "{\"ids\": [1, 2, 3], \"max_tokens\": 4, \"id\": \"first\"}\n"
      "{\"ids\": [1, 2, 3]\n"
      "\n"
      "{\"ids\": [1, 320]}\n"
      "{\"prompt\": \"Once\"}\n"
      "{\"ids\": [1], \"max_tokens\": 0}\n"
      "{\"ids\": [7, 8], \"max_tokens\": 1000}\n"
      "{\"max_tokens\": 3}\n"
      "{\"ids\": [4], \"max_tokens\": 2, \"logprobs\": 3}\n";
  const Batched b = batch(folder, kTiny, requests, {"--ignore-eos"});
  EXPECT_EQ(b.end.code, 1);
  ASSERT_EQ(b.lines.size(), 8u);  // the empty one is none
  EXPECT_EQ(b.lines.at(1)["id"], "first");
  EXPECT_EQ(b.lines.at(1)["ids"].size(), 4u);
  for (const int wrong : {2, 4, 5, 6, 7, 8}) {
    const std::string error = b.lines.at(wrong)["error"];
    EXPECT_FALSE(error.empty());
    EXPECT_EQ(error.find('\n'), std::string::npos);
    EXPECT_FALSE(b.lines.at(wrong).contains("ids"));
  }
  EXPECT_NE(b.lines.at(7)["error"].get<std::string>().find("1001"), std::string::npos) << b.lines.at(7);
  EXPECT_EQ(b.lines.at(9)["logprobs"].size(), 2u);
  EXPECT_EQ(b.lines.at(9)["top_logprobs"][0].size(), 3u);
  EXPECT_EQ(b.summary["failed"], 6);
}

TEST(CliBatch, AnInterruptedRunGoesOnWhereItStopped) {
  const TempFolder folder, streams;
  std::vector<Json> lines;
  for (int i = 0; i < 40; i++)
    lines.push_back(
        {{"ids", {1 + i, 2, 3}}, {"max_tokens", kSanitized ? 12 : 60 + i}, {"temperature", 1}, {"seed", i}});
  const std::string requests = requests_of(lines);
  const Batched whole = batch(streams, kStoryteller, requests, {"--rows", "4", "--ignore-eos"});
  ASSERT_EQ(whole.lines.size(), 40u);

  folder.write("in", requests);
  const TempFolder dir;
  const pid_t pid =
      start_program(dir, on_one_thread({"batch", "--model", kStoryteller, "--in", folder.path("in"), "--out",
                                        folder.path("out"), "--rows", "4", "--ignore-eos", "--quiet"}));
  ASSERT_TRUE(
      eventually([&] { return read_whole_file(folder.path("out")).size() > 1000 || has_ended(pid); }));
  ASSERT_EQ(kill(pid, SIGINT), 0);
  EXPECT_EQ(wait_program(dir, pid).code, 130);
  const std::size_t before = results_of(folder.path("out")).size();
  EXPECT_GT(before, 0u);
  EXPECT_LT(before, 40u);
  // What a killed run may leave of a line is cut off.
  folder.write("out", read_whole_file(folder.path("out")) + "{\"line\": 39, \"ids\": [4,");
  const Batched rest = batch(folder, kStoryteller, requests, {"--rows", "8", "--ignore-eos"});
  EXPECT_EQ(rest.end.code, 0) << rest.end.err;
  EXPECT_EQ(rest.lines, whole.lines);
  EXPECT_EQ(rest.summary["finished"], 40 - static_cast<int>(before));
  // And there is nothing left to do.
  const Batched none = batch(folder, kStoryteller, requests, {});
  EXPECT_EQ(none.end.code, 0) << none.end.err;
  EXPECT_EQ(none.summary["finished"], 0);
  EXPECT_EQ(none.lines, whole.lines);
}

TEST(CliBatch, StopStringsEndTheTextBeforeThem) {
  const TempFolder folder;
  const Batched free = batch(folder, kStoryteller, "{\"prompt\": \"The lantern\", \"max_tokens\": 60}\n", {});
  ASSERT_EQ(free.end.code, 0) << free.end.err;
  const std::string text = free.lines.at(1)["text"];
  const std::string stop = text.substr(40, 9);  // over more than one token
  const TempFolder other;
  const Batched stopped = batch(
      other, kStoryteller,
      Json{{"prompt", "The lantern"}, {"max_tokens", 60}, {"stop", {"no such text", stop}}}.dump() + "\n",
      {"--draft", "ngram"});
  ASSERT_EQ(stopped.end.code, 0) << stopped.end.err;
  EXPECT_EQ(stopped.lines.at(1)["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped.lines.at(1)["finish_reason"], "stop");
}

TEST(CliBatch, FilesThatCanNotBeAreNamed) {
  const TempFolder folder;
  folder.write("out", "a diary\n");
  folder.write("in", "{\"ids\": [1]}\n");
  const Ended diary =
      run_program({"batch", "--model", kTiny, "--in", folder.path("in"), "--out", folder.path("out")});
  EXPECT_EQ(diary.code, 1);
  EXPECT_NE(diary.err.find("not a result of windrow batch"), std::string::npos) << diary.err;
  EXPECT_EQ(read_whole_file(folder.path("out")), "a diary\n");
  const Ended same =
      run_program({"batch", "--model", kTiny, "--in", folder.path("in"), "--out", folder.path("in")});
  EXPECT_EQ(same.code, 2);
  EXPECT_EQ(same.err, "windrow: --out: is the input file (see: windrow batch --help)\n");
  const Ended gone =
      run_program({"batch", "--model", kTiny, "--in", folder.path("no"), "--out", folder.path("new")});
  EXPECT_EQ(gone.code, 1);
  EXPECT_FALSE(std::filesystem::exists(folder.path("new")));
}

}  // namespace
}  // namespace windrow
