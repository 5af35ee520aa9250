// Sessions that were damaged, or made to do damage: refused whole, with the store as it was.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "store/sealed_file.h"
#include "store/session_rows.h"
#include "support/memory_disk.h"
#include "windrow/session.h"

namespace windrow::testing {
namespace {

// As small as a session with all kinds of tensors gets.
StatePlan tiny_plan() {
  Result<StatePlan> plan =
      StatePlan::Builder({.rows = 4, .tokens = 32, .step_tokens = 8})
          .attention(
              {.layers = {0}, .head_dim = 32, .keys = Codec::affine(2, 32), .values = Codec::affine(2, 32)})
          .attention({.layers = {1},
                      .window = 3,
                      .sinks = 1,
                      .head_dim = 16,
                      .keys = Codec::bf16(),
                      .values = Codec::bf16(),
                      .delayed = Delayed{.start = 4, .keys = Codec::f32(), .values = Codec::f32()}})
          .recurrent({.layers = {2}, .shape = kRowShape})
          .page_tokens(2)
          .build();
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *plan;
}

class DamagedSession : public ::testing::Test {
 protected:
  DamagedSession() : plan_(tiny_plan()), store_(StateStore::create(plan_, {.poison = true})) {
    Row row = fed_row(*store_, ids_from(1, 6), 8), fork = *row.fork();
    Result<SessionWriter> writer = SessionWriter::create(plan_, test_identity());
    EXPECT_TRUE(writer->add(row, ids_from(1, 7)).ok());
    const int id[] = {9};
    EXPECT_TRUE(feed(*store_, fork, id).ok());
    std::vector<int> ids = ids_from(1, 6);
    ids.push_back(9);
    EXPECT_TRUE(writer->add(fork, ids).ok());
    EXPECT_TRUE(writer->save("s", disk_).ok());
    file_ = *disk_.content("s");
  }

  // What reading the whole of it says; the store must be as it was unless that is ok.
  Status read(std::string bytes, SessionCheck check) {
    MemoryDisk disk;
    disk.put("s", std::move(bytes));
    const Result<SessionFile> file = SessionFile::open("s", disk);
    if (!file.ok()) return file.status();
    const Result<std::vector<Row>> rows = file->restore(*store_, test_identity(), check);
    if (rows.ok()) return Status();
    EXPECT_EQ(store_->live_rows(), 0);
    for (int g = 0; g < plan_.group_count(); g++) {
      EXPECT_EQ(store_->pool_use(g).owned, 0);
      EXPECT_EQ(store_->delayed_pool_use(g).owned, 0);
    }
    EXPECT_EQ(store_->state_pool_use(0).owned, 0);
    return rows.status();
  }

