// C13, C14, C26 and invariant 6: the plan's arithmetic and its refusals.
#include "windrow/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "windrow/store.h"

namespace windrow {
namespace {

AttentionGroup sliding(int window = 64) {
  return {.layers = {0, 1, 2},
          .window = window,
          .kv_heads = 2,
          .head_dim = 64,
          .keys = Codec::affine(4),
          .values = Codec::affine(8)};
}
AttentionGroup full() { return {.layers = {3}, .kv_heads = 2, .head_dim = 64}; }

TEST(StatePlan, BytesAreTheFormula) {
  Result<StatePlan> plan = StatePlan::Builder({.rows = 3, .tokens = 1000, .step_tokens = 100, .rollback = 4})
                               .attention(sliding())
                               .attention(full())
                               .build();
  ASSERT_TRUE(plan.ok());
  // One position of one head of one layer, q4 keys, q8 values: 64 x 4 / 8 + 64 x 8 / 8 bytes of
  // codes and a 16-bit scale and bias each; a page is 32 positions of 3 layers x 2 heads.
  const std::size_t position = (32 + 4) + (64 + 4);
  EXPECT_EQ(plan->group_bytes(0).page, position * 32 * 3 * 2);
  EXPECT_EQ(plan->group_bytes(0).per_token, position * 3 * 2);
  // W - 1 + R = 67 positions touch at most 1 + ceil(66 / 32) = 4 pages. One step adds at most
  // 3 + (100 - 3) / 32 = 6 pages, and one for copy on write.
  EXPECT_EQ(plan->group_bytes(0).pages_per_row, 4);
  EXPECT_EQ(plan->group_bytes(0).pages, 3 * 4 + 6 + 1);
  // bf16: 2 x 128 bytes; every row may grow to 32 pages.
  EXPECT_EQ(plan->group_bytes(1).page, 256u * 32 * 2);
  EXPECT_EQ(plan->group_bytes(1).pages, 3 * 32 + 1);
  EXPECT_EQ(plan->bytes(), plan->group_bytes(0).page * 19 + plan->group_bytes(1).page * 97);
}

TEST(StatePlan, AllocatorAgrees) {
  for (const int rows : {1, 2, 7}) {
    for (const int tokens : {1, 31, 32, 33, 5000}) {
      Result<StatePlan> plan = StatePlan::Builder({.rows = rows, .tokens = tokens, .step_tokens = 77})
                                   .attention(sliding(7))
                                   .attention(full())
                                   .build();
      ASSERT_TRUE(plan.ok());
      Result<StateStore> store = StateStore::create(*plan);
      ASSERT_TRUE(store.ok());
      EXPECT_EQ(store->bytes(), plan->bytes());
      for (int g = 0; g < 2; g++) {
        EXPECT_EQ(store->pool_use(g).pages, plan->group_bytes(g).pages);
        EXPECT_EQ(store->pool_use(g).bytes, plan->group_bytes(g).total);
      }
    }
  }
}

TEST(StatePlan, SlidingBytesDoNotGrowWithTheContext) {
  std::size_t first = 0;
  for (const int tokens : {4096, 65536, 1 << 20}) {
    Result<StatePlan> plan = StatePlan::Builder({.tokens = tokens}).attention(sliding()).build();
    ASSERT_TRUE(plan.ok());
    if (first == 0) first = plan->bytes();
    EXPECT_EQ(plan->bytes(), first);
  }
}

TEST(StatePlan, ShortRowsCostPagesForTheirLengthOnly) {
  Result<StatePlan> plan =
      StatePlan::Builder({.tokens = 4096}).attention(sliding()).attention(full()).build();
  ASSERT_TRUE(plan.ok());
  const std::size_t both = plan->group_bytes(0).page + plan->group_bytes(1).page;
  EXPECT_EQ(plan->projected_bytes(0), 0u);
  EXPECT_EQ(plan->projected_bytes(1), both);
  EXPECT_EQ(plan->projected_bytes(32), both);
  EXPECT_EQ(plan->projected_bytes(33), 2 * both);
  EXPECT_EQ(plan->projected_bytes(-5), 0u);
  EXPECT_EQ(plan->projected_bytes(1 << 29), plan->projected_bytes(4096));
}

TEST(StatePlan, TotalTokensBoundsFullGroups) {
  Result<StatePlan> plan =
      StatePlan::Builder({.rows = 8, .tokens = 4096, .total_tokens = 6400}).attention(full()).build();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->group_bytes(0).pages, 200 + 8 + 4);
}

TEST(StatePlan, RefusalsNameTheObjectAndTheNumbers) {
  const auto error = [](Limits limits, std::vector<AttentionGroup> groups, int page_tokens = 32) {
    StatePlan::Builder builder(limits);
    for (const AttentionGroup& g : groups) builder.attention(g);
    const Status s = builder.page_tokens(page_tokens).build().status();
    EXPECT_EQ(s.code(), StatusCode::kInvalidArgument);
    return s.message();
  };
  EXPECT_EQ(error({}, {}), "state plan: no layer group");
  EXPECT_EQ(error({.rows = 0}, {full()}), "state plan: rows is 0, allowed are 1 to 65536");
  EXPECT_EQ(error({.tokens = -1}, {full()}), "state plan: tokens is -1, allowed are 1 to 1073741824");
  EXPECT_EQ(error({.step_tokens = 0}, {full()}), "state plan: step_tokens is 0, allowed are 1 to 1073741824");
  EXPECT_EQ(error({.rollback = -2}, {full()}), "state plan: rollback is -2, allowed are 0 to 1073741824");
  EXPECT_EQ(error({}, {full()}, 48),
            "state plan: page_tokens is 48, allowed are the powers of two from 1 to 256");
  EXPECT_EQ(error({}, {full(), full()}), "state plan: layer 3 stands twice in the plan, first in group 0");
  AttentionGroup g = full();
  g.layers = {};
  EXPECT_EQ(error({}, {g}), "state plan: group 0 has no layers");
  g.layers = {-1};
  EXPECT_EQ(error({}, {g}), "state plan: group 0: layer -1, allowed are 0 to 65535");
  g = full();
  g.window = 0;
  EXPECT_EQ(error({}, {sliding(), g}), "state plan: group 1: window is 0, expected at least 1");
  g = full();
  g.kv_heads = 0;
  EXPECT_EQ(error({}, {g}), "state plan: group 0: kv_heads is 0, allowed are 1 to 4096");
  g = full();
  g.head_dim = 100;
  EXPECT_NE(error({}, {g}).find("state plan: group 0: keys: "), std::string::npos);
  g = full();
  g.value_dim = 96;
  g.values = Codec::affine(4, 64);
  EXPECT_NE(error({}, {g}).find("state plan: group 0: values: "), std::string::npos);
  EXPECT_NE(error({.rows = 65536, .tokens = 1 << 30}, {full()}).find("are too many"), std::string::npos);
}

TEST(StatePlan, SignatureSaysWhatBytesMeanAndNotHowManyThereAre) {
  const auto signature = [](Limits limits, AttentionGroup g) {
    return StatePlan::Builder(limits).attention(std::move(g)).build()->signature();
  };
  const std::string base = signature({}, sliding());
  EXPECT_EQ(
      base,
      "windrow-state/2 [layers=0,1,2 window=64 kv_heads=2 head_dim=64 value_dim=64 keys=q4:64 values=q8:64]");
  EXPECT_EQ(signature({.rows = 9, .tokens = 77}, sliding()), base);
  EXPECT_NE(signature({}, sliding(63)), base);
  AttentionGroup g = sliding();
  g.keys = Codec::affine(4, 64, DType::kF16);
  EXPECT_NE(signature({}, g), base);
}

TEST(StatePlan, JsonIsWhatWasPlanned) {
  Result<StatePlan> plan = StatePlan::Builder({.rows = 2}).attention(sliding()).attention(full()).build();
  const nlohmann::json j = nlohmann::json::parse(plan->to_json());
  EXPECT_EQ(j["bytes"], plan->bytes());
  EXPECT_EQ(j["limits"]["rows"], 2);
  EXPECT_EQ(j["groups"][0]["window"], 64);
  EXPECT_TRUE(j["groups"][1]["window"].is_null());
  EXPECT_EQ(j["groups"][0]["codec_values"], "q8:64");
  EXPECT_EQ(j["groups"][0]["bytes"].get<std::size_t>() + j["groups"][1]["bytes"].get<std::size_t>(),
            plan->bytes());
}

TEST(StatePlan, WithCodecKeepsEverythingElse) {
  Result<StatePlan> plan = StatePlan::Builder({.rows = 2}).attention(sliding()).build();
  Result<StatePlan> wide = plan->with_codec(Codec::bf16());
  ASSERT_TRUE(wide.ok());
  EXPECT_EQ(wide->group_bytes(0).pages, plan->group_bytes(0).pages);
  EXPECT_EQ(wide->group_bytes(0).per_token, 3u * 2 * 2 * 128);
}

}  // namespace
}  // namespace windrow
