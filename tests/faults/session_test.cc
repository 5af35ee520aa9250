// Sessions when a system call or an allocation fails: the n-th, once or from then on, until a run meets no
// fault. The file is the old one or the new one, nothing is left over, and a store takes all rows or none.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "faults/failing_new.h"
#include "store/session_rows.h"
#include "support/failing_ops.h"
#include "support/memory_disk.h"
#include "support/temp_folder.h"
#include "windrow/session.h"

namespace windrow::testing {
namespace {

// A call into the library, which never throws: std::terminate if it does.
template <typename Call>
auto library(Call call) noexcept {
  return call();
}

class SessionFaults : public ::testing::Test {
 protected:
  SessionFaults() : plan_(session_plan()), store_(StateStore::create(plan_)) {
    for (const int length : {50, 90}) {
      rows_.push_back(fed_row(*store_, ids_from(1, length)));
      writers_.push_back(writer(rows_.back(), length));
    }
  }
  SessionWriter writer(const Row& row, int length) {
    Result<SessionWriter> writer = SessionWriter::create(plan_, test_identity());
    EXPECT_TRUE(writer->add(row, ids_from(1, length)).ok());
    return std::move(*writer);
  }
  // All rows of the file, into a store that is empty before and, unless that is ok, after.
  Status restore(const std::string& path, FileOps& ops, StateStore& store) {
    Status status = library([&]() -> Status {
      const Result<SessionFile> file = SessionFile::open(path, ops);
      if (!file.ok()) return file.status();
      return file->restore(store, test_identity()).status();
    });
    EXPECT_EQ(store.live_rows(), 0);
    for (int g = 0; g < plan_.group_count(); g++) {
      EXPECT_EQ(store.pool_use(g).owned, 0);
      EXPECT_EQ(store.delayed_pool_use(g).owned, 0);
    }
    EXPECT_EQ(store.state_pool_use(0).owned, 0);
    EXPECT_TRUE(store.check().ok());
    return status;
  }

