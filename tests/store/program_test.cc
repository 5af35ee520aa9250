// Random programs of growing, forking, cutting and converting rows, in two stores. The one never loses its
// rows; those of the other are saved, dropped and restored again and again, all in one file, into stores of
// other page sizes. They can't be told apart.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "store/session_rows.h"
#include "support/memory_disk.h"
#include "windrow/session.h"

namespace windrow::testing {
namespace {

constexpr int kMaxRows = 4, kMaxLength = 700;

struct Op {
  int kind = 0, row = 0, amount = 0;
};

class Twins {
 public:
  explicit Twins(bool recurrent) : recurrent_(recurrent), stays_(store(16)), moves_(store(16)) {}

  void apply(const Op& op) {
    const int rows = static_cast<int>(stayed_.size());
    if (rows == 0 || (op.kind == 0 && rows < kMaxRows)) return add(stays_.new_row(), moves_.new_row(), {});
    const auto r = static_cast<std::size_t>(op.row % rows);
    switch (op.kind) {
      case 1:
        if (rows == kMaxRows) return drop(r);
        return add(stayed_[r].fork(), moved_[r].fork(), ids_[r]);
      case 2: return cut(r, op.amount);
      case 3: RC_ASSERT(stayed_[r].convert(1).ok() && moved_[r].convert(1).ok()); return;
      case 4:
      case 5: return save_and_restore(op.amount);
      default: return grow(r, op.amount);
    }
  }

  void check() const {
    for (std::size_t r = 0; r < stayed_.size(); r++) {
      RC_ASSERT(stayed_[r].length() == moved_[r].length());
      RC_ASSERT(stayed_[r].minimum_length() == moved_[r].minimum_length());
      RC_ASSERT(*stayed_[r].extract_retained() == *moved_[r].extract_retained());
    }
    RC_ASSERT(moves_.live_rows() == static_cast<int>(moved_.size()));
    RC_ASSERT(moves_.check().ok());
  }

 private:
  StateStore store(int page_tokens) const {
    Result<StateStore> store = StateStore::create(
        session_plan(
            {.limits = {.rows = kMaxRows, .tokens = kMaxLength + 200, .step_tokens = 256, .rollback = 3},
             .page_tokens = page_tokens,
             .recurrent = recurrent_}),
        {.poison = true});
    return std::move(*store);
  }
  void add(Result<Row> a, Result<Row> b, std::vector<int> ids) {
    RC_ASSERT(a.ok() && b.ok());
    stayed_.push_back(std::move(*a));
    moved_.push_back(std::move(*b));
    ids_.push_back(std::move(ids));
  }
  void drop(std::size_t r) {
    const auto at = static_cast<std::ptrdiff_t>(r);
    stayed_.erase(stayed_.begin() + at);
    moved_.erase(moved_.begin() + at);
    ids_.erase(ids_.begin() + at);
  }
  void cut(std::size_t r, int amount) {
    const int lowest = stayed_[r].minimum_length(), room = stayed_[r].length() - lowest;
    const int length = lowest + amount % (room + 1);
    RC_ASSERT(stayed_[r].truncate(length).ok() && moved_[r].truncate(length).ok());
    ids_[r].resize(static_cast<std::size_t>(length));
    if (lowest > 0) RC_ASSERT(!moved_[r].truncate(lowest - 1).ok());
  }
  void grow(std::size_t r, int amount) {
    const int n = amount % 5 == 0 ? amount % 150 : amount % 7;
    if (stayed_[r].length() + n > kMaxLength) return;
    std::vector<int> ids;
    for (int i = 0; i < n; i++) ids.push_back(next_id_++);
    RC_ASSERT(feed(stays_, stayed_[r], ids).ok() && feed(moves_, moved_[r], ids).ok());
    ids_[r].insert(ids_[r].end(), ids.begin(), ids.end());
  }
  void save_and_restore(int amount) {
    Result<SessionWriter> writer = SessionWriter::create(moves_.plan(), test_identity());
    RC_ASSERT(writer.ok());
    for (std::size_t r = 0; r < moved_.size(); r++) RC_ASSERT(writer->add(moved_[r], ids_[r]).ok());
    MemoryDisk disk;
    RC_ASSERT(writer->save("s", disk).ok());
    moved_.clear();
    RC_ASSERT(moves_.live_rows() == 0);
    constexpr int kPages[] = {1, 4, 16, 64};
    moves_ = store(kPages[amount % 4]);
    const Result<SessionFile> file = SessionFile::open("s", disk);
    RC_ASSERT(file.ok());
    Result<std::vector<Row>> rows =
        file->restore(moves_, test_identity(), amount % 3 == 0 ? SessionCheck::kAll : SessionCheck::kXxh3);
    RC_ASSERT(rows.ok());
    moved_ = std::move(*rows);
    for (std::size_t r = 0; r < moved_.size(); r++)
      RC_ASSERT(file->row(static_cast<int>(r)).tokens == ids_[r]);
  }

  bool recurrent_;
  StateStore stays_, moves_;
  std::vector<Row> stayed_, moved_;
  std::vector<std::vector<int>> ids_;
  int next_id_ = 1;
};

void run_programs(bool recurrent) {
  const auto number = [](int below) { return *rc::gen::inRange(0, below); };
  const int length = number(60);
  Twins twins(recurrent);
  for (int i = 0; i < length; i++) {
    twins.apply({number(12), number(kMaxRows), number(1000)});
    twins.check();
  }
}

RC_GTEST_PROP(SessionProgram, SavedAndRestoredRowsGoOnAsTheirTwins, ()) { run_programs(false); }
RC_GTEST_PROP(SessionProgram, RecurrentRowsToo, ()) { run_programs(true); }

}  // namespace
}  // namespace windrow::testing
