// Prompt-cache files that lie: every change of a name, a word or a shape is refused or harmless, never a
// crash.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "io/safetensors.h"
#include "support/temp_folder.h"
#include "windrow/prompt_cache.h"

namespace windrow {
namespace {

// A small sound file's parts, to be changed.
struct Parts {
  std::map<std::string, std::string> metadata;
  std::vector<TensorView> tensors;
  std::vector<std::byte> zeros = std::vector<std::byte>(1 << 16);

  TensorView tensor(const char* name, DType dtype, std::vector<std::size_t> shape) {
    std::size_t n = dtype_size(dtype);
    for (const std::size_t d : shape) n *= d;
    return {name, dtype, std::move(shape), std::span<const std::byte>(zeros).first(n)};
  }
  std::string error() const {
    const TempFolder folder;
    const std::string path = folder.path("x.safetensors");
    const Status written = write_safetensors(path, tensors, metadata);
    if (!written.ok()) return "not written: " + written.message();
    Result<MlxPromptCache> file = MlxPromptCache::open(path);
    if (!file.ok()) return file.status().message().substr(path.size());
    Result<StatePlan> plan = file->plan({.rows = 4, .tokens = 64, .step_tokens = 16});
    if (!plan.ok()) return "plan" + plan.status().message().substr(path.size());
    Result<std::vector<RowRecords>> rows = file->records(*plan);
    return rows.ok() ? "" : "records" + rows.status().message().substr(path.size());
  }
};

Parts rotating() {
  Parts p;
  p.metadata = {{"0.0.0", "2"}, {"0.0.1", "8"}, {"0.0.2", "6"}, {"0.0.3", "6"}, {"2.0", "RotatingKVCache"}};
  p.tensors = {p.tensor("0.0", DType::kF16, {1, 2, 6, 32}), p.tensor("0.1", DType::kF16, {1, 2, 6, 32})};
  return p;
}
Parts quantized() {
  Parts p;
  p.metadata = {{"0.0.0", "4"}, {"0.0.1", "32"}, {"0.0.2", "4"}, {"2.0", "QuantizedKVCache"}};
  for (const char* side : {"0.0", "0.1"}) {
    p.tensors.push_back(p.tensor(side, DType::kU32, {1, 1, 4, 8}));
    p.tensors.back().name += ".0";
    for (const char* part : {".1", ".2"}) {
      p.tensors.push_back(p.tensor(side, DType::kF16, {1, 1, 4, 2}));
      p.tensors.back().name += part;
    }
  }
  return p;
}

TEST(HostilePromptCache, TheSoundFilesAreSound) {
  EXPECT_EQ(rotating().error(), "");
  EXPECT_EQ(quantized().error(), "");
}

TEST(HostilePromptCache, WordsOfTheMetadataAreChecked) {
  const auto with = [](const std::string& key, const std::string& value) {
    Parts p = rotating();
    p.metadata[key] = value;
    return p.error();
  };
  EXPECT_EQ(with("0.0.0", "-1"), ": cache 0: state 0 is \"-1\", expected a number from 0 on");
  EXPECT_EQ(with("0.0.1", "8x"), ": cache 0: state 1 is \"8x\", expected a number from 0 on");
  EXPECT_EQ(with("0.0.1", "99999999999"),
            ": cache 0: state 1 is \"99999999999\", expected a number from 0 on");
  EXPECT_EQ(with("0.0.1", "2"), ": cache 0: keep 2 of a max_size of 2");
  EXPECT_EQ(with("0.0.5", "1"), "");  // beyond a gap: not of the state
  EXPECT_NE(with("0.0.4", "1"), "");  // five words, as older versions wrote: offset 6 and idx 1
  EXPECT_EQ(with("2.1", "KVCache"), ": no tensor \"1.0\"");
  EXPECT_EQ(with("2.0", "CacheList"), ": cache 0: CacheList names no cache");
  EXPECT_EQ(with("2.0", "KVCache"), ": cache 0: KVCache with a state of 4 words");
  EXPECT_NE(with("0.0.2", "3"), "");  // idx 6 of an offset of 3
  EXPECT_NE(with("0.0.3", "9"), "");
}

TEST(HostilePromptCache, AFileWithoutCachesIsRefused) {
  Parts p = rotating();
  p.metadata.clear();
  EXPECT_EQ(p.error(), ": no cache: the metadata has no \"2.0\"");
}

TEST(HostilePromptCache, ShapesAndTypesAreChecked) {
  Parts p = rotating();
  p.tensors[0] = p.tensor("0.0", DType::kF16, {1, 6, 32});
  EXPECT_EQ(p.error(), ": tensor \"0.0\" has 3 dimensions, expected 4");
  p = rotating();
  p.tensors[0] = p.tensor("0.0", DType::kI32, {1, 2, 6, 32});
  EXPECT_EQ(p.error(), ": tensor \"0.0\" is I32, expected floats");
  p = rotating();
  p.tensors[1] = p.tensor("0.1", DType::kF16, {1, 2, 5, 32});
  EXPECT_EQ(p.error(), ": cache 0: keys of 1 rows, 2 heads, 6 positions, values of 1, 2, 5");
  p = rotating();
  p.tensors[0] = p.tensor("0.0", DType::kF16, {0, 2, 6, 32});
  p.tensors[1] = p.tensor("0.1", DType::kF16, {0, 2, 6, 32});
  EXPECT_EQ(p.error(), ": cache 0: an array of 0 rows, 2 heads and dims 32 and 32");
  p = quantized();
  p.tensors[1] = p.tensor("0.0.1", DType::kF16, {1, 1, 4, 3});
  EXPECT_EQ(p.error(),
            ": tensors \"0.0\".0 to .2: shapes [1, 1, 4, 8], [1, 1, 4, 3] and [1, 1, 4, 2] do not agree");
  p = quantized();
  p.metadata["0.0.2"] = "7";
  EXPECT_EQ(p.error(), ": cache 0: 7 bits in groups of 32");
  p = quantized();
  p.metadata["0.0.0"] = "5";  // more than the arrays have
  EXPECT_NE(p.error(), "");
}

TEST(HostilePromptCache, OddHeadDimsAreThePlansToRefuse) {
  Parts p = rotating();
  for (TensorView& t : p.tensors) t = p.tensor(t.name.c_str(), DType::kF16, {1, 2, 6, 20});
  EXPECT_EQ(p.error().substr(0, 4), "plan");
}

// Each byte of the header changed to a few others: an error or a file, nothing else.
TEST(HostilePromptCache, AnyByteOfTheHeaderMayBeWrong) {
  const TempFolder folder;
  const std::string path = folder.path("x.safetensors");
  for (const Parts& p : {rotating(), quantized()}) {
    ASSERT_TRUE(write_safetensors(path, p.tensors, p.metadata).ok());
    const std::string sound = read_whole_file(path);
    std::uint64_t header;
    std::memcpy(&header, sound.data(), 8);
    int refused = 0;
    for (std::size_t i = 0; i < 8 + header; i++) {
      for (const char to : {'0', '9', '"', '\0'}) {
        std::string bytes = sound;
        bytes[i] = to;
        Result<MlxPromptCache> file = MlxPromptCache::parse(std::as_bytes(std::span(bytes)), "x");
        if (!file.ok()) {
          refused++;
          continue;
        }
        Result<StatePlan> plan = file->plan({.rows = 4, .tokens = 64, .step_tokens = 16});
        if (plan.ok()) (void)file->records(*plan);
      }
    }
    EXPECT_GT(refused, 500);
  }
}

}  // namespace
}  // namespace windrow
