// Sessions of all kinds of state: what comes back is what was saved, and goes on as if nothing had happened.
#include "windrow/session.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "store/session_rows.h"
#include "support/temp_folder.h"

namespace windrow::testing {
namespace {

template <typename T>
T take(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(*result);
}

SessionWriter writer_of(const StatePlan& plan) { return take(SessionWriter::create(plan, test_identity())); }

void save_rows(const std::string& path, const StatePlan& plan, std::span<const Row* const> rows,
               std::span<const std::vector<int>> tokens) {
  SessionWriter writer = writer_of(plan);
  for (std::size_t r = 0; r < rows.size(); r++) {
    const Status s = writer.add(*rows[r], tokens[r]);
    ASSERT_TRUE(s.ok()) << s.message();
  }
  const Status s = writer.save(path);
  ASSERT_TRUE(s.ok()) << s.message();
}

// Lengths around the edges of windows (40, 80), sinks, pages (16), pieces (256) and the start of delayed
// codecs (30); restored into a store of other pages and limits, with and without threads.
TEST(Session, ARowOfAnyLengthComesBackAndGoesOnAlike) {
  const StatePlan plan = session_plan();
  const StatePlan other_plan = session_plan(
      {.limits = {.rows = 2, .tokens = 4000, .step_tokens = 700, .rollback = 2}, .page_tokens = 32});
  ThreadPool pool = take(ThreadPool::create(2));
  const TempFolder folder;
  for (const int length :
       {0, 1, 2, 3, 4, 15, 29, 30, 31, 39, 40, 41, 42, 43, 80, 81, 200, 255, 256, 257, 300, 511, 513, 900}) {
    SCOPED_TRACE(length);
    StateStore store = take(StateStore::create(plan));
    std::vector<int> ids = ids_from(7, length);
    Row row = fed_row(store, ids);
    const Row* const rows[] = {&row};
    ids.push_back(12345);  // chosen, not fed
    const std::vector<int> tokens[] = {ids};
    save_rows(folder.path("s"), plan, rows, tokens);

    StateStore other = take(StateStore::create(other_plan, {.poison = true}));
    const SessionFile file = take(SessionFile::open(folder.path("s")));
    std::vector<Row> back =
        take(file.restore(other, test_identity(), length % 2 == 0 ? SessionCheck::kAll : SessionCheck::kXxh3,
                          length % 3 == 0 ? &pool : nullptr));
    ASSERT_EQ(back.size(), 1u);
    EXPECT_EQ(file.row(0).tokens, ids);
    EXPECT_EQ(file.row(0).length, length);
    expect_equal_rows(row, back[0]);
    for (int i = 0; i < 60; i++) {
      const int id[] = {1000 + i};
      ASSERT_TRUE(feed(store, row, id).ok());
      ASSERT_TRUE(feed(other, back[0], id).ok());
    }
    EXPECT_TRUE(*row.extract() == *back[0].extract());
    back.clear();
    for (int g = 0; g < plan.group_count(); g++) EXPECT_EQ(other.pool_use(g).owned, 0);
  }
}

TEST(Session, ForkedRowsStoreEqualRangesOnce) {
  const StatePlan plan = session_plan({.recurrent = false});
  StateStore store = take(StateStore::create(plan));
  std::vector<int> ids = ids_from(1, 1000);
  Row a = fed_row(store, ids);
  SessionWriter alone = writer_of(plan);
  ASSERT_TRUE(alone.add(a, ids).ok());

  // A fork that goes on, one that stands still, and one that was cut and goes another way.
  Row b = take(a.fork()), c = take(a.fork()), d = take(a.fork());
  std::vector<int> ids_b = ids, ids_d = ids;
  for (int i = 0; i < 30; i++) ids_b.push_back(5000 + i);
  ASSERT_TRUE(feed(store, b, std::span(ids_b).subspan(1000)).ok());
  ASSERT_TRUE(d.truncate(d.minimum_length()).ok());
  ids_d.resize(static_cast<std::size_t>(d.length()));
  ids_d.push_back(99);
  ASSERT_TRUE(feed(store, d, std::span(ids_d).last(1)).ok());

  SessionWriter together = writer_of(plan);
  for (const auto& [row, tokens] : {std::pair{&a, &ids}, {&b, &ids_b}, {&c, &ids}, {&d, &ids_d}})
    ASSERT_TRUE(together.add(*row, *tokens).ok());
  // a, b and c meet in the same pieces: b adds 30 positions. d, which differs at its end, adds one piece a
  // group, of at most 256 positions.
  EXPECT_LT(together.bytes(), alone.bytes() + alone.bytes() / 2);

  const TempFolder folder;
  ASSERT_TRUE(together.save(folder.path("s")).ok());
  StateStore other = take(StateStore::create(plan));
  std::vector<Row> back = take(take(SessionFile::open(folder.path("s"))).restore(other, test_identity()));
  ASSERT_EQ(back.size(), 4u);
  expect_equal_rows(a, back[0]);
  expect_equal_rows(b, back[1]);
  expect_equal_rows(c, back[2]);
  expect_equal_rows(d, back[3]);
}

TEST(Session, IsASafetensorsFileThatOnlyItsOwnerReads) {
  const StatePlan plan = session_plan();
  StateStore store = take(StateStore::create(plan));
  const std::vector<int> ids = ids_from(1, 300);
  Row row = fed_row(store, ids);
  const Row* const rows[] = {&row};
  const TempFolder folder;
  save_rows(folder.path("s"), plan, rows, {{ids}});
  struct stat info = {};
  ASSERT_EQ(stat(folder.path("s").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  const SafetensorsFile file = take(SafetensorsFile::open(folder.path("s")));
  EXPECT_EQ(file.metadata().at("format"), "windrow-session");
  const TensorView* tokens = file.find("tokens.0");
  ASSERT_NE(tokens, nullptr);
  EXPECT_EQ(tokens->shape, std::vector<std::size_t>{300});
  // The full group's first piece: MLX triples of [layers, kv_heads, positions, inner].
  const auto piece = std::find_if(file.tensors().begin(), file.tensors().end(), [](const TensorView& t) {
    return t.name.find("group2.0-256.keys") != std::string::npos;
  });
  ASSERT_NE(piece, file.tensors().end());
  EXPECT_EQ(piece->dtype, DType::kU32);
  EXPECT_EQ(piece->shape, (std::vector<std::size_t>{1, 2, 256, 8}));
  const LayerRecords records = take(row.extract(3));
  EXPECT_EQ(std::memcmp(piece->bytes.data(), records.key_words.data(), 256 * 8 * 4), 0);
  // Scales are f32 here, side by side with the biases in the records.
  const TensorView* scales = file.find(piece->name + ".scales");
  ASSERT_NE(scales, nullptr);
  EXPECT_EQ(scales->dtype, DType::kF32);
  for (std::size_t i = 0; i < 256; i++)
    ASSERT_EQ(std::memcmp(scales->bytes.data() + 4 * i, &records.key_params[2 * i], 4), 0) << i;
}

TEST(Session, AnotherIdentityIsRefusedNamingBoth) {
  const StatePlan plan = session_plan();
  StateStore store = take(StateStore::create(plan));
  const std::vector<int> ids = ids_from(1, 20);
  Row row = fed_row(store, ids);
  const Row* const rows[] = {&row};
  const TempFolder folder;
  save_rows(folder.path("s"), plan, rows, {{ids}});
  const SessionFile file = take(SessionFile::open(folder.path("s")));
  StateStore other = take(StateStore::create(plan));
  const struct {
    const char* field;
    std::string SessionIdentity::*text;
  } fields[] = {{"model", &SessionIdentity::model},       {"tokenizer", &SessionIdentity::tokenizer},
                {"rope", &SessionIdentity::rope},         {"adapter", &SessionIdentity::adapter},
                {"numerics", &SessionIdentity::numerics}, {"tenant", &SessionIdentity::tenant}};
  for (const auto& field : fields) {
    SessionIdentity wrong = test_identity();
    wrong.*field.text = "another";
    const Status s = file.restore(other, wrong).status();
    EXPECT_EQ(s.code(), StatusCode::kFailedPrecondition);
    const std::string& theirs = test_identity().*field.text;
    EXPECT_NE(s.message().find(field.field), std::string::npos) << s.message();
    EXPECT_NE(s.message().find("another"), std::string::npos) << s.message();
    if (field.text != &SessionIdentity::rope) {
      EXPECT_NE(s.message().find(theirs.empty() ? "none" : theirs), std::string::npos) << s.message();
    }
    EXPECT_EQ(other.live_rows(), 0);
  }
  StateStore foreign = take(StateStore::create(session_plan({.window = 41})));
  const Status s = file.restore(foreign, test_identity()).status();
  EXPECT_EQ(s.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(s.message().find("window=40"), std::string::npos) << s.message();
  EXPECT_NE(s.message().find("window=41"), std::string::npos) << s.message();
}

TEST(Session, AStoreWithoutRoomTakesNoRow) {
  const StatePlan plan = session_plan();
  StateStore store = take(StateStore::create(plan));
  const std::vector<int> ids = ids_from(1, 100);
  Row row = fed_row(store, ids);
  const Row* const rows[] = {&row, &row};
  const TempFolder folder;
  save_rows(folder.path("s"), plan, rows, {{ids, ids}});
  const SessionFile file = take(SessionFile::open(folder.path("s")));
  for (const Limits limits :
       {Limits{.rows = 1, .tokens = 200, .step_tokens = 8, .rollback = 2},
        Limits{.rows = 2, .tokens = 99, .step_tokens = 8, .rollback = 2},
        Limits{.rows = 2, .tokens = 128, .step_tokens = 8, .rollback = 2, .total_tokens = 129}}) {
    StateStore small = take(StateStore::create(session_plan({.limits = limits}), {.poison = true}));
    const Result<std::vector<Row>> back = file.restore(small, test_identity());
    EXPECT_EQ(back.status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(small.live_rows(), 0);
    for (int g = 0; g < small.plan().group_count(); g++) EXPECT_EQ(small.pool_use(g).owned, 0);
    EXPECT_TRUE(small.check().ok());
  }
}

TEST(Session, TheWriterRefusesWhatIsNoRow) {
  const StatePlan plan = session_plan();
  StateStore store = take(StateStore::create(plan));
  const std::vector<int> ids = ids_from(1, 20);
  Row row = fed_row(store, ids);
  SessionWriter writer = writer_of(plan);
  EXPECT_EQ(writer.add(row, std::span(ids).first(19)).code(), StatusCode::kInvalidArgument);
  std::vector<int> negative = ids;
  negative[3] = -1;
  EXPECT_EQ(writer.add(row, negative).code(), StatusCode::kInvalidArgument);
  RowRecords records = take(row.extract());
  EXPECT_EQ(writer.add(records, ids, 21).code(), StatusCode::kInvalidArgument);
  records.layers.pop_back();
  EXPECT_EQ(writer.add(records, ids, 0).code(), StatusCode::kInvalidArgument);
  records.signature = "another";
  EXPECT_EQ(writer.add(records, ids, 0).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(writer.rows(), 0);
  EXPECT_EQ(writer.bytes(), 0u);
  SessionIdentity broken = test_identity();
  broken.tenant = "\xff";
  EXPECT_EQ(SessionWriter::create(plan, broken).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace windrow::testing
