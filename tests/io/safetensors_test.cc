#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "support/temp_folder.h"

namespace windrow {
namespace {

// A file of `header` and `data`, as bytes.
std::string safetensors_text(const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; i++) text[i] = static_cast<char>(header.size() >> (8 * i));
  return text + header + data;
}

Result<SafetensorsFile> parse(std::string_view text) {
  return SafetensorsFile::parse(std::as_bytes(std::span(text)), "x.safetensors");
}

std::string text_of(const TensorView& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

TEST(Safetensors, ReadsTensorsInFileOrderWhateverTheJsonOrder) {
  const std::string text = safetensors_text(
      R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]},"z":{"data_offsets":[0,2],"shape":[],"dtype":"F16"},)"
      R"("a":{"dtype":"BOOL","shape":[1,1],"data_offsets":[5,6]},"__metadata__":{"format":"pt"}}  )",
      "zzbbba");
  const Result<SafetensorsFile> file = parse(text);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->tensors()[0].name, "z");
  EXPECT_EQ(file->tensors()[0].dtype, DType::kF16);
  EXPECT_TRUE(file->tensors()[0].shape.empty());
  EXPECT_EQ(file->tensors()[0].elements(), 1u);
  EXPECT_EQ(text_of(file->tensors()[1]), "bbb");
  EXPECT_EQ(file->find("a"), &file->tensors()[2]);
  EXPECT_EQ(file->find("a")->shape, (std::vector<std::size_t>{1, 1}));
  EXPECT_EQ(file->find("c"), nullptr);
  EXPECT_EQ(file->metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(Safetensors, AFileOfNoTensorsIsLegal) {
  const std::string text = safetensors_text("{}", "");
  ASSERT_TRUE(parse(text).ok());
  EXPECT_TRUE(parse(text)->tensors().empty());
  EXPECT_TRUE(parse(safetensors_text(R"({"__metadata__":null})", "")).ok());
}

TEST(Safetensors, TensorsOfNoElementsMayStandAnywhereBetweenOthers) {
  const std::string text = safetensors_text(
      R"({"s":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
      R"("u":{"dtype":"F32","shape":[3,0,2],"data_offsets":[1,1]},"v":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
      "t");
  const Result<SafetensorsFile> file = parse(text);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->find("u")->elements(), 0u);
  EXPECT_EQ(text_of(*file->find("t")), "t");
}

TEST(Safetensors, NamesAreBytesOfAnyText) {
  const std::string text = safetensors_text(
      R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u00e9\u0000":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      "ab");
  const Result<SafetensorsFile> file = parse(text);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_NE(file->find(""), nullptr);
  EXPECT_NE(file->find(std::string_view("\xC3\xA9\0", 3)), nullptr);
}

TEST(Safetensors, EveryCutOfAFileIsRefused) {
  const std::string text = safetensors_text(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})",
      "aaaabbb");
  ASSERT_TRUE(parse(text).ok());
  for (std::size_t n = 0; n < text.size(); n++) EXPECT_FALSE(parse(text.substr(0, n)).ok()) << n;
  EXPECT_FALSE(parse(text + "x").ok());
}

TEST(Safetensors, AFlippedBitIsRefusedOrGivesOtherTensorsOfTheSameBytes) {
  const std::string text =
      safetensors_text(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "aaaa");
  const std::size_t data = text.size() - 4;
  for (std::size_t bit = 0; bit < 8 * data; bit++) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const Result<SafetensorsFile> file = parse(flipped);
    if (!file.ok()) continue;
    ASSERT_EQ(file->tensors().size(), 1u);
    EXPECT_EQ(text_of(file->tensors()[0]), "aaaa");
  }
}

TEST(Safetensors, TheSmallestHeadersOfAFileAreChecked) {
  EXPECT_EQ(parse("").status().message(), "x.safetensors: 0 bytes, a safetensors file has at least 8");
  EXPECT_EQ(parse(safetensors_text("{} x", "")).status().message(),
            "x.safetensors: invalid JSON at byte 4: syntax error while parsing value - invalid literal");
}

TEST(Safetensors, ReadsTheStorytellerAndTheTinyGemma) {
  const Result<SafetensorsFile> model =
      SafetensorsFile::open(WINDROW_MODELS "/storyteller/model.safetensors");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const TensorView* embedding = model->find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->dtype, DType::kBF16);
  EXPECT_EQ(embedding->shape, (std::vector<std::size_t>{2048, 256}));

  const Result<SafetensorsFile> golden =
      SafetensorsFile::open(WINDROW_TEST_DATA "/hf/gemma3/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  EXPECT_EQ(golden->find("prompt_logits")->shape, (std::vector<std::size_t>{48, 320}));
}

// MLX writes "__metadata__": null, orders JSON by name and data by use, and does not pad the header.
TEST(Safetensors, ReadsEveryFileThatMlxWrote) {
  int files = 0;
  std::set<std::size_t> phases;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(WINDROW_TEST_DATA "/mlx")) {
    if (entry.path().extension() != ".safetensors") continue;
    const Result<SafetensorsFile> file = SafetensorsFile::open(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_FALSE(file->tensors().empty());
    phases.insert(reinterpret_cast<std::uintptr_t>(file->tensors()[0].bytes.data()) % 8);
    files++;
  }
  EXPECT_GE(files, 27);
  EXPECT_GT(phases.size(), 1u) << "no file with unaligned data among them";
}

