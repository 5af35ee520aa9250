// Every adapter with its first, second, ... allocation failing: a typed refusal, no leak, no throw; and the
// same answer as ever once there is memory.
#include <gtest/gtest.h>

#include "faults/failing_new.h"
#include "state/program.h"
#include "windrow/masks.h"
#include "windrow/mlx.h"
#include "windrow/padded.h"

namespace windrow::testing {
namespace {

// Repeats `call` until no allocation of it fails. noexcept: a throw ends the program.
template <typename Call>
void expect_survives(const char* name, const Call& call) noexcept {
  for (long n = 0;; n++) {
    const long live = live_allocations();
    bool failed = false;
    {
      fail_allocation(n);
      const auto result = call();
      failed = stop_failing();
      if (failed) {
        EXPECT_FALSE(result.ok()) << name << " " << n;
        EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted) << name << " " << n;
      } else {
        EXPECT_TRUE(result.ok()) << name << ": " << result.status().message();
      }
    }
    EXPECT_EQ(live_allocations(), live) << name << " " << n;
    if (!failed || ::testing::Test::HasFailure()) return;
  }
}

TEST(Allocation, C22_C25_C28_AdaptersWithoutMemory) {
  Result<StatePlan> plan = StatePlan::Builder({.rows = 4, .tokens = 64, .step_tokens = 24})
                               .attention({.layers = {0},
                                           .window = 5,
                                           .head_dim = 32,
                                           .keys = Codec::affine(8, 32),
                                           .values = Codec::affine(4, 32)})
                               .page_tokens(2)
                               .build();
  ASSERT_TRUE(plan.ok());
  Result<StateStore> store = StateStore::create(*plan);
  ASSERT_TRUE(store.ok());
  Row row = *store->new_row();
  Row* const rows[] = {&row};
  const int lengths[] = {9};
  Result<Step> step = store->begin(rows, lengths);
  ASSERT_TRUE(append_all(*step, *plan, {1, 2, 3, 4, 5, 6, 7, 8, 9}).ok());
  Result<KvRead> read = step->read(0);
  ASSERT_TRUE(step->resolve().ok());
  const AttentionGroup& g = plan->group(0);
  const LayerRecords records = *row.extract(0);
  const LayerRecords* const lines[] = {&records, &records};
  const MlxSerialCache serial = *mlx_from_records(records, g);
  const MlxBatchCache batch = *mlx_from_records(lines, g);
  const int first[] = {0};

  expect_survives("serial out", [&] { return mlx_from_records(records, g); });
  expect_survives("batch out", [&] { return mlx_from_records(lines, g, {.keys = Codec::f32()}); });
  expect_survives("serial in", [&] { return records_from_mlx(serial, g, 0); });
  expect_survives("batch in", [&] { return records_from_mlx(batch, g, 0); });
  expect_survives("window", [&] { return mlx_window(*read, first); });
  expect_survives("read masks", [&] { return read_masks(*read, first); });
  expect_survives("masks", [&] { return window_mask({.offset = 40, .length = 9, .window = 5}); });
  const MaskArray mask = *window_mask({.offset = 4});
  expect_survives("additive", [&] { return additive_mask(mask); });
  expect_survives("row", [&]() -> Result<RowRecords> {
    // The caller's own vector is no part of the call.
    std::vector<LayerRecords> layers;
    try {
      layers.push_back(records);
    } catch (const std::bad_alloc&) {
      return Status(StatusCode::kResourceExhausted, "caller");
    }
    return row_from_layers(*plan, std::move(layers));
  });
  expect_survives("padded", [&] { return PaddedBatch::create(9, lengths, PadSide::kLeft); });
  expect_survives("chunks", [&] { return PaddedChunks::create(lengths, 4, PadSide::kLeft); });
  const PaddedChunks chunks = *PaddedChunks::create(lengths, 4, PadSide::kLeft);
  expect_survives("chunk", [&] { return chunks.chunk(1); });
}

}  // namespace
}  // namespace windrow::testing