  StatePlan plan_;
  Result<StateStore> store_;
  MemoryDisk disk_;
  std::string file_;
};

TEST_F(DamagedSession, TheIntactOneIsRead) {
  for (const SessionCheck check : {SessionCheck::kAll, SessionCheck::kXxh3}) {
    const Status s = read(file_, check);
    EXPECT_TRUE(s.ok()) << s.message();
  }
  const Split split = split_file(file_);
  EXPECT_EQ(sealed(split.json, split.data), file_);
}

TEST_F(DamagedSession, EverySingleBitFlipIsRefused) {
  std::string bytes = file_;
  int flips = 0;
  for (std::size_t i = 0; i < bytes.size(); i++) {
    for (int bit = 0; bit < 8; bit++, flips++) {
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      const Status s = read(bytes, SessionCheck::kXxh3);
      ASSERT_EQ(s.code(), StatusCode::kCorrupt) << "byte " << i << " bit " << bit << ": " << s.message();
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
    }
  }
  std::printf("%d flips\n", flips);
}

TEST_F(DamagedSession, EveryTruncationAndEveryLongerFileIsRefused) {
  for (std::size_t n = 0; n < file_.size(); n++) {
    const Status s = read(file_.substr(0, n), SessionCheck::kXxh3);
    ASSERT_EQ(s.code(), StatusCode::kCorrupt) << n << " bytes: " << s.message();
  }
  for (const std::string& more : {std::string(1, '\0'), std::string(" "), file_}) {
    EXPECT_EQ(read(file_ + more, SessionCheck::kXxh3).code(), StatusCode::kCorrupt);
  }
}

// A tensor that was changed together with its XXH3 and the header's: only SHA-256 tells.
TEST_F(DamagedSession, Sha256TellsAFileThatWasMadeToLookIntact) {
  Split split = split_file(file_);
  split.data.back() = static_cast<char>(split.data.back() ^ 1);
  std::string forged = sealed(split.json, split.data);
  const std::string honest = file_.substr(0, forged.size() - split.data.size());
  const std::optional<session::SealPlaces> places = session::seal_places(honest);
  ASSERT_TRUE(places);
  // The digest that the file is known by, and an XXH3 that fits.
  forged.replace(places->sha256, kSha256Digits, honest, places->sha256, kSha256Digits);
  const std::string header = forged.substr(0, honest.size());
  forged.replace(places->xxh3, kXxh3Digits, hex(session::header_xxh3(header, *places)));
  EXPECT_TRUE(read(forged, SessionCheck::kXxh3).ok());
  const Status s = read(forged, SessionCheck::kAll);
  EXPECT_EQ(s.code(), StatusCode::kCorrupt);
  EXPECT_NE(s.message().find("SHA-256"), std::string::npos) << s.message();
}

// Texts of the header that are replaced, everything being sealed again. What stands in the index is a string
// of JSON inside JSON.
TEST_F(DamagedSession, HostileHeadersAreRefusedByName) {
  const Split split = split_file(file_);
  const auto q = [](std::string text) {  // ' to an escaped quote
    std::string out;
    for (const char c : text) out += c == '\'' ? std::string("\\\"") : std::string(1, c);
    return out;
  };
  const struct {
    std::string find, replace, message;
    StatusCode code = StatusCode::kCorrupt;
  } cases[] = {
      {"\"format\":\"windrow-session\"", "\"format\":\"something\"", "no session"},
      {"\"version\":\"1\"", "\"version\":\"2\"", "format \"2\", this program reads 1",
       StatusCode::kUnsupported},
      {q("'length':6"), q("'length':5"), ""},
      {q("'length':6"), q("'length':-1"), "length"},
      {q("'length':6"), q("'length':2147483646"), ""},
      {q("'length':6"), q("'length':99999999999999999999"), "length"},
      {q("'length':6"), q("'length':'6'"), "length"},
      {q("'minimum_length':6"), q("'minimum_length':7"), "minimum_length"},
      {q("'piece_positions':256"), q("'piece_positions':0"), "piece_positions"},
      {q("'piece_positions':256"), q("'piece_positions':128"), "piece_positions", StatusCode::kUnsupported},
      {q("'tokens':[7,7]"), q("'tokens':[7,8]"), "tensor 1"},
      {q("'tokens':[7,7]"), q("'tokens':[7]"), "tokens"},
      {q("'tokens':[7,7]"), q("'tokens':[7,7,0]"), "belong to no row"},
      {q("'tokens':[7,7]"), q("'tokens':[2147483647,7]"), "tensor 0"},
      {q("'tokens':1"), q("'tokens':2"), "tokens"},
      {q("'begin':0"), q("'begin':1"), ""},
      {q("'pieces':[0"), q("'pieces':[1"), "piece 1"},
      {q("'pieces':[0"), q("'pieces':[99"), "piece 99"},
      {q("'pieces':[0"), q("'pieces':[-1"), "pieces"},
      {q("'pieces':[0]"), q("'pieces':[]"), "no piece"},
      {q("'pieces':[0]"), q("'pieces':[0,0]"), "2 pieces"},
      {q("'end':7"), q("'end':257"), ""},
      {q("'end':7"), q("'end':2147483647"), ""},
      {q("'group':0"), q("'group':7"), "group"},
      {q("'group':0"), q("'group':1"), ""},
      {q("'converted':true,'end':7,'group':0"), q("'converted':false,'end':7,'group':0"), ""},
      {q("'sinks':1"), q("'sinks':2147483647"), ""},
      {q("'states':[2]"), q("'states':[1]"), "states"},
      {q("'states':[2]"), q("'states':[3]"), ""},
      {q("'states':[2]"), q("'states':[2,2]"), "recurrent group"},
      {q("'states':[2]"), q("'states':[65536]"), ""},
      {q("'states':[1]"), q("'states':[2]"), "states"},
      {q("'kv_heads':1"), q("'kv_heads':0"), "kv_heads"},
      {q("'kv_heads':1"), q("'kv_heads':2"), "signature"},
      {q("'kv_heads':1"), q("'kv_heads':2147483647"), ""},
      {q("'head_dim':32"), q("'head_dim':33"), ""},
      {q("'keys':'q2:32'"), q("'keys':'q9'"), "keys"},
      {q("'layers':[0]"), q("'layers':[1]"), ""},
      {q("'layers':[0]"), q("'layers':[2147483647]"), ""},
      {q("'layers':[0]"), q("'layers':[]"), ""},
      {q("'taps':3"), q("'taps':0"), "taps"},
      {q("'gate':'scalar'"), q("'gate':'none'"), "gate"},
      {q("'tenant':'tests'"), q("'tenant':3"), "tenant"},
      {q("'tenant':'tests'"), q("'other':'tests'"), "tenant"},
      {"\"tokens.0\":", "\"../../etc/passwd\":", "tensor 0"},
      {"\"dtype\":\"I32\"", "\"dtype\":\"F32\"", "tensor 0"},
      {"\"shape\":[7]", "\"shape\":[7,1]", "tensor 0"},
      {"\"index\":\"{", "\"index\":\"[", "index"},
      {"\"index\":", "\"indeks\":", "index"},
      {"\"groups\":", "\"grups\":", "groups"},
      {"\"checksums\":\"", "\"checksums\":\"0", "checksums"},
      {"\"signature\":\"windrow", "\"signature\":\"windros", "signature"},
  };
  for (const auto& c : cases) {
    std::string json = split.json;
    const std::size_t at = json.find(c.find);
    ASSERT_NE(at, std::string::npos) << c.find << " is not in " << json;
    json.replace(at, c.find.size(), c.replace);
    const Status s = read(sealed(json, split.data), SessionCheck::kAll);
    EXPECT_EQ(s.code(), c.code) << c.replace << ": " << s.message();
    EXPECT_NE(s.message().find(c.message), std::string::npos) << c.replace << ": " << s.message();
    EXPECT_EQ(s.message().find('\n'), std::string::npos) << s.message();
  }
}

TEST_F(DamagedSession, TokensBelowZeroAreRefused) {
  Split split = split_file(file_);
  split.data.replace(0, 4, "\xff\xff\xff\xff");
  const Status s = read(sealed(split.json, split.data), SessionCheck::kAll);
  EXPECT_EQ(s.code(), StatusCode::kCorrupt);
  EXPECT_NE(s.message().find("below 0"), std::string::npos) << s.message();
}

}  // namespace
}  // namespace windrow::testing
