// The serial ring against mlx-lm's own traces (tests/data/mlx/G2_rotating), step by step.
#include "oracle/serial_ring.h"

#include <gtest/gtest.h>

#include <set>

#include "oracle/trace.h"

namespace windrow::oracle {
namespace {

constexpr char kGroup[] = "G2_rotating";

void expect_mask(const SerialMask& got, const nlohmann::json& want, const Trace& trace,
                 const std::string& tensor) {
  if (want.is_null()) {
    EXPECT_EQ(got.kind, SerialMask::Kind::kNone);
  } else if (want == "causal") {
    EXPECT_EQ(got.kind, SerialMask::Kind::kCausal);
  } else {
    ASSERT_EQ(want, "array");
    ASSERT_EQ(got.kind, SerialMask::Kind::kArray);
    EXPECT_EQ(got.array, trace.mask(tensor)) << tensor;
  }
}

void expect_state(const SerialRing& ring, const nlohmann::json& step, std::size_t number_bytes) {
  EXPECT_EQ(ring.offset(), step.at("offset"));
  EXPECT_EQ(ring.idx(), step.at("idx"));
  EXPECT_EQ(ring.size(), step.at("size"));
  EXPECT_EQ(ring.is_trimmable(), step.at("is_trimmable").get<bool>());
  EXPECT_EQ(ring.buffer().columns(), step.at("buffer_len"));
  const Kv& buffer = ring.buffer();
  EXPECT_EQ((buffer.k.values.size() + buffer.v.values.size()) * number_bytes, step.at("nbytes"));
  EXPECT_EQ(ring.meta_state(), (step.at("meta_state").get<std::array<std::string, 4>>()));
}

struct Counts {
  int updates = 0, trims = 0, refused = 0, arrays = 0;
};

void replay(const Trace& trace, Counts& counts) {
  SerialRing ring(trace.json().at("max_size"), trace.json().at("keep"));
  const std::size_t number_bytes = trace.json().at("dtype") == "float32" ? 4 : 2;
  Tokens tokens;
  int next = 0;
  for (const auto& step : trace.steps()) {
    const int i = step.at("i");
    SCOPED_TRACE(trace.name() + " step " + std::to_string(i));
    if (step.at("op") == "trim_prompt_cache") {
      EXPECT_EQ(ring.is_trimmable(), step.at("trimmable").get<bool>());
      EXPECT_EQ(ring.trim(step.at("n")), step.at("trimmed"));
      counts.trims++;
      counts.refused += !step.at("trimmable").get<bool>();
    } else {
      ASSERT_EQ(step.at("op"), "update");
      const std::string number = std::to_string(i);
      const int n = step.at("S");
      expect_mask(ring.make_mask(n), step.at("mask"), trace, "mask." + number);
      const auto& window = step.at("mask_window");
      expect_mask(ring.make_mask(n, window[0].get<int>()), window[1], trace, "maskw." + number);
      counts.arrays += (step.at("mask") == "array") + (window[1] == "array");
      const Kv fresh = trace.kv("in", i);
      ASSERT_EQ(fresh.columns(), n);
      // Serial batches are fed the same token numbers in every row; slots are checked per row below.
      for (int t = 0; t < n; t++) {
        for (int b = 0; b < fresh.batch(); b++) tokens.feed(1000 * b + next + t, fresh, b, t);
      }
      next += n;
      const Kv out = ring.update(fresh);
      expect_bits(out, trace.kv("out", i));
      std::vector<Ints> slots(out.batch(), step.at("slot_tokens").get<Ints>());
      for (int b = 0; b < out.batch(); b++) {
        for (int& token : slots[b]) token += token < 0 ? 0 : 1000 * b;
      }
      tokens.expect_slots(out, slots);
      counts.updates++;
    }
    expect_state(ring, step, number_bytes);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(SerialRingTrace, EveryStepOfEveryCaseEqualsMlx) {
  Counts counts;
  const auto names = Trace::names(kGroup);
  for (const std::string& name : names) replay(Trace::load(kGroup, name), counts);
  EXPECT_EQ(names.size(), 17u);
  EXPECT_EQ(counts.updates, 219);
  EXPECT_EQ(counts.trims, 17);
  EXPECT_EQ(counts.refused, 2);
  EXPECT_EQ(counts.arrays, 198);
}

// What the masks of one step show and hide, by token number.
struct Seen {
  std::set<int> shown, hidden;
};
Seen seen_by(const Mask& mask, int query, const Ints& slots) {
  Seen s;
  for (int t = 0; t < mask.columns; t++) (mask.at(0, query, t) ? s.shown : s.hidden).insert(slots.at(t));
  return s;
}
// The position window of width w that ends at token p; traces without trims only.
std::set<int> window_of(int p, int w) {
  std::set<int> out;
  for (int t = std::max(0, p - w + 1); t <= p; t++) out.insert(t);
  return out;
}

// Calls check(step, mask or null, window asked for, token number of the step's first query).
template <class Check>
void each_mask_of_untrimmed(const std::string& keep, const Check& check) {
  for (const std::string& name : Trace::names(kGroup)) {
    const Trace trace = Trace::load(kGroup, name);
    if (name.find(keep) == std::string::npos) continue;
    int next = 0;
    for (const auto& step : trace.steps()) {
      if (step.at("op") != "update") break;
      const std::string number = std::to_string(step.at("i").get<int>());
      if (step.at("mask") == "array")
        check(trace, step, trace.mask("mask." + number), trace.json().at("max_size"), next);
      const auto& window = step.at("mask_window");
      if (window[1] == "array") check(trace, step, trace.mask("maskw." + number), window[0], next);
      next += step.at("S").get<int>();
    }
  }
}

TEST(SerialRingTrace, WithoutKeepEveryMaskIsThePositionWindow) {
  int queries = 0;
  each_mask_of_untrimmed(
      "_k0_", [&](const Trace&, const nlohmann::json& step, const Mask& mask, int w, int first) {
        for (int q = 0; q < mask.queries; q++, queries++) {
          EXPECT_EQ(seen_by(mask, q, step.at("slot_tokens").get<Ints>()).shown, window_of(first + q, w));
        }
      });
  EXPECT_GT(queries, 100);
}

// Upstream's flaw, reproduced: in a chunk after the wrap the kept tokens are hidden one by one.
TEST(SerialRingQuirk, KeptTokensAreHiddenOneByOneFromLaterQueriesOfAChunk) {
  int chunks = 0;
  each_mask_of_untrimmed(
      "_k4_", [&](const Trace& trace, const nlohmann::json& step, const Mask& mask, int w, int first) {
        if (mask.queries < 2 || first < trace.json().at("max_size") || w != trace.json().at("max_size"))
          return;
        for (int q = 0; q < mask.queries; q++) {
          const Seen s = seen_by(mask, q, step.at("slot_tokens").get<Ints>());
          for (int kept = 0; kept < 4; kept++) EXPECT_EQ(s.shown.count(kept), kept >= q ? 1u : 0u) << q;
        }
        chunks++;
      });
  EXPECT_EQ(chunks, 13);
}

// Upstream's flaw, reproduced: a window narrower than the ring, asked for a single position, is turned
// as if nothing were kept: the newest token itself may be hidden and the oldest kept one shown.
TEST(SerialRingQuirk, NarrowWindowOfOnePositionHitsWrongSlotsWhenTokensAreKept) {
  const Trace trace = Trace::load(kGroup, "rot_hand_k4_m8");
  const auto& step = trace.steps()[4];  // token 8 is written over slot 4
  const Seen s = seen_by(trace.mask("maskw.4"), 0, step.at("slot_tokens").get<Ints>());
  EXPECT_EQ(s.shown, (std::set<int>{0, 5, 6, 7}));
  EXPECT_TRUE(s.hidden.count(8));
}

TEST(SerialRingQuirk, SizeIsTheWindowEvenWhenAChunkReturnedMore) {
  SerialRing ring(4);
  EXPECT_EQ(ring.update({Tensor(1, 1, 6, 2), Tensor(1, 1, 6, 2)}).columns(), 6);
  EXPECT_EQ(ring.size(), 4);
}

TEST(SerialRingQuirk, ATrimAfterTheWrapIsRefusedAndBeforeItOnlyMovesCounters) {
  SerialRing ring(4);
  ring.update({Tensor(1, 1, 3, 2), Tensor(1, 1, 3, 2)});
  EXPECT_EQ(ring.trim(1), 1);
  EXPECT_EQ(ring.buffer().columns(), 3);
  ring.update({Tensor(1, 1, 2, 2), Tensor(1, 1, 2, 2)});
  EXPECT_EQ(ring.trim(1), 0);
  EXPECT_EQ(ring.offset(), 4);
}

}  // namespace
}  // namespace windrow::oracle
