// Speculative rounds on the rings: what a rejected window leaves behind, across the window boundary.
#include <gtest/gtest.h>

#include "oracle/lockstep.h"
#include "oracle/trace.h"

namespace windrow::oracle {
namespace {

// One column per token; its key is the token's number, its value the negative.
Kv tokens(const std::vector<Ints>& rows) {
  const int n = static_cast<int>(rows.at(0).size());
  Kv out{Tensor(static_cast<int>(rows.size()), 1, n, 1), Tensor(static_cast<int>(rows.size()), 1, n, 1)};
  for (int b = 0; b < out.batch(); b++) {
    for (int t = 0; t < n; t++) {
      out.k.at(b, 0, t)[0] = static_cast<float>(rows[b][t]);
      out.v.at(b, 0, t)[0] = static_cast<float>(-rows[b][t]);
    }
  }
  return out;
}
Ints numbers(const Kv& kv, int row = 0) {
  Ints out;
  for (int t = 0; t < kv.columns(); t++) out.push_back(static_cast<int>(kv.k.at(row, 0, t)[0]));
  return out;
}
Ints range(int begin, int end) {
  Ints out;
  for (int i = begin; i < end; i++) out.push_back(i);
  return out;
}

TEST(SerialRound, ABypassTrimCutsExactlyTheWindowsTailAfterTheWrap) {
  SerialRing ring(4);
  ring.update(tokens({range(1, 8)}));
  EXPECT_EQ(numbers(ring.append_window(tokens({{8, 9, 10}}))), (Ints{5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(ring.trim(2), 0);  // without bypass the ring refuses
  EXPECT_EQ(ring.trim(2, true), 2);
  EXPECT_EQ(numbers(ring.buffer()), (Ints{5, 6, 7, 8}));
  EXPECT_EQ(ring.offset(), 8);
  EXPECT_EQ(numbers(ring.append_one(tokens({{20}}))), (Ints{20, 6, 7, 8}));
}

TEST(SerialRound, AWhollyRejectedWindowLeavesAllThatTheNextQuerySees) {
  for (const int next : {1, 2}) {
    SerialRing ring(4);
    ring.update(tokens({range(1, 8)}));
    ring.append_window(tokens({{8, 9, 10}}));
    EXPECT_EQ(ring.trim(3, true), 3);
    EXPECT_EQ(numbers(ring.temporal()), (Ints{5, 6, 7}));  // window - 1
    ring.update(tokens({range(30, 30 + next)}));
    EXPECT_EQ(numbers(ring.temporal()), next == 1 ? (Ints{5, 6, 7, 30}) : (Ints{5, 6, 7, 30, 31}));
  }
}

TEST(SerialRound, ABypassTrimBeyondTheLastWindowThrows) {
  SerialRing ring(4);
  ring.update(tokens({range(1, 8)}));
  ring.append_window(tokens({{8, 9}}));
  EXPECT_THROW(ring.trim(3, true), std::logic_error);
  EXPECT_EQ(ring.trim(1, true), 1);
  EXPECT_THROW(ring.trim(2, true), std::logic_error);
  ring.append_one(tokens({{10}}));
  EXPECT_THROW(ring.trim(1, true), std::logic_error);
}

TEST(SerialRound, KeptTokensSurviveARejectedWindow) {
  SerialRing ring(6, 2);
  ring.update(tokens({range(1, 11)}));
  ring.append_window(tokens({{11, 12, 13}}));
  EXPECT_EQ(numbers(ring.buffer()), (Ints{1, 2, 8, 9, 10, 11, 12, 13}));
  ring.trim(3, true);
  ring.append_one(tokens({{20}}));
  EXPECT_EQ(numbers(ring.temporal()), (Ints{1, 2, 8, 9, 10, 20}));
}

TEST(BatchRound, EachRowKeepsItsOwnCountAcrossTheWindowBoundary) {
  BatchRing ring(4, {0, 2});
  ring.update(tokens({range(1, 6), {0, 0, 103, 104, 105}}));
  ring.append_window(tokens({{6, 7, 8}, {106, 107, 108}}));
  ring.resolve(3, {3, 1});
  EXPECT_EQ(ring.row_offset(), (Ints{8, 4}));
  EXPECT_EQ(numbers(ring.row(0).kv), (Ints{5, 6, 7, 8}));
  EXPECT_EQ(numbers(ring.row(1).kv), (Ints{103, 104, 105, 106}));
  EXPECT_EQ(ring.row(1).begin, 0);
  ring.append_one(tokens({{9}, {120}}));
  EXPECT_EQ(numbers(ring.row(0).kv), range(6, 10));
  EXPECT_EQ(numbers(ring.row(1).kv), (Ints{104, 105, 106, 120}));
}

// Rows rolled right carry junk at their left end where left_padding, being negative, does not say so.
TEST(BatchRound, JunkOfAFullRowIsNeitherExtractedNorSeen) {
  BatchRing ring(4, {0, 0});
  ring.update(tokens({range(1, 9), range(101, 109)}));
  ring.append_window(tokens({{9, 10, 11}, {-1, -1, -1}}));
  ring.resolve(3, {3, 0});
  EXPECT_LT(ring.left_padding()[1], 0);
  EXPECT_GT(ring.floor()[1], 0);
  const RowColumns row = ring.row(1);
  EXPECT_EQ(numbers(row.kv), (Ints{106, 107, 108}));
  EXPECT_EQ(row.begin, 5);
  EXPECT_EQ(row.end, 8);
  for (const int n : {1, 2}) {
    BatchRing next = ring;
    const Mask mask = next.make_mask(n);
    const Kv out = next.update(tokens({range(12, 12 + n), range(109, 109 + n)}));
    for (int t = 0; t < out.columns(); t++) {
      for (int q = 0; q < n; q++) EXPECT_FALSE(mask.at(1, q, t) && numbers(out, 1)[t] < 0);
    }
    EXPECT_EQ(numbers(next.row(1).kv).back(), 108 + n);
  }
}

TEST(BatchRound, AWindowOfOneIsJoinedNotWrittenInPlace) {
  BatchRing ring(4, {0});
  ring.update(tokens({range(1, 7)}));
  EXPECT_EQ(numbers(ring.append_window(tokens({{7}}))), (Ints{4, 5, 6, 7}));
  ring.resolve(1, {0});
  EXPECT_EQ(numbers(ring.row(0).kv), (Ints{4, 5, 6}));
  EXPECT_EQ(numbers(ring.append_one(tokens({{9}}))), (Ints{4, 5, 6, 9}));
}

TEST(BatchRound, ResolveElsewhereThanAfterAWindowThrows) {
  BatchRing ring(4, {0});
  ring.update(tokens({range(1, 7)}));
  ring.append_one(tokens({{7}}));
  EXPECT_THROW(ring.resolve(1, {1}), std::logic_error);
  ring.append_window(tokens({{8, 9}}));
  EXPECT_THROW(ring.resolve(2, {3}), std::invalid_argument);
  EXPECT_THROW(ring.resolve(2, {-1}), std::invalid_argument);
}

// Exhaustive at small sizes: after any round a row holds what a serial ring fed with its accepted
// tokens holds, but for one position that a window not wholly kept may lack.
TEST(BatchRound, EveryKeepAtEveryFillEqualsTheSerialRing) {
  int rounds = 0;
  for (int w = 1; w <= 5; w++) {
    for (int prompt = 1; prompt <= 2 * w + 1; prompt++) {
      for (int window = 1; window <= 4; window++) {
        for (int a = 0; a <= window; a++) {
          for (int b = 0; b <= window; b++, rounds++) {
            const int short_by = std::min(prompt - 1, 2);
            Ints padded = range(101 - short_by, 101 - short_by + prompt);
            BatchRing ring(w, {0, short_by});
            ring.append_window(tokens({range(1, 1 + prompt), padded}));
            ring.append_window(tokens({range(1 + prompt, 1 + prompt + window),
                                       range(101 - short_by + prompt, 101 - short_by + prompt + window)}));
            ring.resolve(window, {a, b});
            for (const int row : {0, 1}) {
              const int length = row == 0 ? prompt + a : prompt - short_by + b;
              const RowColumns got = ring.row(row);
              ASSERT_EQ(got.end, length);
              ASSERT_LE(got.begin, std::max(0, length - (w - 1)));
              ASSERT_GE(got.begin, std::max(0, length - w));
              ASSERT_EQ(numbers(got.kv), range(100 * row + 1 + got.begin, 100 * row + 1 + length));
              // And the row goes on as that serial ring would.
              SerialRing alone = ring.extract(row);
              alone.update(tokens({{999}}));
              BatchRing both = ring;
              both.update(tokens({{999}, {999}}));
              ASSERT_EQ(numbers(both.row(row).kv), numbers(alone.temporal()));
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(rounds, 1890);
}

}  // namespace
}  // namespace windrow::oracle
