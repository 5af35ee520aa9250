// Single rows of the contract shown by hand; programs over all of them are in tests/contract.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "state/program.h"

namespace windrow::testing {
namespace {

constexpr RecurrentShape kShape = {{.key_heads = 1, .value_heads = 2, .key_dim = 16, .value_dim = 4},
                                   {.channels = 5, .taps = 3}};

StatePlan make_plan(int page_tokens = 2, int rows = 4) {
  Result<StatePlan> plan =
      StatePlan::Builder({.rows = rows, .tokens = 64, .step_tokens = 64, .rollback = 2, .tree_nodes = 8})
          .attention({.layers = {0},
                      .window = 5,
                      .sinks = 3,
                      .head_dim = 32,
                      .keys = Codec::affine(8, 32),
                      .values = Codec::affine(8, 32),
                      .delayed = Delayed{.start = 12}})
          .attention({.layers = {1, 2}, .kv_heads = 2, .head_dim = 32, .sharers = {{7, 2}}})
          .page_tokens(page_tokens)
          .build();
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *plan;
}

std::vector<int> range(int begin, int end) {
  std::vector<int> out;
  for (int i = begin; i < end; i++) out.push_back(i);
  return out;
}

void feed(StateStore& store, Row& row, int tokens) {
  Row* rows[] = {&row};
  Result<Step> step = store.begin(rows, std::vector<int>{tokens});
  ASSERT_TRUE(step.ok()) << step.status().message();
  ASSERT_TRUE(append_all(*step, store.plan(), range(row.length(), row.length() + tokens)).ok());
  ASSERT_TRUE(step->resolve().ok());
}

TEST(Rows, C15SharersReadTheirOwnersPagesInEveryKindOfStep) {
  const StatePlan plan = make_plan();
  StateStore store = std::move(*StateStore::create(plan));
  Row row = std::move(*store.new_row());
  feed(store, row, 5);
  EXPECT_EQ(plan.owner_of_layer(7), 2);
  EXPECT_EQ(plan.group_of_layer(7), 1);
  const std::vector<int> parents = {-1, 0, 0};
  const StepRow kinds[] = {{.row = &row, .length = 1},
                           {.row = &row, .length = 3},
                           {.row = &row, .length = 3, .block = true},
                           {.row = &row, .length = 3, .parents = parents}};
  for (const StepRow& kind : kinds) {
    Result<Step> step = store.begin({&kind, 1});
    ASSERT_TRUE(step.ok()) << step.status().message();
    EXPECT_EQ(step->read(7).status().message(), "read: layer 2 was not appended in this step");
    EXPECT_EQ(step->append(7, {}, {}).message(), "append: layer 7 shares the keys and values of layer 2");
    ASSERT_TRUE(append_all(*step, plan, range(5, 5 + kind.length)).ok());
    Result<KvRead> owner = step->read(2), sharer = step->read(7);
    ASSERT_TRUE(owner.ok() && sharer.ok());
    EXPECT_EQ(sharer->positions.data(), owner->positions.data());
    EXPECT_EQ(sharer->begins.data(), owner->begins.data());
    EXPECT_EQ(sharer->block(sharer->rows[0], 2, 1), owner->block(owner->rows[0], 2, 1));
  }
  EXPECT_EQ(row.extract(7).status().message(), "extract: layer 7 shares layer 2");
}

TEST(Rows, C16PeekSaysWhatBeginDoesAndChangesNothing) {
  const StatePlan plan = make_plan(2, 3);
  StateStore store = std::move(*StateStore::create(plan));
  std::vector<Row> rows;
  rows.push_back(std::move(*store.new_row()));
  feed(store, rows[0], 9);
  rows.push_back(std::move(*rows[0].fork()));
  for (const std::vector<int>& lengths :
       std::vector<std::vector<int>>{{0, 0}, {1, 0}, {3, 1}, {4, 4}, {20, 7}, {60, 1}, {-1, 2}}) {
    const StepRow asked[] = {{.row = &rows[0], .length = lengths[0]},
                             {.row = &rows[1], .length = lengths[1]}};
    const auto owned = [&] {
      return std::vector<int>{store.pool_use(0).owned + store.delayed_pool_use(0).owned,
                              store.pool_use(1).owned};
    };
    const std::vector<int> before = owned();
    Result<StepPreview> preview = store.peek(asked);
    ASSERT_TRUE(preview.ok());
    EXPECT_EQ(owned(), before);
    Result<Step> step = store.begin(asked);
    EXPECT_EQ(preview->status.message(), step.status().message());
    EXPECT_EQ(preview->positions, (std::vector<std::int32_t>{9, 9}));
    EXPECT_EQ(preview->uncut, (std::vector<int>{3, 3}));  // delayed codecs end at 12
    if (!step.ok()) continue;
    for (std::size_t g = 0; g < 2; g++) EXPECT_EQ(before[g] + preview->pages[g], owned()[g]) << "group " << g;
  }
}

TEST(Rows, C26SignaturesAreComparedAndBothArePrinted) {
  const StatePlan plan = make_plan();
  StateStore store = std::move(*StateStore::create(plan));
  StateStore other = std::move(*StateStore::create(*plan.with_codec(Codec::f32())));
  Row row = std::move(*store.new_row());
  feed(store, row, 4);
  RowRecords records = *row.extract();
  EXPECT_EQ(records.signature, plan.signature());
  for (const Status& s : {other.adopt(records).status(), other.copy(row).status()}) {
    EXPECT_EQ(s.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(s.message().find(plan.signature()), std::string::npos);
    EXPECT_NE(s.message().find(other.plan().signature()), std::string::npos);
  }
  records.signature.clear();
  EXPECT_NE(store.adopt(records).status().message().find("(missing)"), std::string::npos);
  EXPECT_EQ(other.live_rows(), 0);
  EXPECT_EQ(store.live_rows(), 1);
}

TEST(Rows, C21CopiesIntoAStoreOfOtherPagesAreByteIdenticalAndGoOnAlike) {
  const StatePlan plan = make_plan(2), wide = make_plan(16);
  StateStore store = std::move(*StateStore::create(plan)), other = std::move(*StateStore::create(wide));
  for (const int length : {0, 1, 4, 8, 11, 12, 13, 40}) {
    Row row = std::move(*store.new_row());
    if (length > 0) feed(store, row, length);
    Result<Row> copy = other.copy(row), adopted = other.adopt(*row.extract());
    ASSERT_TRUE(copy.ok() && adopted.ok()) << copy.status().message() << adopted.status().message();
    EXPECT_EQ(copy->minimum_length(), row.minimum_length());
    feed(store, row, 3);
    for (Row* its : {&*copy, &*adopted}) {
      feed(other, *its, 3);
      RowRecords got = *its->extract(), want = *row.extract();
      EXPECT_EQ(got, want) << "length " << length;
    }
  }
}

TEST(Rows, C29AdoptRefusesRecordsThatAreNotARowOfThisPlan) {
  const StatePlan plan = make_plan();
  StateStore store = std::move(*StateStore::create(plan));
  Row row = std::move(*store.new_row());
  feed(store, row, 20);
  const RowRecords good = *row.extract();
  ASSERT_TRUE(store.adopt(good).ok());
  const std::vector<std::pair<const char*, void (*)(RowRecords&)>> spoilers = {
      {"negative length", [](RowRecords& r) { r.length = -1; }},
      {"longer than the plan", [](RowRecords& r) { r.length = 65; }},
      {"another length", [](RowRecords& r) { r.length = 19; }},
      {"no layers", [](RowRecords& r) { r.layers.clear(); }},
      {"a layer missing", [](RowRecords& r) { r.layers.pop_back(); }},
      {"a layer too many", [](RowRecords& r) { r.layers.push_back(r.layers[0]); }},
      {"layers exchanged", [](RowRecords& r) { std::swap(r.layers[1], r.layers[2]); }},
      {"begin too high", [](RowRecords& r) { r.layers[0].begin = 17; }},
      {"begin negative", [](RowRecords& r) { r.layers[1].begin = -1; }},
      {"begin beyond the end", [](RowRecords& r) { r.layers[1].begin = 21; }},
      {"no sinks", [](RowRecords& r) { r.layers[0].sinks = 0; }},
      {"huge sinks", [](RowRecords& r) { r.layers[0].sinks = std::numeric_limits<int>::max(); }},
      {"not converted past the start", [](RowRecords& r) { r.layers[0].converted = false; }},
      {"no delayed codecs", [](RowRecords& r) { r.layers[1].converted = false; }},
      {"key words short", [](RowRecords& r) { r.layers[0].key_words.pop_back(); }},
      {"value params long", [](RowRecords& r) { r.layers[0].value_params.push_back(0); }},
      {"a state nobody has", [](RowRecords& r) { r.recurrent.push_back({}); }},
  };
  for (const auto& [name, spoil] : spoilers) {
    RowRecords bad = good;
    spoil(bad);
    const Result<Row> adopted = store.adopt(bad);
    EXPECT_FALSE(adopted.ok()) << name;
    EXPECT_EQ(store.live_rows(), 1) << name;
    EXPECT_TRUE(store.check().ok());
  }
}

TEST(Rows, C14ProjectedBytesAreTheRowsAtEveryLength) {
  for (const int page_tokens : {1, 2, 8, 16}) {
    const StatePlan plan = make_plan(page_tokens);
    StateStore store = std::move(*StateStore::create(plan));
    Row row = std::move(*store.new_row());
    for (int length = 0; length < 40; length++) {
      EXPECT_EQ(row.bytes(), plan.projected_bytes(length))
          << "length " << length << ", pages of " << page_tokens;
      feed(store, row, 1);
    }
  }
}

TEST(Rows, C30RecurrentRowsCostAStateAndNothingPerToken) {
  const StatePlan plan = *StatePlan::Builder({.rows = 3, .tokens = 100, .verify_tokens = 4})
                              .recurrent({.layers = {0, 1}, .shape = kShape})
                              .build();
  EXPECT_EQ(plan.recurrent_bytes(0).state, 2 * kShape.state_bytes());
  EXPECT_EQ(plan.projected_bytes(1), plan.projected_bytes(100));
  EXPECT_EQ(plan.projected_bytes(0), 0u);
  EXPECT_EQ(plan.bytes(), 6 * plan.recurrent_bytes(0).state + 3 * plan.recurrent_bytes(0).record);
  StateStore store = std::move(*StateStore::create(plan));
  EXPECT_EQ(store.bytes(), plan.bytes());
  // What was not fed through every layer is not kept, nor is a part of a step that was not recorded.
  Row row = std::move(*store.new_row());
  const StepRow asked = {.row = &row, .length = 5};
  Result<Step> step = store.begin({&asked, 1});
  ASSERT_TRUE(step.ok());
  const std::vector<float> x(25, 0.5f), w(15, 0.5f), k(80, 0.1f), v(40, 0.2f), g(10, 0.9f);
  std::vector<float> out(25), y(40);
  EXPECT_EQ(step->resolve().message(), "resolve: recurrent layer 0 was not convolved in this step");
  for (const int layer : {0, 1}) {
    ASSERT_TRUE(step->convolve(layer, x, w, Activation::kNone, out).ok());
    ASSERT_TRUE(step->advance(layer, {.q = k, .k = k, .v = v, .g = g, .beta = g}, y).ok());
  }
  EXPECT_EQ(step->resolve({4}).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(step->open());
  EXPECT_TRUE(step->resolve().ok());
  EXPECT_EQ(row.length(), 5);
  EXPECT_EQ(row.minimum_length(), 5);
  EXPECT_EQ(row.truncate(4).message(),
            "truncate: to 4 positions of 5, the lowest length still retained is 5");
}

TEST(Rows, C12AncestorMasksAreParents) {
  EXPECT_EQ(*parents_from_ancestors(std::vector<std::uint64_t>{1, 3, 5, 11}),
            (std::vector<int>{-1, 0, 0, 1}));
  EXPECT_EQ(*parents_from_ancestors(std::vector<std::uint64_t>{0, 1, 0}), (std::vector<int>{-1, 0, -1}));
  EXPECT_EQ(*parents_from_ancestors({}), std::vector<int>{});
  EXPECT_FALSE(parents_from_ancestors(std::vector<std::uint64_t>{2}).ok());        // a later node
  EXPECT_FALSE(parents_from_ancestors(std::vector<std::uint64_t>{0, 0, 3}).ok());  // two roots
  EXPECT_FALSE(parents_from_ancestors(std::vector<std::uint64_t>{0, 1, 2}).ok());  // not the parent's own
  EXPECT_FALSE(parents_from_ancestors(std::vector<std::uint64_t>(65, 0)).ok());
}

TEST(Rows, C12TreesAreRefusedByName) {
  const StatePlan plan = make_plan();
  StateStore store = std::move(*StateStore::create(plan));
  Row row = std::move(*store.new_row());
  const auto begin = [&](int length, std::vector<int> parents, std::vector<TokenSpan> spans,
                         std::vector<int> starts, bool block = false) {
    const StepRow asked = {row.valid() ? &row : nullptr, length, block, spans, parents, starts};
    return store.begin({&asked, 1}).status().message();
  };
  EXPECT_EQ(begin(2, {-1}, {}, {}), "begin: row 0 of the step has 1 parents for 2 nodes");
  EXPECT_EQ(begin(2, {-1, 1}, {}, {}), "begin: row 0 of the step has parent 1 at node 1, expected -1 to 0");
  EXPECT_EQ(begin(2, {-2, 0}, {}, {}), "begin: row 0 of the step has parent -2 at node 0, expected -1 to -1");
  EXPECT_EQ(begin(9, std::vector<int>(9, -1), {}, {}),
            "begin: row 0 of the step is a tree of 9 nodes, the plan allows 8");
  EXPECT_EQ(begin(2, {-1, 0}, {{0, 1}}, {}),
            "begin: row 0 of the step is more than one of a block, spans and a tree");
  EXPECT_EQ(begin(2, {}, {{0, 3}}, {}),
            "begin: row 0 of the step has span 0 .. 3 of 2 tokens, expected ascending ones");
  EXPECT_EQ(begin(4, {}, {{0, 2}, {1, 3}}, {}),
            "begin: row 0 of the step has span 1 .. 3 of 4 tokens, expected ascending ones");
  EXPECT_EQ(begin(2, {}, {}, {0}), "begin: row 0 of the step has 1 window starts for 2 tokens");
  EXPECT_EQ(begin(2, {}, {}, {0, 5}),
            "begin: row 0 of the step has window start 5 at token 1, allowed are 0 to its position");
  EXPECT_EQ(begin(2, {}, {}, {0, 0}, true), "begin: row 0 of the step is a block and has window starts");
  feed(store, row, 10);
  EXPECT_NE(begin(4, {-1, 0, 0, -1}, {}, {}).find("may pass the start of group 0's delayed codecs at 12"),
            std::string::npos);
}

TEST(Rows, C23ABlockIsReadAndNotKept) {
  const StatePlan plan = make_plan();
  StateStore store = std::move(*StateStore::create(plan));
  Row row = std::move(*store.new_row());
  feed(store, row, 9);
  const RowRecords before = *row.extract();
  const StepRow asked = {.row = &row, .length = 4, .block = true};
  Result<Step> step = store.begin({&asked, 1});
  ASSERT_TRUE(step.ok());
  ASSERT_TRUE(append_all(*step, plan, range(50, 54)).ok());
  Result<KvRead> read = step->read(0);
  for (std::size_t t = 0; t < 4; t++) {
    EXPECT_EQ(read->begins[t], 5);  // the newest W - 1 = 4 of 9
    EXPECT_EQ(read->ends[t], 13);
  }
  EXPECT_EQ(step->resolve().message(), "resolve: row 0 is a block, which is read and not kept");
  EXPECT_TRUE(step->resolve({0}).ok());
  EXPECT_EQ(*row.extract(), before);
}

TEST(Rows, PoisonModeNamesKeysAndValuesThatAreNotFinite) {
  const StatePlan plan = make_plan();
  StateStore store = std::move(*StateStore::create(plan, {.poison = true}));
  Row a = std::move(*store.new_row()), b = std::move(*store.new_row());
  feed(store, b, 3);
  Row* rows[] = {&a, &b};
  Result<Step> step = store.begin(rows, std::vector<int>{1, 2});
  std::vector<float> k(3 * 2 * 32, 1.0f), v = k;
  k[2 * 64 + 32 + 7] = std::nanf("");
  EXPECT_EQ(step->append(1, k, v).message(),
            "append: layer 1: keys of row 1 at position 4: number 7 of head 1 is nan");
  k[2 * 64 + 32 + 7] = 0;
  v[0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(step->append(1, k, v).message(),
            "append: layer 1: values of row 0 at position 0: number 0 of head 0 is inf");
  EXPECT_TRUE(step->open());
}

}  // namespace
}  // namespace windrow::testing
