// What an attention call refuses, one line each that names the numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "attention/fixture.h"

namespace windrow::testing {
namespace {

// A call that is legal until `spoil` changes one thing of it. Row 0 is plain, row 1 a tree, row 2 stands in
// storage 1. Pages of 16 positions; the first of each row holds the sinks, and row 0 has no page 1, which
// nothing sees.
struct Call {
  Call()
      : fixture({.keys = Codec::f32(),
                 .values = Codec::f32(),
                 .kv_heads = 2,
                 .q_heads = 4,
                 .head_dim = 16,
                 .value_dim = 16,
                 .page_tokens = 16,
                 .window = 20,
                 .sinks = 3,
                 .other_keys = Codec::bf16(),
                 .other_values = Codec::bf16()},
                {{.history = 60, .fresh = 2},
                 {.history = 3, .fresh = 4, .parents = {-1, 0, 0, 1}},
                 {.history = 5, .storage = 1}}),
        read(fixture.read()),
        q_size(fixture.queries().size()),
        out_size(fixture.out_size()) {}

  // The array with entry `at` changed.
  std::span<const std::int32_t> with(std::span<const std::int32_t> numbers, std::size_t at, std::int32_t to) {
    changed.emplace_back(numbers.begin(), numbers.end()).at(at) = to;
    return changed.back();
  }
  KvRead::Row& row(std::size_t r) { return fixture.rows()[r]; }  // read.rows refers to it
  BlockLayout& layout() {
    other_layout = *read.storages[0].layout;
    read.storages[0].layout = &other_layout;
    return other_layout;
  }

  Status attend() const {
    const std::vector<float> q(q_size);
    std::vector<float> out(out_size);
    return attend_reference(read, q, params, out);
  }

