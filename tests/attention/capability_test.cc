// The capability table: what serves a group, and what says that it is slow.
#include <gtest/gtest.h>

#include "attention/targets.h"
#include "windrow/attention.h"

namespace windrow::testing {
namespace {

StatePlan plan_of(const Codec& codec, int head_dim, int page_tokens) {
  Result<StatePlan> plan =
      StatePlan::Builder({.rows = 1, .tokens = 64, .step_tokens = 8})
          .attention({.layers = {0}, .head_dim = head_dim, .keys = codec, .values = codec})
          .page_tokens(page_tokens)
          .build();
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *plan;
}

AttentionKernel kernel_of(const Codec& codec, int head_dim, int page_tokens, ReadKind kind) {
  Result<AttentionKernels> kernels = AttentionKernels::select(plan_of(codec, head_dim, page_tokens));
  EXPECT_TRUE(kernels.ok());
  return kernels->kernel(0, kind);
}

TEST(AttentionCapability, EveryKindOfReadNamesItsKernel) {
  const std::string target = internal::select_kernels().target;
  for (const ReadKind kind : kReadKinds) {
    const std::string tails = kind == ReadKind::kTree ? ", tails of tree paths copied together" : "";
    EXPECT_EQ(kernel_of(Codec::affine(4), 128, 32, kind).name,
              target + ", keys q4:64, values q4:64 sliced over 8 words" + tails);
    EXPECT_EQ(kernel_of(Codec::affine(3), 128, 32, kind).name, target + ", keys q3:64, values q3:64" + tails);
  }
}

TEST(AttentionCapability, SmallPagesSayThatTheyAreSlow) {
  for (const ReadKind kind : kReadKinds) {
    EXPECT_EQ(kernel_of(Codec::affine(4), 64, 8, kind).slow,
              "pages of 8 positions are copied together first; 16 and more are read in place");
  }
}

TEST(AttentionCapability, WhatAMachineHasNoInstructionForSaysSo) {
  on_every_target([] {
    const internal::Kernels kernels = internal::select_kernels();
    const std::string plain = kernel_of(Codec::bf16(), 64, 32, ReadKind::kDecode).slow;
    const std::string half = kernel_of(Codec::f16(), 64, 32, ReadKind::kDecode).slow;
    if (kernels.lanes < 4) {
      EXPECT_EQ(plain, "no SIMD instruction set of this machine has kernels in this build");
      EXPECT_EQ(half, plain);
    } else {
      EXPECT_EQ(plain, "");
      EXPECT_EQ(half, kernels.converts_f16
                          ? ""
                          : std::string(kernels.target) + " has no instruction that converts f16");
    }
  });
}

TEST(AttentionCapability, KindsHaveNames) {
  std::string names;
  for (const ReadKind kind : kReadKinds) names += std::string(to_string(kind)) + " ";
  EXPECT_EQ(names, "decode verify prefill tree block ");
}

// Pages outside of what a query sees are not visited: whether the row still holds them changes no bit.
TEST(AttentionCapability, PagesOutsideTheWindowAreSkipped) {
  const Shape shape{.keys = Codec::affine(4, 32),
                    .values = Codec::affine(4, 32),
                    .head_dim = 32,
                    .value_dim = 32,
                    .page_tokens = 16,
                    .window = 40};
  ReadFixture fixture(shape, {{.content = 1, .history = 500, .fresh = 3}});
  for_each_target([&](const internal::Kernels& kernels) {
    const std::vector<float> skipped = attend(kernels, shape, fixture);
    KvRead whole = fixture.read();
    KvRead::Row row = whole.rows[0];
    ASSERT_GT(row.table_first, 0);
    // All pages from 0 on, those before the window being any page at all: some other content.
    std::vector<std::int32_t> table(static_cast<std::size_t>(row.table_first), row.table[0]);
    table.insert(table.end(), row.table, row.table + row.table_size);
    row.table = table.data();
    row.table_size += row.table_first;
    row.table_first = 0;
    whole.rows = {&row, 1};
    std::vector<float> out(fixture.out_size());
    const AttentionParams params{.q_heads = 1, .scale = 1 / std::sqrt(32.0f)};
    ASSERT_TRUE(internal::validate_attention(whole, fixture.queries().size(), params, out.size()).ok());
    ASSERT_TRUE(internal::attend_with(kernels, whole, fixture.queries(), params, out, nullptr).ok());
    EXPECT_TRUE(same_bits(skipped, out));
  });
}

}  // namespace
}  // namespace windrow::testing