TEST(Safetensors, ACopyKeepsTheMappingAlive) {
  const TempFolder folder;
  TensorView tensor{
      .name = "a", .dtype = DType::kU8, .shape = {2}, .bytes = std::as_bytes(std::span("xy", 2))};
  ASSERT_TRUE(write_safetensors(folder.path("f"), {&tensor, 1}).ok());
  std::optional<SafetensorsFile> copy;
  {
    Result<SafetensorsFile> file = SafetensorsFile::open(folder.path("f"));
    ASSERT_TRUE(file.ok());
    copy = *file;
  }
  EXPECT_EQ(text_of(*copy->find("a")), "xy");
}

TEST(WriteSafetensors, KeepsTheOrderAndAlignsTheData) {
  const TempFolder folder;
  const std::string data = "0123456789abcdef";
  const auto bytes = std::as_bytes(std::span(data));
  const std::vector<TensorView> tensors = {
      {.name = "z", .dtype = DType::kF32, .shape = {2}, .bytes = bytes.first(8)},
      {.name = "a \"quoted\" \n name", .dtype = DType::kU8, .shape = {0, 5}, .bytes = {}},
      {.name = "b", .dtype = DType::kI64, .shape = {}, .bytes = bytes.last(8)}};
  ASSERT_TRUE(write_safetensors(folder.path("f"), tensors, {{"format", "pt"}, {"by", "windrow"}}).ok());
  const Result<SafetensorsFile> file = SafetensorsFile::open(folder.path("f"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->tensors()[0].name, "z");
  EXPECT_EQ(file->tensors()[2].name, "b");
  EXPECT_EQ(text_of(file->tensors()[2]), "89abcdef");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file->tensors()[0].bytes.data()) % 8, 0u);
  EXPECT_EQ(file->metadata().at("by"), "windrow");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(WriteSafetensors, RefusesTensorsThatDoNotAgreeWithThemselves) {
  const TempFolder folder;
  const std::string path = folder.path("f");
  const auto bytes = std::as_bytes(std::span("12345678", 8));
  const auto message = [&](std::vector<TensorView> tensors,
                           const std::map<std::string, std::string>& metadata = {}) {
    const Status status = write_safetensors(path, tensors, metadata);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(folder.entries(), 0);
    return status.message();
  };
  const TensorView good{.name = "a", .dtype = DType::kF32, .shape = {2}, .bytes = bytes};
  TensorView bad = good;
  bad.shape = {3};
  EXPECT_EQ(message({bad}), path + ": tensor \"a\": 8 bytes for shape [3] of F32, expected 12");
  bad.shape = {SIZE_MAX, 2};
  EXPECT_EQ(message({bad}), path + ": tensor \"a\": shape [18446744073709551615, 2] of F32 overflows");
  bad.shape = std::vector<std::size_t>(33, 1);
  EXPECT_EQ(message({bad}), path + ": tensor \"a\": 33 dimensions, the limit is 32");
  EXPECT_EQ(message({good, good}), path + ": tensor \"a\": the name is given twice");
  bad = good;
  bad.name = "__metadata__";
  EXPECT_EQ(message({bad}), path + ": tensor \"__metadata__\": the name is reserved");
  bad.name = "\xff";
  EXPECT_EQ(message({bad}), path + ": a name or the metadata is not valid UTF-8");
  EXPECT_EQ(message({good}, {{"k", "\xc0\x80"}}), path + ": a name or the metadata is not valid UTF-8");
}

class FullDisk : public FileOps {
  ssize_t write(int, const void*, std::size_t) override {
    errno = ENOSPC;
    return -1;
  }
};

TEST(WriteSafetensors, AFullDiskLeavesTheOldFile) {
  const TempFolder folder;
  const std::string path = folder.write("f", "old");
  FullDisk disk;
  const Status status = write_safetensors(path, {}, {}, disk);
  EXPECT_EQ(status.message(), path + ": cannot write: No space left on device");
  EXPECT_EQ(read_whole_file(path), "old");
  EXPECT_EQ(folder.entries(), 1);
}

RC_GTEST_PROP(WriteSafetensors, WhatIsWrittenIsReadBack, ()) {
  const auto shapes = *rc::gen::container<std::vector<std::vector<std::size_t>>>(
      rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 5)).as("shape"));
  std::vector<std::string> data;
  std::vector<TensorView> tensors;
  data.reserve(shapes.size());
  for (std::size_t i = 0; i < shapes.size(); i++) {
    if (shapes[i].size() > 6) continue;
    const auto dtype = static_cast<DType>(*rc::gen::inRange(0, 13));
    std::size_t bytes = dtype_size(dtype);
    for (const std::size_t dim : shapes[i]) bytes *= dim;
    data.emplace_back(bytes, static_cast<char>('a' + i % 26));
    tensors.push_back({"t" + std::to_string(i), dtype, shapes[i], std::as_bytes(std::span(data.back()))});
  }
  const TempFolder folder;
  RC_ASSERT(write_safetensors(folder.path("f"), tensors).ok());
  const Result<SafetensorsFile> file = SafetensorsFile::open(folder.path("f"));
  RC_ASSERT(file.ok());
  RC_ASSERT(file->tensors().size() == tensors.size());
  for (const TensorView& tensor : tensors) {
    const TensorView* back = file->find(tensor.name);
    RC_ASSERT(back != nullptr);
    RC_ASSERT(back->dtype == tensor.dtype);
    RC_ASSERT(back->shape == tensor.shape);
    RC_ASSERT(text_of(*back) == text_of(tensor));
  }
}

}  // namespace
}  // namespace windrow
