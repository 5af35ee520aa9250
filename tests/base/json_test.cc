#include "base/json.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <string>

namespace windrow {
namespace {

Result<Json> parse(std::string_view text, JsonLimits limits = {.max_bytes = 1 << 20}) {
  return parse_json(text, "x.json", limits);
}

std::string refusal(std::string_view text, JsonLimits limits = {.max_bytes = 1 << 20}) {
  const Result<Json> json = parse(text, limits);
  return json.ok() ? "accepted" : json.status().message();
}

TEST(Json, ReadsEveryKindOfValue) {
  const Result<Json> json =
      parse(R"({"a": [1, -2, 2.5, true, null, "\u00e9\ud83d\ude00"], "b": {}, "big": 18446744073709551615})");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(json->dump(), R"({"a":[1,-2,2.5,true,null,"é😀"],"b":{},"big":18446744073709551615})");
  EXPECT_EQ(json_uint((*json)["big"]), UINT64_MAX);
  EXPECT_EQ(json_uint((*json)["a"][1]), std::nullopt);
  EXPECT_EQ(json_uint((*json)["a"][2]), std::nullopt);
}

TEST(Json, SkipsAByteOrderMark) { EXPECT_EQ(parse("\xEF\xBB\xBF[1]").value().dump(), "[1]"); }

TEST(Json, RefusalsNameTheByteAndTheReason) {
  EXPECT_EQ(refusal(""),
            "x.json: invalid JSON at byte 1: syntax error while parsing value - unexpected end of input");
  EXPECT_EQ(refusal("{\"a\":"),
            "x.json: invalid JSON at byte 6: syntax error while parsing value - unexpected end of input");
  EXPECT_EQ(refusal("[1,]"),
            "x.json: invalid JSON at byte 4: syntax error while parsing value - unexpected ']'");
  EXPECT_EQ(refusal("[1] 2"),
            "x.json: invalid JSON at byte 5: syntax error while parsing value - unexpected number literal");
  EXPECT_EQ(refusal("NaN"),
            "x.json: invalid JSON at byte 1: syntax error while parsing value - invalid literal");
  EXPECT_EQ(refusal("[1e999]"), "x.json: invalid JSON at byte 6: number overflow");
  EXPECT_EQ(refusal("{\"a\": 1, \"\\u0061\": 2}"), "x.json: duplicate key \"a\"");
}

TEST(Json, RefusesWhatIsNotUtf8) {
  for (const char* text : {"[\"\xFF\"]", "[\"\xC0\x80\"]", "[\"\xED\xA0\x80\"]", "[\"\xF4\x90\x80\x80\"]",
                           "[\"\xE2\x82\"]", "[\"\\ud800\"]", "[\"\\udc00\"]"}) {
    EXPECT_NE(refusal(text).find("x.json: invalid JSON at byte"), std::string::npos) << text;
  }
}

// nlohmann's lexer alone would take a NUL for the end of the text and accept both.
TEST(Json, ANulByteDoesNotEndTheText) {
  using namespace std::string_view_literals;
  EXPECT_EQ(refusal("[1]\0 garbage"sv), "x.json: invalid JSON at byte 4: a NUL byte");
  EXPECT_EQ(refusal("\0"sv), "x.json: invalid JSON at byte 1: a NUL byte");
}

TEST(Json, RefusesInfinityCommentsAndSingleQuotes) {
  for (const char* text : {"Infinity", "-Infinity", "[nan]", "// c\n1", "/* c */ 1", "{'a': 1}", "{a: 1}",
                           "01", "+1", "[\"a\nb\"]", "\"a", "tru", "[1 2]", "{\"a\" 1}", "{1: 2}"}) {
    EXPECT_FALSE(parse(text).ok()) << text;
  }
}

TEST(Json, DepthBytesAndValuesAreLimited) {
  const auto nest = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_TRUE(parse(nest(64)).ok());
  EXPECT_EQ(refusal(nest(65)), "x.json: JSON nested deeper than 64");
  EXPECT_EQ(refusal(std::string(1 << 19, '[')), "x.json: JSON nested deeper than 64");
  EXPECT_EQ(refusal("[1, 2]", {.max_bytes = 5}), "x.json: 6 bytes of JSON, the limit is 5");
  EXPECT_TRUE(parse("[1, 2]", {.max_bytes = 6, .max_values = 3}).ok());
  EXPECT_EQ(refusal("[1, 2]", {.max_bytes = 6, .max_values = 2}), "x.json: more than 2 JSON values");
}

TEST(Json, QuoteKeepsAMessageOnOneLine) {
  EXPECT_EQ(quote("a\"b\\c\n\x7f\xff\xc2\x9b é"), "\"a\\\"b\\\\c\\x0a\\x7f\\xff\\xc2\\x9b é\"");
  EXPECT_EQ(quote(std::string(81, 'a')), "\"" + std::string(80, 'a') + "...\"");
}

RC_GTEST_PROP(Json, AnyBytesAreParsedOrRefusedInOneLine, (const std::string& text)) {
  const Result<Json> json = parse(text);
  if (!json.ok()) {
    const Status status = json.status();
    for (const char c : status.message()) RC_ASSERT(static_cast<unsigned char>(c) >= 0x20);
  }
}

RC_GTEST_PROP(Json, WhatWasWrittenIsReadBack, (const std::map<std::string, std::vector<int>>& value)) {
  const Json json = value;
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  const Result<Json> back = parse(text);
  // Names that differ only in invalid bytes become one name when they are replaced.
  if (back.ok()) RC_ASSERT(back->dump() == Json::parse(text).dump());
}

// Reads `text` as an object and returns the message of the reader's error.
template <typename Read>
std::string reader_message(std::string_view text, Read read) {
  const Result<Json> json = parse(text);
  if (!json.ok()) return json.status().message();
  Status error;
  JsonReader reader(*json, "x.json", error);
  read(reader);
  return error.ok() ? "ok" : error.message();
}

TEST(JsonReader, ReadsMembersAndFallbacks) {
  const Result<Json> json = parse(
      R"({"i": 3, "d": 2, "b": true, "s": "t", "l": [1, 2], "n": null, "o": {"p": {"q": 7}}, "sl": ["x"]})");
  ASSERT_TRUE(json.ok());
  Status error;
  JsonReader r(*json, "x.json", error);
  EXPECT_EQ(r.require_int("i", 1, 3), 3);
  EXPECT_EQ(r.int_or("n", 9, 0, 1), 9);
  EXPECT_EQ(r.require_double("d", 0, 2), 2.0);
  EXPECT_EQ(r.double_or("x", 0.5, 0, 0), 0.5);
  EXPECT_TRUE(r.bool_or("b", false));
  EXPECT_EQ(r.require_string("s"), "t");
  EXPECT_EQ(r.string_or("n", "u"), "u");
  EXPECT_EQ(r.int_list("l", 0, 9), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(r.int_list("i", 0, 9), (std::vector<std::int32_t>{3}));
  EXPECT_TRUE(r.int_list("x", 0, 9).empty());
  EXPECT_EQ(r.double_list("l", 0, 9), (std::vector<double>{1, 2}));
  EXPECT_TRUE(r.double_list("x", 0, 9).empty());
  EXPECT_EQ(r.string_list("sl"), (std::vector<std::string>{"x"}));
  EXPECT_EQ(r.object("o").object("p").require_int("q", 0, 9), 7);
  EXPECT_EQ(r.object("absent").int_or("q", 5, 0, 9), 5);
  const Json other = {{"q", 8}};
  EXPECT_EQ(r.object("o").with(other).require_int("q", 0, 9), 8);
  EXPECT_TRUE(r.has("i") && !r.has("n") && !r.has("x"));
  EXPECT_TRUE(error.ok()) << error.message();
}

TEST(JsonReader, MessagesNameFileKeyValueAndRange) {
  const auto message = [](std::string_view text, auto read) { return reader_message(text, read); };
  const auto read_int = [](JsonReader& r) { r.require_int("k", 1, 10); };
  EXPECT_EQ(message(R"({"k": -3})", read_int), R"(x.json: "k" is -3, expected 1 to 10)");
  EXPECT_EQ(message(R"({"k": 18446744073709551615})", read_int),
            R"(x.json: "k" is 18446744073709551615, expected 1 to 10)");
  EXPECT_EQ(message(R"({"k": -9223372036854775808})", read_int),
            R"(x.json: "k" is -9223372036854775808, expected 1 to 10)");
  EXPECT_EQ(message(R"({"k": 3.0})", read_int), R"(x.json: "k" is 3.0, expected an integer from 1 to 10)");
  EXPECT_EQ(message(R"({"k": 1e300})", read_int),
            R"(x.json: "k" is 1e+300, expected an integer from 1 to 10)");
  EXPECT_EQ(message(R"({"k": "3"})", read_int), R"(x.json: "k" is "3", expected an integer from 1 to 10)");
  EXPECT_EQ(message(R"({"k": null})", read_int), R"(x.json: "k" is missing)");
  EXPECT_EQ(message(R"({})", read_int), R"(x.json: "k" is missing)");
  EXPECT_EQ(message(R"([])", read_int), R"(x.json: the file is an array of 0, expected an object)");
  EXPECT_EQ(message(R"({"k": 2.5})", [](JsonReader& r) { r.require_double("k", 0, 1); }),
            R"(x.json: "k" is 2.5, expected 0 to 1)");
  EXPECT_EQ(message(R"({"k": true})", [](JsonReader& r) { r.double_or("k", 1, 0, 1); }),
            R"(x.json: "k" is true, expected a number from 0 to 1)");
  EXPECT_EQ(message(R"({"k": 0})", [](JsonReader& r) { r.bool_or("k", false); }),
            R"(x.json: "k" is 0, expected true or false)");
  EXPECT_EQ(message(R"({"k": {}})", [](JsonReader& r) { r.require_string("k"); }),
            R"(x.json: "k" is an object, expected a string)");
  EXPECT_EQ(message(R"({"k": [1, 11]})", [](JsonReader& r) { r.int_list("k", 1, 10); }),
            R"(x.json: "k" is 11, expected 1 to 10)");
  EXPECT_EQ(message(R"({"k": [1, -0.5]})", [](JsonReader& r) { r.double_list("k", 0, 10); }),
            R"(x.json: "k" is -0.5, expected 0 to 10)");
  EXPECT_EQ(message(R"({"k": 0.5})", [](JsonReader& r) { r.double_list("k", 0, 10); }),
            R"(x.json: "k" is 0.5, expected an array of numbers)");
  EXPECT_EQ(message(R"({"k": "v"})", [](JsonReader& r) { r.string_list("k"); }),
            R"(x.json: "k" is "v", expected an array of strings)");
  EXPECT_EQ(message(R"({"k": [1]})", [](JsonReader& r) { r.string_list("k"); }),
            R"(x.json: "k" holds 1, expected strings)");
  EXPECT_EQ(message(R"({"o": {"k": -1}})", [](JsonReader& r) { r.object("o").require_int("k", 0, 1); }),
            R"(x.json: "o.k" is -1, expected 0 to 1)");
  EXPECT_EQ(message(R"({"o": [1]})", [](JsonReader& r) { r.object("o").int_or("k", 0, 0, 1); }),
            R"(x.json: "o" is an array of 1, expected an object)");
  const Json other = {{"k", -1}};
  EXPECT_EQ(message(R"({"o": {}})", [&](JsonReader& r) { r.object("o").with(other).require_int("k", 0, 1); }),
            R"(x.json: "o.k" is -1, expected 0 to 1)");
}

TEST(JsonReader, TheFirstErrorStays) {
  EXPECT_EQ(reader_message(R"({"a": 0, "b": 0})",
                           [](JsonReader& r) {
                             r.require_int("a", 1, 2);
                             r.require_int("b", 1, 2);
                             r.fail("c", "is bad");
                           }),
            R"(x.json: "a" is 0, expected 1 to 2)");
}

}  // namespace
}  // namespace windrow
