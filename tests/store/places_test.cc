// Places where a session can't be, or should not be looked for.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "store/session_rows.h"
#include "support/temp_folder.h"
#include "windrow/session.h"

namespace windrow::testing {
namespace {

class Places : public ::testing::Test {
 protected:
  Places() : plan_(session_plan()), store_(StateStore::create(plan_)) {
    Row row = fed_row(*store_, ids_from(1, 100));
    Result<SessionWriter> writer = SessionWriter::create(plan_, test_identity());
    EXPECT_TRUE(writer->add(row, ids_from(1, 100)).ok());
    writer_.emplace(std::move(*writer));
  }
  Status save(const std::string& name) { return writer_->save(folder_.path(name)); }

  StatePlan plan_;
  Result<StateStore> store_;
  std::optional<SessionWriter> writer_;
  TempFolder folder_;
};

TEST_F(Places, ALinkIsNeitherFollowedNorReplaced) {
  ASSERT_TRUE(save("real").ok());
  std::filesystem::create_symlink("real", folder_.path("link"));
  std::filesystem::create_symlink("nowhere", folder_.path("dangling"));
  const std::string before = read_whole_file(folder_.path("real"));
  for (const char* name : {"link", "dangling"}) {
    const Status saved = save(name), opened = SessionFile::open(folder_.path(name)).status();
    EXPECT_EQ(saved.code(), StatusCode::kIo);
    EXPECT_EQ(saved.message(), folder_.path(name) + ": is a link, expected a file or a free name");
    EXPECT_EQ(opened.code(), StatusCode::kIo);
    EXPECT_EQ(opened.message(), folder_.path(name) + ": is a link, expected a file");
    EXPECT_TRUE(std::filesystem::is_symlink(folder_.path(name)));
  }
  EXPECT_EQ(read_whole_file(folder_.path("real")), before);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("nowhere")));
}

TEST_F(Places, WhatIsNoFileIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(folder_.path("pipe").c_str(), 0600), 0);  // nobody writes: opening it must not wait
  std::filesystem::create_directory(folder_.path("folder"));
  for (const char* name : {"pipe", "folder"}) {
    EXPECT_EQ(save(name).code(), StatusCode::kIo) << name;
    EXPECT_EQ(SessionFile::open(folder_.path(name)).status().code(), StatusCode::kIo) << name;
  }
  EXPECT_EQ(SessionFile::open("/dev/zero").status().code(), StatusCode::kIo);
  EXPECT_EQ(save("missing/s").code(), StatusCode::kIo);
  EXPECT_EQ(writer_->save("/proc/s").code(), StatusCode::kIo);  // a folder that root can't write to either
  EXPECT_EQ(SessionFile::open(folder_.path("missing")).status().code(), StatusCode::kIo);
  EXPECT_EQ(writer_->save("").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer_->save(std::string("a\0b", 3)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SessionFile::open(std::string("a\0b", 3)).status().code(), StatusCode::kInvalidArgument);
  folder_.write("empty", "");
  EXPECT_EQ(SessionFile::open(folder_.path("empty")).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(folder_.entries(), 3);
}

// A path is the caller's: ".." in it leads where the system says. Names inside a file lead nowhere: see
// DamagedSession.HostileHeadersAreRefusedByName.
TEST_F(Places, APathWithDotsIsAPath) {
  std::filesystem::create_directory(folder_.path("below"));
  ASSERT_TRUE(save("below/../s").ok());
  EXPECT_TRUE(SessionFile::open(folder_.path("s")).ok());
  EXPECT_EQ(folder_.entries(), 2);
}

TEST_F(Places, AFolderThatCannotBeWrittenKeepsWhatItHas) {
  if (geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  ASSERT_TRUE(save("s").ok());
  const std::string before = read_whole_file(folder_.path("s"));
  ASSERT_EQ(chmod(folder_.path().c_str(), 0500), 0);
  EXPECT_EQ(save("s").code(), StatusCode::kIo);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0700), 0);
  EXPECT_EQ(read_whole_file(folder_.path("s")), before);
}

// The system's own limit in the place of a full disk: the write that crosses it is short, the next fails.
TEST_F(Places, AFullDiskLeavesTheOldSession) {
  ASSERT_TRUE(save("s").ok());
  const std::string before = read_whole_file(folder_.path("s"));
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {before.size() / 2, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status s = save("s");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, old_handler);
  EXPECT_EQ(s.code(), StatusCode::kIo);
  EXPECT_EQ(s.message(), folder_.path("s") + ": cannot write: File too large");
  EXPECT_EQ(read_whole_file(folder_.path("s")), before);
  EXPECT_EQ(folder_.entries(), 1);
}

// Replacing a session while somebody reads it: the reader keeps the one that it opened.
TEST_F(Places, AReaderKeepsTheFileThatItOpened) {
  ASSERT_TRUE(save("s").ok());
  const Result<SessionFile> file = SessionFile::open(folder_.path("s"));
  ASSERT_TRUE(file.ok());
  Result<SessionWriter> empty = SessionWriter::create(plan_, test_identity());
  ASSERT_TRUE(empty->save(folder_.path("s")).ok());
  const Result<std::vector<Row>> rows = file->restore(*store_, test_identity());
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_EQ((*rows)[0].length(), 100);
  EXPECT_EQ(SessionFile::open(folder_.path("s"))->rows(), 0);
}

// One that is overwritten in place is found out, whatever was read of it before.
TEST_F(Places, AFileThatChangesUnderItsReaderIsRefused) {
  ASSERT_TRUE(save("s").ok());
  const Result<SessionFile> file = SessionFile::open(folder_.path("s"));
  ASSERT_TRUE(file.ok());
  std::string bytes = read_whole_file(folder_.path("s"));
  bytes[bytes.size() - 5] ^= 4;
  {
    std::fstream out(folder_.path("s"), std::ios::in | std::ios::out | std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  EXPECT_EQ(file->restore(*store_, test_identity(), SessionCheck::kXxh3).status().code(),
            StatusCode::kCorrupt);
  std::filesystem::resize_file(folder_.path("s"), bytes.size() / 2);
  EXPECT_EQ(file->restore(*store_, test_identity()).status().code(), StatusCode::kIo);
  EXPECT_EQ(store_->live_rows(), 0);
}

}  // namespace
}  // namespace windrow::testing
