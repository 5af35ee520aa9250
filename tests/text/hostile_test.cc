// Malformed tokenizer.json files and what each is refused with; hostile texts and ids.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "text/tokenizer_data.h"

namespace windrow {
namespace {

const std::string kFolder = std::string(WINDROW_TEST_DATA) + "/hostile/tokenizer/";

// How a file fails: when it is read, else on a text of 4000 `a` (its expression or its replacement explodes).
Status failure_of(const std::string& file) {
  const Result<Tokenizer> tokenizer = Tokenizer::load(kFolder + file);
  if (!tokenizer.ok()) return tokenizer.status();
  return tokenizer->encode(std::string(4000, 'a')).status();
}

TEST(HostileTokenizer, EveryMalformedFileIsRefusedWithItsMessage) {
  const nlohmann::json manifest = read_test_json("hostile/tokenizer/manifest.json");
  EXPECT_GE(manifest.size(), 80u);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string file = entry.path().filename();
    if (file == "manifest.json") continue;
    files++;
    const Status status = failure_of(file);
    const std::string got = fmt::format("{}: {}", status_code_name(status.code()), status.message());
    EXPECT_EQ(got, manifest.value(file, "no entry in the manifest"));
  }
  EXPECT_EQ(files, manifest.size());
}

TEST(HostileTokenizer, AFileThatIsNoFileIsRefused) {
  EXPECT_EQ(Tokenizer::load("/no/such/tokenizer.json").status().message(),
            "/no/such/tokenizer.json: No such file or directory");
  const Status folder = Tokenizer::load(WINDROW_TEST_DATA).status();
  EXPECT_EQ(folder.code(), StatusCode::kIo);
  EXPECT_EQ(folder.message(), std::string(WINDROW_TEST_DATA) + ": not a regular file");
  EXPECT_EQ(Tokenizer::load("/dev/zero").status().code(), StatusCode::kIo);
}

TEST(HostileText, TextThatIsNotUtf8IsRefusedWithTheOffsetOfTheFirstBadByte) {
  const std::pair<std::string, int> cases[] = {{"\x80", 0},
                                               {"a\xC0\xAF", 1},
                                               {"ab\xC3", 2},
                                               {"\xC3\xA9\xE2\x82", 2},
                                               {"\xED\xA0\x80", 0},
                                               {"\xF4\x90\x80\x80", 0},
                                               {"ok\xF8\x88\x80\x80", 2},
                                               {"\xE0\x80\x80", 0},
                                               {"abc\xFE", 3},
                                               {"<bos>\xFF", 5}};
  for (const char* style : {"gemma-style", "llama3-style"}) {
    const Tokenizer tokenizer = load_test_tokenizer(style);
    for (const auto& [text, at] : cases) {
      const Status status = tokenizer.encode(text).status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(status.message(), fmt::format("text is not UTF-8 at byte {}", at));
    }
  }
}

TEST(HostileText, NulBytesAreText) {
  for (const char* style : {"gemma-style", "llama3-style"}) {
    const Tokenizer tokenizer = load_test_tokenizer(style);
    const std::string text("a\0\0b\0", 5);
    EXPECT_EQ(*tokenizer.decode(*tokenizer.encode(text)), text);
  }
}

TEST(HostileText, TextAboveTheLimitIsRefused) {
  const Tokenizer tokenizer = load_test_tokenizer("gemma-style");
  const std::string text((std::size_t{16} << 20) + 1, 'a');
  EXPECT_EQ(tokenizer.encode(text).status().message(), "text of 16777217 bytes, the limit is 16777216");
}

TEST(HostileIds, AnIdOutsideTheVocabularyIsRefusedAndChangesNothing) {
  const Tokenizer tokenizer = load_test_tokenizer("gemma-style");
  for (const std::int32_t id : {-1, 2048, INT32_MAX, INT32_MIN}) {
    const std::vector<std::int32_t> ids = {626, id};
    const Status status = tokenizer.decode(ids).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), fmt::format("token id {} is outside the vocabulary of 2048", id));
    Tokenizer::Decoder decoder(tokenizer);
    const std::string before = *decoder.push(626);
    EXPECT_EQ(decoder.push(id).status().message(), status.message());
    EXPECT_EQ(before + *decoder.push(1046) + decoder.finish(),
              *tokenizer.decode(std::vector<std::int32_t>{626, 1046}));
    EXPECT_FALSE(tokenizer.token_of(id).has_value());
    EXPECT_FALSE(tokenizer.is_special(id));
  }
}

TEST(HostileIds, AHoleInTheIdsIsLegalAndDecodingItIsRefused) {
  const auto tokenizer =
      Tokenizer::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 9}, "merges": []}})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->vocab_size(), 10);
  EXPECT_EQ(*tokenizer->encode("ab"), (std::vector<std::int32_t>{0, 9}));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{4}).status().message(),
            "token id 4 stands for nothing");
}

}  // namespace
}  // namespace windrow
