#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "support/temp_folder.h"

namespace windrow {
namespace {

constexpr std::array<std::byte, 64> kZeros{};

TensorView tensor(const std::string& name, std::vector<std::size_t> shape, DType dtype = DType::kF32) {
  std::size_t bytes = dtype_size(dtype);
  for (const std::size_t dim : shape) bytes *= dim;
  return {.name = name, .dtype = dtype, .shape = std::move(shape), .bytes = std::span(kZeros).first(bytes)};
}

void write_shard(const std::string& path, const std::vector<TensorView>& tensors) {
  const Status status = write_safetensors(path, tensors);
  ASSERT_TRUE(status.ok()) << status.message();
}

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTwoShards =
    R"({"metadata": {"total_size": 1}, "weight_map": {"a": "1.st", "b": "2.st"}})";

TEST(ModelTensors, ReadsASingleFile) {
  const Result<ModelTensors> model = ModelTensors::open(WINDROW_TEST_DATA "/hf/gemma3");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<std::size_t> shape = {320, 64};
  EXPECT_TRUE(model->get_float("model.embed_tokens.weight", shape).ok());
  EXPECT_FALSE(model->tensors().empty());
}

TEST(ModelTensors, ReadsShardsAndIgnoresWhatTheIndexDoesNotName) {
  const TempFolder folder;
  write_shard(folder.path("1.st"), {tensor("a", {2}), tensor("rotary.inv_freq", {3})});
  write_shard(folder.path("2.st"), {tensor("b", {})});
  folder.write(kIndex, kTwoShards);
  const Result<ModelTensors> model = ModelTensors::open(folder.path());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->tensors().size(), 2u);
  EXPECT_EQ(model->find("a")->shape, (std::vector<std::size_t>{2}));
  EXPECT_TRUE(model->find("b")->shape.empty());
  EXPECT_EQ(model->find("rotary.inv_freq"), nullptr);
}

// snapshots/HASH/FILE -> ../../blobs/HASH
TEST(ModelTensors, FollowsTheLinksOfAHuggingFaceCache) {
  const TempFolder cache;
  std::filesystem::create_directories(cache.path("blobs"));
  std::filesystem::create_directories(cache.path("snapshots/rev"));
  write_shard(cache.path("blobs/11"), {tensor("a", {2})});
  write_shard(cache.path("blobs/22"), {tensor("b", {2})});
  cache.write("blobs/33", kTwoShards);
  const auto link = [&](const char* name, const char* blob) {
    std::filesystem::create_symlink(std::string("../../blobs/") + blob, cache.path("snapshots/rev/") + name);
  };
  link("1.st", "11");
  link("2.st", "22");
  link(kIndex, "33");
  ASSERT_TRUE(ModelTensors::open(cache.path("snapshots/rev")).ok());

  std::filesystem::create_directories(cache.path("snapshots/single"));
  std::filesystem::create_symlink("../../blobs/11", cache.path("snapshots/single/model.safetensors"));
  const Result<ModelTensors> single = ModelTensors::open(cache.path("snapshots/single"));
  ASSERT_TRUE(single.ok()) << single.status().message();
  EXPECT_NE(single->find("a"), nullptr);
}

TEST(ModelTensors, ADanglingLinkIsNamedAndNotPassedOver) {
  const TempFolder folder;
  write_shard(folder.path("1.st"), {tensor("a", {2})});
  folder.write(kIndex, R"({"weight_map": {"a": "1.st"}})");
  std::filesystem::create_symlink("../blobs/gone", folder.path("model.safetensors"));
  EXPECT_EQ(ModelTensors::open(folder.path()).status().message(),
            folder.path("model.safetensors") + ": cannot open: No such file or directory");
}

TEST(ModelTensors, TheSingleFileGoesBeforeAnIndex) {
  const TempFolder folder;
  write_shard(folder.path("model.safetensors"), {tensor("single", {1})});
  folder.write(kIndex, "no JSON at all");
  const Result<ModelTensors> model = ModelTensors::open(folder.path());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_NE(model->find("single"), nullptr);
}

TEST(ModelTensors, AFolderThatIsNotThereIsNamed) {
  EXPECT_EQ(ModelTensors::open("/no/such/model").status().message(),
            "/no/such/model: neither model.safetensors nor model.safetensors.index.json is there");
}

TEST(ModelTensors, GetFloatSaysWhatATensorIsAndWhatWasExpected) {
  const TempFolder folder;
  const std::string path = folder.path("model.safetensors");
  write_shard(path,
              {tensor("w", {2, 3}), tensor("h", {2, 3}, DType::kBF16), tensor("q", {2, 3}, DType::kU32)});
  const Result<ModelTensors> model = ModelTensors::open(folder.path());
  ASSERT_TRUE(model.ok());
  const std::vector<std::size_t> shape = {2, 3}, transposed = {3, 2}, scalar;
  EXPECT_TRUE(model->get_float("w", shape).ok());
  EXPECT_EQ(model->get_float("h", shape)->dtype, DType::kBF16);
  EXPECT_EQ(model->get_float("w", transposed).status().message(),
            path + ": tensor \"w\" is F32 of shape [2, 3], expected F32, F16 or BF16 of shape [3, 2]");
  EXPECT_EQ(model->get_float("w", scalar).status().message(),
            path + ": tensor \"w\" is F32 of shape [2, 3], expected F32, F16 or BF16 of shape []");
  EXPECT_EQ(model->get_float("q", shape).status().message(),
            path + ": tensor \"q\" is U32 of shape [2, 3], expected F32, F16 or BF16 of shape [2, 3]");
  EXPECT_EQ(model->get_float("gone", shape).status().message(),
            path + ": tensor \"gone\" of shape [2, 3] is missing");
  EXPECT_EQ(model->get_float("q", shape).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(model->get_float("w", scalar).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace windrow
