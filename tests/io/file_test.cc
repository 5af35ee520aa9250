#include "io/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "support/temp_folder.h"

namespace windrow {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Status write(const std::string& path, std::vector<std::string_view> texts, FileOps& ops = system_file_ops()) {
  std::vector<std::span<const std::byte>> parts;
  for (const std::string_view text : texts) parts.push_back(bytes_of(text));
  return write_atomically(path, parts, ops);
}

TEST(MappedFile, HoldsTheBytesAfterTheNameIsGone) {
  const TempFolder folder;
  const std::string path = folder.write("f", "hello");
  Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  std::filesystem::remove(path);
  MappedFile moved = std::move(*file);
  ASSERT_EQ(moved.bytes().size(), 5u);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), "hello", 5), 0);
}

TEST(MappedFile, AReplacedFileKeepsItsOldBytes) {
  const TempFolder folder;
  const std::string path = folder.write("f", "old bytes");
  const Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(write(path, {"new"}).ok());
  ASSERT_EQ(file->bytes().size(), 9u);
  EXPECT_EQ(std::memcmp(file->bytes().data(), "old bytes", 9), 0);
}

// Both readers open in the same way; each refusal is asked of both.
TEST(Files, WhatIsNoRegularNonEmptyFileIsRefused) {
  const TempFolder folder;
  folder.write("empty", "");
  ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", folder.path("dangling"));
  std::filesystem::create_symlink("loop", folder.path("loop"));
  const struct {
    std::string path, message;
    StatusCode code;
  } cases[] = {
      {folder.path("gone"), ": cannot open: No such file or directory", StatusCode::kIo},
      {folder.path("empty"), ": the file is empty", StatusCode::kCorrupt},
      {folder.path(), ": is a directory, expected a file", StatusCode::kIo},
      {folder.path("pipe"), ": is a pipe, expected a file", StatusCode::kIo},
      {"/dev/null", ": is a device, expected a file", StatusCode::kIo},
      {folder.path("dangling"), ": cannot open: No such file or directory", StatusCode::kIo},
      {folder.path("loop"), ": cannot open: Too many levels of symbolic links", StatusCode::kIo},
      {folder.path("empty/below"), ": cannot open: Not a directory", StatusCode::kIo},
      {folder.path(std::string(300, 'a')), ": cannot open: File name too long", StatusCode::kIo},
  };
  for (const auto& c : cases) {
    const Status mapped = MappedFile::open(c.path).status();
    EXPECT_EQ(mapped.message(), c.path + c.message);
    EXPECT_EQ(mapped.code(), c.code) << c.path;
    const Status read = read_file(c.path, 100).status();
    EXPECT_EQ(read.message(), c.path + c.message);
    EXPECT_EQ(read.code(), c.code) << c.path;
  }
}

TEST(Files, APathThatNamesNothingIsRefused) {
  const std::string nul("f\0.txt", 6);
  for (const Status& status :
       {MappedFile::open(nul).status(), read_file(nul, 1).status(), write(nul, {"x"})}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "the path of a file holds a NUL byte");
  }
  EXPECT_EQ(MappedFile::open("").status().message(), "the path of a file is empty");
}

TEST(Files, AnUnreadableFileIsRefused) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const TempFolder folder;
  const std::string path = folder.write("f", "secret");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  EXPECT_EQ(read_file(path, 100).status().message(), path + ": cannot open: Permission denied");
}

TEST(ReadFile, ReadsUpToItsLimit) {
  const TempFolder folder;
  const std::string path = folder.write("f", std::string("a\0b", 3));
  EXPECT_EQ(read_file(path, 3).value(), std::string("a\0b", 3));
  EXPECT_EQ(read_file(path, 2).status().message(), path + ": 3 bytes, the limit is 2");
}

TEST(WriteAtomically, WritesTheParts) {
  const TempFolder folder;
  ASSERT_TRUE(write(folder.path("f"), {"one", "", "two"}).ok());
  EXPECT_EQ(read_whole_file(folder.path("f")), "onetwo");
  ASSERT_TRUE(write(folder.path("empty"), {}).ok());
  EXPECT_TRUE(std::filesystem::exists(folder.path("empty")));
  EXPECT_EQ(folder.entries(), 2);
}

