// Streamed tensors: read back as written, complete or not at all.
#include "io/tensor_stream.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "io/safetensors.h"
#include "support/temp_folder.h"

namespace windrow {
namespace {

TEST(TensorStream, PiecesMakeTheFileThatTheReaderReads) {
  const TempFolder folder;
  const std::string path = folder.path("t.safetensors");
  const float rows[] = {1, 2, 3, 4, 5, 6};
  {
    Result<TensorStream> stream = TensorStream::create(path, "a \"b\"", DType::kF32, {3, 2});
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    for (std::size_t i = 0; i < 6; i += 2) {
      EXPECT_TRUE(stream->append(std::as_bytes(std::span(rows).subspan(i, 2))).ok());
    }
    EXPECT_FALSE(std::filesystem::exists(path)) << "it appears when it is complete";
    EXPECT_TRUE(stream->finish().ok());
  }
  EXPECT_EQ(folder.entries(), 1);
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const TensorView* t = file.value().find("a \"b\"");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->shape, (std::vector<std::size_t>{3, 2}));
  ASSERT_EQ(t->bytes.size(), sizeof rows);
  EXPECT_EQ(std::memcmp(t->bytes.data(), rows, sizeof rows), 0);
}

TEST(TensorStream, AnIncompleteTensorLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  const std::string path = folder.write("t", "old");
  const std::byte four[4] = {};
  {
    Result<TensorStream> stream = TensorStream::create(path, "x", DType::kF32, {2});
    ASSERT_TRUE(stream.ok());
    EXPECT_TRUE(stream->append(four).ok());
    EXPECT_EQ(stream->finish().message(), path + ": 4 bytes of 8 were written");
  }
  EXPECT_EQ(read_whole_file(path), "old");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(TensorStream, MoreBytesThanTheShapeHoldsAreRefused) {
  const TempFolder folder;
  Result<TensorStream> stream = TensorStream::create(folder.path("t"), "x", DType::kU8, {3});
  ASSERT_TRUE(stream.ok());
  const std::byte four[4] = {};
  EXPECT_EQ(stream->append(four).message(), folder.path("t") + ": 4 bytes appended to 0 of 3");
}

TEST(TensorStream, ShapesThatOverflowAndReservedNamesAreRefused) {
  const TempFolder folder;
  const std::size_t huge = std::numeric_limits<std::size_t>::max() / 2;
  EXPECT_EQ(TensorStream::create(folder.path("t"), "x", DType::kF32, {huge, 3}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(TensorStream::create(folder.path("t"), "__metadata__", DType::kF32, {1}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(TensorStream::create(folder.path("t"), "\xff", DType::kF32, {1}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(folder.entries(), 0);
}

TEST(TensorStream, SeveralTensorsAndMetadataStandInTheOrderGiven) {
  const TempFolder folder;
  const std::string path = folder.path("t.safetensors");
  const TensorInfo infos[] = {{"z", DType::kU8, {3}}, {"a", DType::kU16, {2, 1}}, {"none", DType::kF32, {0}}};
  Result<TensorStream> stream = TensorStream::create(path, infos, {{"format", "mlx"}});
  ASSERT_TRUE(stream.ok()) << stream.status().message();
  const std::uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7};
  for (const std::uint8_t& b : bytes) EXPECT_TRUE(stream->append(std::as_bytes(std::span(&b, 1))).ok());
  ASSERT_TRUE(stream->finish().ok());
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "mlx"}}));
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(std::memcmp(file.find("z")->bytes.data(), bytes, 3), 0);
  EXPECT_EQ(std::memcmp(file.find("a")->bytes.data(), bytes + 3, 4), 0);
  const TensorInfo twice[] = {{"z", DType::kU8, {3}}, {"z", DType::kU8, {3}}};
  EXPECT_EQ(TensorStream::create(path, twice).status().message(),
            path + ": tensor \"z\": the name is given twice");
}

class FullDisk : public FileOps {
 public:
  int writes = 0;
  ssize_t write(int fd, const void* data, std::size_t size) override {
    if (++writes <= 1) return FileOps::write(fd, data, size);  // the header fits
    errno = ENOSPC;
    return -1;
  }
};

TEST(TensorStream, AFullDiskEndsTheStreamOnce) {
  const TempFolder folder;
  FullDisk disk;
  Result<TensorStream> stream = TensorStream::create(folder.path("t"), "x", DType::kU8, {8}, disk);
  ASSERT_TRUE(stream.ok());
  const std::byte four[4] = {};
  EXPECT_EQ(stream->append(four).message(), folder.path("t") + ": cannot write: No space left on device");
  EXPECT_EQ(stream->append(four).code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(stream->finish().ok());
  EXPECT_EQ(folder.entries(), 0);
}

}  // namespace
}  // namespace windrow
