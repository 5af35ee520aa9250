// The template engine against Jinja, set up as transformers does (tests/data/templates/cases.json, written by
// make_cases.py beside it): published shapes of templates, and every construct of the language.
#include <gtest/gtest.h>

#include "text/template_fixture.h"
#include "text/tokenizer_data.h"

namespace windrow::text {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const ordered_json& all_cases() {
  static const ordered_json all = ordered_json::parse(read_test_file("templates/cases.json"));
  return all;
}

Result<TaintedText> render_case(const ordered_json& c) {
  const std::string source = c.contains("source")
                                 ? c["source"].get<std::string>()
                                 : read_test_file("templates/" + c["template"].get<std::string>());
  const Result<Template> parsed = Template::parse(source, "t");
  if (!parsed.ok()) return parsed.status();
  Template::Input input;
  for (const auto& [name, token] : all_cases()["tokens"].items()) input.texts.emplace_back(name, token);
  input.flags = {{"add_generation_prompt", c.value("add_generation_prompt", true)}};
  input.json = {{"messages", c.contains("messages") ? c["messages"].dump() : "[]"}};
  if (c.contains("variables")) {
    input.variables = (c["variables"].is_string() ? all_cases()["data"] : c["variables"]).dump();
  }
  const std::vector<int> now = all_cases()["now"];
  input.now = CivilTime{now[0], now[1], now[2], now[3], now[4], now[5]};
  return parsed->render(input);
}

TEST(TemplateCases, EachRendersWhatJinjaRendersAndIsRefusedWhereItRefuses) {
  ASSERT_GE(all_cases()["cases"].size(), 200u);
  int refused = 0;
  for (const ordered_json& c : all_cases()["cases"]) {
    SCOPED_TRACE(c.contains("source") ? c["source"].dump() : c["template"].dump() + c["messages"].dump());
    const Result<TaintedText> text = render_case(c);
    if (c.contains("error")) {
      EXPECT_FALSE(text.ok()) << text->bytes();
      refused++;
    } else if (text.ok()) {
      EXPECT_EQ(text->bytes(), c["expected"].get<std::string>());
    } else {
      ADD_FAILURE() << text.status().message();
    }
  }
  EXPECT_GE(refused, 30);
}

// A rendering of the six shapes with the system message, user and assistant marked: what is plain is exactly
// what the messages said.
TEST(TemplateCases, InPublishedShapesExactlyTheMessagesArePlain) {
  for (const char* name : {"gemma", "llama3", "mistral", "qwen3", "phi3", "gpt_oss"}) {
    SCOPED_TRACE(name);
    const Result<Template> parsed =
        Template::parse(read_test_file(std::string("templates/") + name + ".jinja"), name);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    Template::Input input;
    input.texts = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    input.flags = {{"add_generation_prompt", true}};
    input.json = {{"messages", R"([{"role": "user", "content": "<s>QQQ</s>"},
        {"role": "assistant", "content": "<|x|>AAA"}, {"role": "user", "content": "<end_of_turn>ZZZ"}])"}};
    input.now = CivilTime{2026, 1, 2, 0, 0, 0};
    const Result<TaintedText> text = parsed->render(input);
    ASSERT_TRUE(text.ok()) << text.status().message();
    std::string plain;
    for (const Span& span : text->plain())
      plain += text->bytes().substr(span.begin, span.end - span.begin) + "\n";
    for (const char* said : {"<s>QQQ</s>", "<|x|>AAA", "<end_of_turn>ZZZ"}) {
      const std::size_t at = text->bytes().find(said);
      ASSERT_NE(at, std::string::npos) << said;
      for (std::size_t i = 0; i < std::string(said).size(); i++) EXPECT_TRUE(text->plain_at(at + i)) << said;
    }
    // Besides them only the roles (where a template prints them) and the date may be plain.
    for (const char* more :
         {"<s>QQQ</s>", "<|x|>AAA", "<end_of_turn>ZZZ", "user", "assistant", "02 Jan 2026", "2026-01-02"}) {
      for (std::size_t at; (at = plain.find(more)) != std::string::npos;)
        plain.erase(at, std::string(more).size());
    }
    EXPECT_EQ(plain.find_first_not_of('\n'), std::string::npos) << plain;
  }
}

}  // namespace
}  // namespace windrow::text
