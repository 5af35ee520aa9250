// A process that saves a session again and again is killed at any moment.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "store/session_rows.h"
#include "support/temp_folder.h"
#include "windrow/session.h"

namespace windrow::testing {
namespace {

// The child: saves rows of `first`, first + 1, ... positions and says so when each is done.
[[noreturn]] void save_for_ever(const std::string& path, int first, int say) {
  const StatePlan plan = session_plan();
  Result<StateStore> store = StateStore::create(plan);
  Row row = fed_row(*store, ids_from(1, first - 1));
  for (int length = first;; length++) {
    const int id[] = {length};
    Result<SessionWriter> writer = SessionWriter::create(plan, test_identity());
    const bool ok = feed(*store, row, id).ok() && writer->add(row, ids_from(1, length)).ok() &&
                    writer->save(path).ok() && ::write(say, &length, sizeof length) == sizeof length;
    if (!ok) _exit(1);
  }
}

void kill_many_times(int kills) {
  const TempFolder folder;
  const std::string path = folder.path("s");
  const StatePlan plan = session_plan();
  Result<StateStore> store = StateStore::create(plan);
  std::mt19937 random(3);
  int length = 0;  // of the session that stands there
  int inside = 0;  // kills that left a temporary file
  for (int i = 0; i < kills; i++) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_for_ever(path, length % 2000 + 1, pipe[1]);
    ::close(pipe[1]);
    // Some die before their first save, most in one of several.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 12000));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);
    int said = 0;
    for (int next = 0; ::read(pipe[0], &next, sizeof next) == sizeof next;) said = next;
    ::close(pipe[0]);
    if (said > 0) length = said;

    const Result<SessionFile> file = SessionFile::open(path);
    if (!file.ok()) {
      ASSERT_EQ(length, 0) << file.status().message();
    } else {
      // What the child said was done, or the one after that.
      const int found = file->row(0).length;
      ASSERT_TRUE(found == length || found == length + 1 || (found == length % 2000 + 1 && said == 0))
          << found << " after " << length;
      length = found;
      if (i % 10 == 0) {
        Result<std::vector<Row>> rows = file->restore(*store, test_identity());
        ASSERT_TRUE(rows.ok()) << rows.status().message();
        ASSERT_EQ((*rows)[0].length(), length);
      } else {
        ASSERT_TRUE(file->verify().ok());
      }
    }
    ASSERT_LE(folder.entries(), 2) << "temporary files pile up";
    inside += folder.entries() == 2 || (folder.entries() == 1 && !file.ok());
  }
  std::printf("%d of %d kills came inside a save\n", inside, kills);
  EXPECT_GT(inside, 0);
  Result<SessionWriter> writer = SessionWriter::create(plan, test_identity());
  ASSERT_TRUE(writer->save(path).ok());
  EXPECT_EQ(folder.entries(), 1);
}

TEST(Kill, ASessionSurvivesAHundredKillsOfItsWriter) { kill_many_times(100); }

// ./build/tests/windrow_store_tests --gtest_also_run_disabled_tests --gtest_filter=Kill.*
TEST(Kill, DISABLED_ASessionSurvivesAThousandKillsOfItsWriter) { kill_many_times(1200); }

}  // namespace
}  // namespace windrow::testing