TEST(WriteAtomically, ReplacesALinkAndNotItsTarget) {
  const TempFolder folder;
  folder.write("target", "precious");
  std::filesystem::create_symlink("target", folder.path("link"));
  ASSERT_TRUE(write(folder.path("link"), {"new"}).ok());
  EXPECT_EQ(read_whole_file(folder.path("target")), "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(folder.path("link")));
}

TEST(WriteAtomically, RefusesPlacesThatCannotHoldAFile) {
  const TempFolder folder;
  const std::string missing = folder.path("gone/f");
  EXPECT_EQ(write(missing, {"x"}).message(),
            missing + ": cannot create a temporary file beside it: No such file or directory");
  EXPECT_EQ(write(folder.path(), {"x"}).message(),
            folder.path() + ": is a directory, expected a file or a free name");
  EXPECT_EQ(write("/dev/full", {"x"}).message(), "/dev/full: is a device, expected a file or a free name");
  EXPECT_EQ(folder.entries(), 0);
}

TEST(WriteAtomically, StepsOverWhatACrashLeftBehind) {
  const TempFolder folder;
  folder.write("f.tmp-0", "left behind");
  ASSERT_TRUE(write(folder.path("f"), {"x"}).ok());
  EXPECT_EQ(read_whole_file(folder.path("f")), "x");
}

// Fails the call number `fail_at` (from 0) with `error`; -1: none. Counts the calls.
class FaultyOps : public FileOps {
 public:
  FaultyOps(int fail_at, int error) : fail_at_(fail_at), error_(error) {}
  int calls() const { return calls_; }
  const std::string& failed() const { return failed_; }

  int create(const char* path, mode_t mode) override {
    return fail("create") ? -1 : FileOps::create(path, mode);
  }
  int open_folder(const char* path) override { return fail("open_folder") ? -1 : FileOps::open_folder(path); }
  ssize_t write(int fd, const void* data, std::size_t size) override {
    // Never more than 3 bytes at once: short writes are legal.
    return fail("write") ? -1 : FileOps::write(fd, data, std::min<std::size_t>(size, 3));
  }
  int sync(int fd) override { return fail("sync") ? -1 : FileOps::sync(fd); }
  int close(int fd) override {
    const bool failed = fail("close");
    const int result = FileOps::close(fd);  // a failed close has closed, too
    if (failed) errno = error_;
    return failed ? -1 : result;
  }
  int rename(const char* from, const char* to) override {
    return fail("rename") ? -1 : FileOps::rename(from, to);
  }

 private:
  bool fail(const char* call) {
    if (calls_++ != fail_at_) return false;
    failed_ = call;
    errno = error_;
    return true;
  }

  int fail_at_;
  int error_;
  int calls_ = 0;
  std::string failed_;
};

TEST(WriteAtomically, AFaultAtAnyCallLeavesTheOldFileAndNothingElse) {
  FaultyOps counting(-1, 0);
  {
    const TempFolder folder;
    ASSERT_TRUE(write(folder.path("f"), {"a new text"}, counting).ok());
    EXPECT_EQ(read_whole_file(folder.path("f")), "a new text");
  }
  // create, 4 writes, sync, close, rename, open_folder, sync, close
  ASSERT_EQ(counting.calls(), 11);
  for (int fault = 0; fault < counting.calls(); fault++) {
    const TempFolder folder;
    const std::string path = folder.write("f", "old");
    FaultyOps ops(fault, ENOSPC);
    const Status status = write(path, {"a new text"}, ops);
    EXPECT_EQ(folder.entries(), 1) << ops.failed();
    const bool renamed = fault > 7;
    EXPECT_EQ(read_whole_file(path), renamed ? "a new text" : "old") << ops.failed();
    if (fault == 10) {  // closing the folder after its sync: nothing can be lost
      EXPECT_TRUE(status.ok());
      continue;
    }
    EXPECT_EQ(status.code(), StatusCode::kIo) << ops.failed();
    const std::string reason = fault == 0   ? "cannot create a temporary file beside it"
                               : fault <= 7 ? "cannot " + ops.failed()
                                            : "is written, but its folder cannot be synced";
    EXPECT_EQ(status.message(), path + ": " + reason + ": No space left on device");
  }
}

TEST(WriteAtomically, AnInterruptedWriteIsRepeated) {
  const TempFolder folder;
  FaultyOps ops(2, EINTR);
  ASSERT_TRUE(write(folder.path("f"), {"a new text"}, ops).ok());
  EXPECT_EQ(ops.failed(), "write");
  EXPECT_EQ(read_whole_file(folder.path("f")), "a new text");
}

}  // namespace
}  // namespace windrow
