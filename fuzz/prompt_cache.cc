// mlx-lm's prompt-cache files: whatever the bytes are, a status or rows that a store of the file's own plan
// takes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "windrow/prompt_cache.h"
#include "windrow/store.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windrow;
  Result<MlxPromptCache> file = MlxPromptCache::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.ok()) return 0;
  // Small limits: what a plan would map is not the reader's matter.
  Result<StatePlan> plan = file->plan({.rows = file->rows(), .tokens = 64, .step_tokens = 8});
  if (!plan.ok() || plan->bytes() > std::size_t{64} << 20) return 0;
  Result<std::vector<RowRecords>> rows = file->records(*plan);
  if (!rows.ok()) return 0;
  Result<StateStore> store = StateStore::create(*plan);
  if (!store.ok()) return 0;
  for (const RowRecords& records : *rows) {
    Result<Row> row = store->adopt(records);
    if (row.ok() && row->length() != records.length) std::abort();
  }
  return 0;
}