  ReadFixture fixture;
  KvRead read;
  AttentionParams params{.q_heads = 4};
  std::size_t q_size, out_size;
  std::deque<std::vector<std::int32_t>> changed;
  BlockLayout other_layout;
};

struct Refused {
  const char* message;
  void (*spoil)(Call&);
};

class AttentionRefuses : public ::testing::TestWithParam<Refused> {};

const float kBadSinks[] = {0, NAN, 0, 0};

TEST_P(AttentionRefuses, WithOneLineThatNamesIt) {
  Call call;
  const Status before = call.attend();
  ASSERT_TRUE(before.ok()) << before.message();
  GetParam().spoil(call);
  const Status status = call.attend();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), std::string("attention: ") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Arguments, AttentionRefuses,
    ::testing::Values(
        Refused{"q has 449 numbers, expected 7 tokens x 4 heads x 16", [](Call& c) { c.q_size++; }},
        Refused{"out has 447 numbers, expected 7 tokens x 4 heads x 16", [](Call& c) { c.out_size--; }},
        Refused{"3 query heads over 2 kv heads, expected a multiple", [](Call& c) { c.params.q_heads = 3; }},
        Refused{"0 query heads over 2 kv heads, expected a multiple", [](Call& c) { c.params.q_heads = 0; }},
        Refused{"scale nan", [](Call& c) { c.params.scale = NAN; }},
        Refused{"scale inf", [](Call& c) { c.params.scale = INFINITY; }},
        Refused{"softcap -1", [](Call& c) { c.params.softcap = -1; }},
        Refused{"softcap inf", [](Call& c) { c.params.softcap = INFINITY; }},
        Refused{"3 sinks for 4 query heads", [](Call& c) { c.params.sinks = std::span(kBadSinks).first(3); }},
        Refused{"sink 1 is nan", [](Call& c) { c.params.sinks = kBadSinks; }}));

INSTANTIATE_TEST_SUITE_P(
    Storages, AttentionRefuses,
    ::testing::Values(
        Refused{"0 kv heads", [](Call& c) { c.read.kv_heads = 0; }},
        Refused{"24 positions a page, expected 1, 2, 4, 8 or a multiple of 16",
                [](Call& c) { c.read.page_tokens = 24; }},
        Refused{"3 positions a page, expected 1, 2, 4, 8 or a multiple of 16",
                [](Call& c) { c.read.page_tokens = 3; }},
        Refused{"-1 sinks in 1 pages", [](Call& c) { c.read.sinks = -1; }},
        Refused{"3 sinks in -1 pages", [](Call& c) { c.read.sink_pages = -1; }},
        Refused{"storage 0 is used and has no pages", [](Call& c) { c.read.storages[0].layout = nullptr; }},
        Refused{"storage 1 is used and has no pages", [](Call& c) { c.read.storages[1].base = nullptr; }},
        Refused{"storage 0: a read of 32 + 16 dims, 16 positions a page, 2048 bytes a block over a layout of "
                "16 + 16, 16, 2048",
                [](Call& c) { c.read.head_dim = 32; }},
        Refused{"storage 0: a read of 16 + 32 dims, 16 positions a page, 2048 bytes a block over a layout of "
                "16 + 16, 16, 2048",
                [](Call& c) { c.read.value_dim = 32; }},
        Refused{"storage 0: a read of 16 + 16 dims, 32 positions a page, 2048 bytes a block over a layout of "
                "16 + 16, 16, 2048",
                [](Call& c) { c.read.page_tokens = 32; }},
        Refused{"storage 1: a read of 16 + 16 dims, 16 positions a page, 2048 bytes a block over a layout of "
                "16 + 16, 16, 1024",
                [](Call& c) { c.read.storages[1].block_bytes = 2048; }},
        Refused{"keys: codec q4:64: head_dim 16 is not a multiple of 64, the group",
                [](Call& c) { c.layout().keys.codec = Codec::affine(4); }},
        Refused{"storage 0: a layout that is not of f32 + f32",
                [](Call& c) { c.layout().keys.code_lanes = 8; }},
        Refused{"storage 0: 2 blocks of 2048 bytes from 193 on in a page of 4288",
                [](Call& c) { c.read.storages[0].layer_offset++; }},
        Refused{"storage 0: 2 blocks of 2048 bytes from 4289 on in a page of 4288",
                [](Call& c) { c.read.storages[0].layer_offset = 4289; }}));

INSTANTIATE_TEST_SUITE_P(
    Rows, AttentionRefuses,
    ::testing::Values(Refused{"7 positions with 6 begins, 7 ends and 7 parents",
                              [](Call& c) { c.read.begins = c.read.begins.first(6); }},
                      Refused{"7 positions with 7 begins, 6 ends and 7 parents",
                              [](Call& c) { c.read.ends = c.read.ends.first(6); }},
                      Refused{"7 positions with 7 begins, 7 ends and 6 parents",
                              [](Call& c) { c.read.parents = c.read.parents.first(6); }},
                      Refused{"3 rows with 3 row offsets",
                              [](Call& c) { c.read.row_offsets = c.read.row_offsets.first(3); }},
                      Refused{"row offsets 0 .. 6 for 7 tokens",
                              [](Call& c) { c.read.row_offsets = c.with(c.read.row_offsets, 3, 6); }},
                      Refused{"row offsets 1 .. 7 for 7 tokens",
                              [](Call& c) { c.read.row_offsets = c.with(c.read.row_offsets, 0, 1); }},
                      Refused{"row 1 has tokens 2 .. 1 of 7",
                              [](Call& c) { c.read.row_offsets = c.with(c.read.row_offsets, 2, 1); }},
                      Refused{"row 0 has tokens 0 .. 9 of 7",
                              [](Call& c) { c.read.row_offsets = c.with(c.read.row_offsets, 1, 9); }},
                      Refused{"row 2 in storage 2", [](Call& c) { c.row(2).storage = 2; }},
                      Refused{"row 0 in storage -1", [](Call& c) { c.row(0).storage = -1; }},
                      Refused{"row 0 of -5 positions", [](Call& c) { c.row(0).length = -5; }},
                      Refused{"row 0 has a table of -1 pages at 2, with 1 sink pages",
                              [](Call& c) { c.row(0).table_size = -1; }},
                      Refused{"row 0 has a table of 2 pages at 2, with 1 sink pages",
                              [](Call& c) { c.row(0).table = nullptr; }},
                      Refused{"row 0 has a table of 2 pages at 0, with 1 sink pages",
                              [](Call& c) { c.row(0).table_first = 0; }},
                      Refused{"row 0 has 1 fresh pages at 3", [](Call& c) { c.row(0).fresh = nullptr; }},
                      Refused{"row 0 has -1 fresh pages at 3", [](Call& c) { c.row(0).fresh_size = -1; }},
                      Refused{"row 0 has 1 fresh pages at -3", [](Call& c) { c.row(0).fresh_first = -3; }}));

INSTANTIATE_TEST_SUITE_P(
    Tokens, AttentionRefuses,
    ::testing::Values(Refused{"row 0, token 0 at position -1, expected 60",
                              [](Call& c) { c.read.positions = c.with(c.read.positions, 0, -1); }},
                      Refused{"row 0, token 1 at position 62, expected 61",
                              [](Call& c) { c.read.positions = c.with(c.read.positions, 1, 62); }},
                      Refused{"row 1, token 2 at position 5, expected 4",
                              [](Call& c) { c.read.positions = c.with(c.read.positions, 4, 5); }},
                      Refused{"row 1, token 1: parent 1 is not before it",
                              [](Call& c) { c.read.parents = c.with(c.read.parents, 3, 1); }},
                      Refused{"row 1, token 0: parent -2 is not before it",
                              [](Call& c) { c.read.parents = c.with(c.read.parents, 2, -2); }},
                      Refused{"row 0, token 0 at position 60 sees -1 .. 61, expected at most 0 .. 62",
                              [](Call& c) { c.read.begins = c.with(c.read.begins, 0, -1); }},
                      Refused{"row 0, token 0 at position 60 sees 61 .. 61, expected at most 0 .. 62",
                              [](Call& c) { c.read.begins = c.with(c.read.begins, 0, 61); }},
                      Refused{"row 0, token 1 at position 61 sees 42 .. 61, expected at most 0 .. 62",
                              [](Call& c) { c.read.ends = c.with(c.read.ends, 1, 61); }},
                      Refused{"row 0, token 1 at position 61 sees 42 .. 63, expected at most 0 .. 62",
                              [](Call& c) { c.read.ends = c.with(c.read.ends, 1, 63); }},
                      Refused{"row 1, token 1 at position 4 sees 0 .. 6, expected at most 0 .. 5",
                              [](Call& c) { c.read.ends = c.with(c.read.ends, 3, 6); }}));

INSTANTIATE_TEST_SUITE_P(
    Pages, AttentionRefuses,
    ::testing::Values(
        Refused{"row 0 sees page 1, its table holds 2 pages, from 2 on behind 1 sink pages",
                [](Call& c) { c.read.begins = c.with(c.read.begins, 0, 31); }},
        Refused{"row 0 sees page 2, its table holds 1 pages, from 2 on behind 1 sink pages",
                [](Call& c) { c.row(0).table_size = 1; }},
        Refused{"row 0 sees page 0, its table holds 0 pages, from 2 on behind 1 sink pages",
                [](Call& c) { c.row(0).table_size = 0; }},
        Refused{"row 0 sees page 3, it has 0 fresh pages at 3", [](Call& c) { c.row(0).fresh_size = 0; }},
        Refused{"row 1 sees page 0, it has 0 fresh pages at 0", [](Call& c) { c.row(1).fresh_size = 0; }},
        Refused{"row 0 has the page index -1", [](Call& c) { c.fixture.table(0)[0] = -1; }},
        Refused{"row 0 has the page index -2", [](Call& c) { c.fixture.table(0)[1] = -2; }},
        Refused{"row 0 has the page index -3", [](Call& c) { c.fixture.fresh(0)[0] = -3; }}));

// Slots of a tree: visible to their tokens wherever a window begins.
TEST(AttentionRefusesTrees, WithoutAPageForEverySlot) {
  const std::vector<int> chain_and_leaf = {-1, 0, 1, 2, 3, 0};
  ReadFixture fixture({.keys = Codec::f32(),
                       .values = Codec::f32(),
                       .head_dim = 16,
                       .value_dim = 16,
                       .page_tokens = 2,
                       .window = 1},
                      {{.history = 2, .fresh = 6, .parents = chain_and_leaf}});
  const std::vector<float> q(6 * 16);
  std::vector<float> out(q.size());
  ASSERT_TRUE(attend_reference(fixture.read(), q, {}, out).ok());
  fixture.rows()[0].fresh_size = 2;
  EXPECT_EQ(attend_reference(fixture.read(), q, {}, out).message(),
            "attention: row 0 sees page 3, it has 2 fresh pages at 1");
}

}  // namespace
}  // namespace windrow::testing
