// Any bytes as a session: refused, or restored whole; the store is never left with half a row. Inputs are
// read as they are, and once more with the checksums that they should have, so that what stands behind those
// is reached too.
#include "windrow/session.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "store/sealed_file.h"
#include "windrow/store.h"

namespace {

using namespace windrow;  // NOLINT

// One file in memory, for reading.
class OneFile : public FileOps {
 public:
  explicit OneFile(const std::string& bytes) : bytes_(bytes) {}
  int open(const char*, bool) override { return 3; }
  int close(int) override { return 0; }
  int status(int, struct stat* info) override {
    *info = {};
    info->st_mode = S_IFREG | 0600;
    info->st_size = static_cast<off_t>(bytes_.size());
    return 0;
  }
  ssize_t read_at(int, void* data, std::size_t size, std::uint64_t offset) override {
    if (offset >= bytes_.size()) return 0;
    const std::size_t n = std::min(size, bytes_.size() - static_cast<std::size_t>(offset));
    std::memcpy(data, bytes_.data() + offset, n);
    return static_cast<ssize_t>(n);
  }

 private:
  const std::string& bytes_;
};

// The plan of the seeds (tests/store/damage_test.cc, tiny_plan).
StateStore make_store() {
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
          .recurrent({.layers = {2},
                      .shape = {{.key_heads = 1, .value_heads = 2, .key_dim = 16, .value_dim = 4},
                                {.channels = 5, .taps = 3}}})
          .page_tokens(2)
          .build();
  if (!plan.ok()) std::abort();
  Result<StateStore> store = StateStore::create(*plan);
  if (!store.ok()) std::abort();
  return std::move(*store);
}

void read(const std::string& bytes) {
  static StateStore store = make_store();
  OneFile ops(bytes);
  const Result<SessionFile> file = SessionFile::open("fuzz", ops);
  if (!file.ok()) return;
  (void)file->to_json(true);
  const Status verified = file->verify();
  {
    const Result<std::vector<Row>> rows = file->restore(store, file->identity());
    if (rows.ok() && !verified.ok()) std::abort();
    for (std::size_t r = 0; rows.ok() && r < rows->size(); r++) {
      const Result<RowRecords> records = (*rows)[r].extract_retained();
      if (!records.ok() || records->length != file->row(static_cast<int>(r)).length) std::abort();
    }
  }
  if (store.live_rows() != 0 || store.pool_use(0).owned != 0 || store.pool_use(1).owned != 0 ||
      !store.check().ok())
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  const windrow::testing::Split split = windrow::testing::split_file(bytes);
  if (!split.json.empty()) read(windrow::testing::sealed(split.json, split.data));
  return 0;
}
