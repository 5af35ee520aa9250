// Saving a session while the power goes: what stands on the disk afterwards is the old file or the new one.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <string>

#include "store/session_rows.h"
#include "support/memory_disk.h"
#include "windrow/session.h"

namespace windrow::testing {
namespace {

// Saves of one row of two lengths, and the bytes that they write.
class Power : public ::testing::Test {
 protected:
  Power() : plan_(session_plan()), store_(StateStore::create(plan_)) {
    for (const int length : {50, 90}) {
      Row row = fed_row(*store_, ids_from(1, length));
      Result<SessionWriter> writer = SessionWriter::create(plan_, test_identity());
      EXPECT_TRUE(writer->add(row, ids_from(1, length)).ok());
      writers_.push_back(std::move(*writer));
      MemoryDisk disk;
      EXPECT_TRUE(writers_.back().save("s", disk).ok());
      changes_ = disk.changes();
      bytes_.push_back(*disk.content("s"));
    }
  }

  // Every cut: after each call that changes something, with many draws of what had reached the disk by then.
  // Returns how many.
  int cut_everywhere(const std::optional<std::string>& before, int draws) {
    int cuts = 0;
    for (int calls = 0; calls <= changes_; calls++) {
      MemoryDisk disk;
      if (before) disk.put("s", *before);
      disk.power_off_after(calls);
      const bool saved = writers_[1].save("s", disk).ok();
      EXPECT_EQ(saved, calls == changes_);
      std::mt19937 random(static_cast<unsigned>(calls));
      for (int i = 0; i < draws; i++, cuts++) {
        MemoryDisk after;
        disk.cut(random, i % 2 == 0 ? 512 : 4096, after);
        judge(before, saved, i % 8 == 0, after);
        if (HasFatalFailure()) return cuts;
      }
    }
    return cuts;
  }

  void judge(const std::optional<std::string>& before, bool saved, bool save_again, MemoryDisk& disk) {
    const std::optional<std::string> content = disk.content("s");
    ASSERT_TRUE(content == bytes_[1] || (!saved && content == before))
        << (content ? std::to_string(content->size()) + " bytes" : "no file");
    if (content) {
      const Result<SessionFile> file = SessionFile::open("s", disk);
      ASSERT_TRUE(file.ok()) << file.status().message();
      ASSERT_TRUE(file->verify(SessionCheck::kXxh3).ok());
    }
    if (!save_again) return;
    // The next save goes well and leaves nothing of the one that broke off.
    ASSERT_TRUE(writers_[0].save("s", disk).ok());
    ASSERT_EQ(disk.content("s"), bytes_[0]);
    ASSERT_EQ(disk.names(), 1u);
    ASSERT_EQ(disk.open_files(), 0u);
  }

  StatePlan plan_;
  Result<StateStore> store_;
  std::vector<SessionWriter> writers_;
  std::vector<std::string> bytes_;
  int changes_ = 0;
};

TEST_F(Power, ACutAtAnyMomentLeavesTheOldSessionOrTheNew) {
  const int cuts = cut_everywhere(bytes_[0], 200) + cut_everywhere(std::nullopt, 200);
  std::printf("%d cuts\n", cuts);
  EXPECT_GE(cuts, 10000);
}

// The judge has teeth: without syncs some cut shows a file that is neither.
TEST_F(Power, WithoutSyncsSomeCutWouldDestroyTheSession) {
  class Careless : public MemoryDisk {
    int sync(int) override { return 0; }
  } disk;
  disk.put("s", bytes_[0]);
  ASSERT_TRUE(writers_[1].save("s", disk).ok());
  std::mt19937 random(1);
  int destroyed = 0;
  for (int i = 0; i < 100; i++) {
    MemoryDisk after;
    disk.cut(random, 512, after);
    destroyed += after.content("s") != bytes_[0] && after.content("s") != bytes_[1];
  }
  EXPECT_GT(destroyed, 10);
}

}  // namespace
}  // namespace windrow::testing
