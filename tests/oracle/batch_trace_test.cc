// The batched caches against mlx-lm's own traces (tests/data/mlx/G3_batch_rotating, G3_batch_kv), step
// by step; and what the recorded masks show, against a list of each row's tokens.
#include <gtest/gtest.h>

#include "oracle/batch_replay.h"

namespace windrow::oracle {
namespace {

Report replay_all(const std::string& group) {
  Report report;
  for (const std::string& name : Trace::names(group)) {
    const Trace trace = Trace::load(group, name);
    Replay(trace, report).run();
  }
  return report;
}

TEST(BatchRingTrace, EveryStepOfEveryCaseEqualsMlx) {
  const Report report = replay_all("G3_batch_rotating");
  EXPECT_EQ(Trace::names("G3_batch_rotating").size(), 12u);
  EXPECT_EQ(report.steps, 238);
  EXPECT_EQ(report.masks, 894);
  EXPECT_EQ(report.slots, 208);
}

TEST(BatchKvTrace, EveryStepOfEveryCaseEqualsMlx) {
  const Report report = replay_all("G3_batch_kv");
  EXPECT_EQ(Trace::names("G3_batch_kv").size(), 1u);
  EXPECT_EQ(report.steps, 18);
  EXPECT_EQ(report.masks, 63);
  EXPECT_EQ(report.slots, 13);
  EXPECT_GT(report.queries, 0);
  EXPECT_EQ(report.not_the_window, std::vector<std::string>{});
}

// Upstream's flaw, reproduced: a window write while the ring is rotated does not count the column that
// it is about to drop, and hides the oldest token of each row that still has left padding. Every other
// mask recorded before an update is exactly the position window, so no token was lost either.
TEST(BatchRingQuirk, AWindowWriteWhileRotatedHidesTheOldestTokenOfPaddedRows) {
  const Report report = replay_all("G3_batch_rotating");
  EXPECT_EQ(report.queries, 701);  // of 754 columns fed; 53 are padding
  EXPECT_EQ(report.not_the_window,
            (std::vector<std::string>{"merge_m16_s310 step 16", "merge_m8_s300 step 14"}));
  for (const Difference& d : report.differences) {
    EXPECT_EQ(d.shown, std::set<int>{});
    EXPECT_EQ(d.hidden, std::set<int>{1000 * d.row});  // the row's first token
    EXPECT_NE(d.row, 2);                               // the row without padding
  }
}

TEST(BatchRingQuirk, OnePositionBetweenPrepareAndFinalizeIsRefused) {
  BatchRing ring(8, {0, 0});
  const auto columns = [](int n) { return Kv{Tensor(2, 1, n, 2), Tensor(2, 1, n, 2)}; };
  ring.prepare({3, 2}, {0, 1});
  ring.update(columns(2));
  EXPECT_THROW(ring.update(columns(1)), std::runtime_error);
  EXPECT_EQ(ring.row_offset(), (Ints{2, 2}));  // nothing was written
  ring.append_window(columns(1));              // by joining it works: a padded prompt's last chunk of one
  ring.finalize();
  EXPECT_EQ(ring.row_offset(), (Ints{3, 2}));
  EXPECT_NO_THROW(ring.update(columns(1)));
}

// Upstream's flaw, in the data: joining a batch that holds nothing makes its zeros in f32 and widens
// the 16-bit batch. The numbers are the same.
TEST(BatchRingQuirk, ExtendingByAnEmptyBatchWidensToF32) {
  const Trace trace = Trace::load("G3_batch_rotating", "extend_m8_s300");
  EXPECT_EQ(trace.view("buf.12.k").dtype, DType::kF16);
  EXPECT_EQ(trace.view("in.18.k").dtype, DType::kF16);
  EXPECT_EQ(trace.view("buf.17.k").dtype, DType::kF32);
  EXPECT_EQ(trace.view("out.18.k").dtype, DType::kF32);
}

}  // namespace
}  // namespace windrow::oracle
