// Folders that appear whole or not at all.
#include "io/folder.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "support/temp_folder.h"

namespace windrow {
namespace {

using Existing = AtomicFolder::Existing;

void put(const AtomicFolder& folder, const std::string& name, const std::string& text) {
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  EXPECT_TRUE(write_atomically(folder.place() + "/" + name, {&part, 1}, system_file_ops()).ok());
}

TEST(AtomicFolder, StandsWithItsFilesAfterCommitAndNotBefore) {
  const TempFolder temp;
  {
    Result<AtomicFolder> folder = AtomicFolder::create(temp.path("out/"), Existing::kRefuse);
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    put(*folder, "a", "text");
    EXPECT_FALSE(std::filesystem::exists(temp.path("out")));
    EXPECT_TRUE(folder->commit().ok());
    EXPECT_EQ(folder->commit().code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(read_whole_file(temp.path("out/a")), "text");
  EXPECT_EQ(temp.entries(), 1);
}

TEST(AtomicFolder, WithoutACommitNothingStaysBehind) {
  const TempFolder temp;
  {
    Result<AtomicFolder> folder = AtomicFolder::create(temp.path("out"), Existing::kRefuse);
    ASSERT_TRUE(folder.ok());
    put(*folder, "a", "text");
  }
  EXPECT_EQ(temp.entries(), 0);
}

TEST(AtomicFolder, WhatStandsThereIsRefusedUnlessItMayBeReplaced) {
  const TempFolder temp;
  const auto message = [&](const std::string& name, Existing existing) {
    return AtomicFolder::create(temp.path(name), existing).status().message();
  };
  temp.write("model/config.json", "{}");
  EXPECT_EQ(message("model", Existing::kRefuse), temp.path("model") + ": exists already");
  EXPECT_EQ(message("model", Existing::kReplace), "");
  temp.write("home/letter.txt", "dear");
  EXPECT_EQ(message("home", Existing::kReplace),
            temp.path("home") + ": is no model folder (it has no config.json), it is not replaced");
  temp.write("model/photos/1.jpg", "");
  EXPECT_EQ(message("model", Existing::kReplace),
            temp.path("model") + ": holds the folder photos, it is not replaced");
  EXPECT_EQ(message("home/letter.txt", Existing::kReplace),
            temp.path("home/letter.txt") + ": is no folder, it is not replaced");
  EXPECT_EQ(
      message("gone/out", Existing::kRefuse),
      temp.path("gone/out") + ": cannot create a temporary folder beside it: No such file or directory");
}

class NoExchange : public FileOps {
 public:
  bool may_rename = true;
  int exchange(const char*, const char*) override {
    errno = EINVAL;
    return -1;
  }
  int rename(const char* from, const char* to) override {
    if (may_rename || std::string(from).ends_with("-old")) return FileOps::rename(from, to);
    if (std::string(to).ends_with("-old")) return FileOps::rename(from, to);
    // The files of the new folder may come and go; the folder itself may not.
    if (std::filesystem::is_regular_file(from)) return FileOps::rename(from, to);
    errno = EACCES;
    return -1;
  }
};

TEST(AtomicFolder, AnOldFolderGivesWayWithAndWithoutExchange) {
  NoExchange none;
  for (FileOps* ops : {&system_file_ops(), static_cast<FileOps*>(&none)}) {
    const TempFolder temp;
    temp.write("model/config.json", "old");
    temp.write("model/old", "old");
    Result<AtomicFolder> folder = AtomicFolder::create(temp.path("model"), Existing::kReplace, *ops);
    ASSERT_TRUE(folder.ok());
    put(*folder, "config.json", "new");
    EXPECT_TRUE(folder->commit().ok());
    EXPECT_EQ(read_whole_file(temp.path("model/config.json")), "new");
    EXPECT_FALSE(std::filesystem::exists(temp.path("model/old")));
    EXPECT_EQ(temp.entries(), 1);
  }
}

TEST(AtomicFolder, AFailedRenameBringsTheOldFolderBack) {
  const TempFolder temp;
  NoExchange ops;
  ops.may_rename = false;
  temp.write("model/config.json", "old");
  {
    Result<AtomicFolder> folder = AtomicFolder::create(temp.path("model"), Existing::kReplace, ops);
    ASSERT_TRUE(folder.ok());
    put(*folder, "config.json", "new");
    EXPECT_EQ(folder->commit().message(), temp.path("model") + ": cannot rename: Permission denied");
  }
  EXPECT_EQ(read_whole_file(temp.path("model/config.json")), "old");
  EXPECT_EQ(temp.entries(), 1);
}

}  // namespace
}  // namespace windrow