  StatePlan plan_;
  Result<StateStore> store_;
  std::vector<Row> rows_;
  std::vector<SessionWriter> writers_;
};

TEST_F(SessionFaults, EverySystemCallMayFail) {
  const struct {
    const char* call;
    int error;
    bool is_short;
  } faults[] = {{"", EIO, false},         {"", ENOSPC, false},         {"", EINTR, false},
                {"", EACCES, false},      {"write", 0, true},          {"write", ENOSPC, false},
                {"write", EIO, false},    {"read_at", 0, true},        {"read_at", EIO, false},
                {"sync", EIO, false},     {"rename", EXDEV, false},    {"create", EMFILE, false},
                {"open", ENFILE, false},  {"close", EIO, false},       {"lock", ENOLCK, false},
                {"unlink", EBUSY, false}, {"status", EOVERFLOW, false}};
  Result<StateStore> store = StateStore::create(plan_, {.poison = true});
  MemoryDisk written;
  ASSERT_TRUE(writers_[0].save("s", written).ok());
  const std::string old_bytes = *written.content("s");
  ASSERT_TRUE(writers_[1].save("s", written).ok());
  const std::string new_bytes = *written.content("s");
  long points = 0, refused = 0;
  for (const auto& fault : faults) {
    for (const auto kind : {FailingOps::Kind::kOnce, FailingOps::Kind::kPersistent}) {
      // A call that is interrupted for ever is repeated for ever, as it must be.
      if (fault.error == EINTR && kind == FailingOps::Kind::kPersistent) continue;
      for (int n = 0;; n++) {
        SCOPED_TRACE(std::string(fault.call) + " " + std::to_string(n));
        MemoryDisk disk;
        disk.put("s", old_bytes);
        disk.put("s.tmp-0", "left by a crash");
        FailingOps ops(disk, {fault.call, fault.error, kind, fault.is_short}, n);
        const Status saved = library([&] { return writers_[1].save("s", ops); });
        const std::string content = *disk.content("s");
        ASSERT_TRUE(content == new_bytes || (!saved.ok() && content == old_bytes));
        ASSERT_EQ(disk.open_files(), 0u);
        // What is left are temporary files that could not be removed, which the next save does.
        if (saved.ok() && !ops.hit()) {
          ASSERT_EQ(disk.names(), 1u);
        }
        ASSERT_TRUE(writers_[1].save("s", disk).ok());
        ASSERT_EQ(disk.names(), 1u);
        if (!ops.hit()) break;
        points++;
        refused += !saved.ok();
      }
      for (int n = 0;; n++) {
        SCOPED_TRACE(std::string("reading: ") + fault.call + " " + std::to_string(n));
        MemoryDisk disk;
        disk.put("s", new_bytes);
        FailingOps ops(disk, {fault.call, fault.error, kind, fault.is_short}, n);
        const Status read = restore("s", ops, *store);
        ASSERT_EQ(disk.open_files(), 0u);
        if (!ops.hit()) {
          ASSERT_TRUE(read.ok()) << read.message();
          break;
        }
        ASSERT_TRUE(read.ok() || read.code() == StatusCode::kIo) << read.message();
        points++;
        refused += !read.ok();
      }
    }
  }
  std::printf("%ld faults, %ld refusals\n", points, refused);
  EXPECT_GT(points, 800);
  EXPECT_GT(refused, points / 2);
}

// Saving without waiting for the disk: thousands of runs.
class Unsynced : public FileOps {
  int sync(int) override { return 0; }
};

TEST_F(SessionFaults, EveryAllocationMayFail) {
  const TempFolder folder;
  const std::string path = folder.path("s");
  Unsynced ops;
  ASSERT_TRUE(writers_[0].save(path, ops).ok());
  const std::string old_bytes = read_whole_file(path);
  ASSERT_TRUE(writers_[1].save(path, ops).ok());
  const std::string new_bytes = read_whole_file(path);
  Result<StateStore> store = StateStore::create(plan_, {.poison = true});
  long points = 0;
  for (const bool for_ever : {false, true}) {
    const auto sweep = [&](const char* what, const auto& call) {
      for (long n = 0;; n++) {
        SCOPED_TRACE(std::string(what) + " " + std::to_string(n));
        const long live = live_allocations();
        bool failed = false;
        {
          fail_allocation(n, for_ever);
          const Status status = library(call);
          failed = stop_failing();
          ASSERT_EQ(status.ok(), !failed) << status.message();
          if (failed) {
            ASSERT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
          }
        }
        ASSERT_EQ(live_allocations(), live);
        ASSERT_EQ(folder.entries(), 1);
        ASSERT_EQ(store->live_rows(), 0);
        ASSERT_EQ(store->pool_use(0).owned, 0);
        if (!failed) return;
        points++;
      }
    };
    sweep("save", [&] { return writers_[0].save(path, ops); });
    ASSERT_TRUE(writers_[1].save(path, ops).ok());
    // Not open(): the JSON of the header is read into a Json, whose destructor allocates.
    const Result<SessionFile> file = SessionFile::open(path, ops);
    sweep("verify", [&] { return file->verify(); });
    sweep("restore", [&] { return file->restore(*store, test_identity()).status(); });
    // A writer that could not take a row goes on without it.
    SessionWriter writer = this->writer(rows_[0], 50);
    for (long n = 0;; n++) {
      const std::size_t bytes = writer.bytes();
      const std::vector<int> ids = ids_from(1, 90);
      fail_allocation(n, for_ever);
      const Status status = library([&] { return writer.add(rows_[1], ids); });
      const bool failed = stop_failing();
      ASSERT_EQ(status.ok(), !failed) << status.message();
      if (!failed) break;
      points++;
      ASSERT_EQ(writer.bytes(), bytes);
      ASSERT_EQ(writer.rows(), 1);
    }
    ASSERT_TRUE(writer.save(path, ops).ok());
    ASSERT_TRUE(restore(path, ops, *store).ok());
  }
  std::printf("%ld failing allocations\n", points);
  EXPECT_GT(points, 1200);
}

}  // namespace
}  // namespace windrow::testing
