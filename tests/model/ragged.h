// The three rows of unequal prompts that each reference model decodes together.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "model/model_fixture.h"

namespace windrow::testing {

struct RaggedRow {
  std::vector<std::int32_t> prompt, ids;
  std::vector<float> want;
};

inline std::vector<RaggedRow> ragged_rows(const std::string& folder) {
  const Golden golden(folder);
  std::vector<RaggedRow> rows;
  for (int r = 0; r < 3; r++) {
    const std::string name = fmt::format("row{}", r);
    rows.push_back(
        {golden.ids(name + "_prompt"), golden.ids(name + "_ids"), golden.floats(name + "_logits")});
  }
  return rows;
}

// The prompts of all rows in one ragged step, then 23 steps of one token a row, as a batch server
// would run them; the logits of each row's last token of every step.
inline std::vector<std::vector<float>> run_as_batch(Session& s, const std::vector<RaggedRow>& data) {
  std::vector<Row> rows;
  std::vector<Row*> pointers;
  for (std::size_t r = 0; r < data.size(); r++) rows.push_back(must(s.store.new_row()));
  for (Row& row : rows) pointers.push_back(&row);
  std::vector<std::vector<float>> out(data.size());
  for (std::size_t i = 0; i < 24; i++) {
    std::vector<int> lengths;
    std::vector<std::int32_t> ids;
    for (const RaggedRow& d : data) {
      if (i == 0) {
        ids.insert(ids.end(), d.prompt.begin(), d.prompt.end());
      } else {
        ids.push_back(d.ids[d.prompt.size() + i - 1]);
      }
      lengths.push_back(i == 0 ? static_cast<int>(d.prompt.size()) : 1);
    }
    const std::vector<float> logits = s.step(pointers, lengths, ids);
    std::size_t end = 0;
    for (std::size_t r = 0; r < data.size(); r++) {
      end += static_cast<std::size_t>(lengths[r]);
      const std::vector<float> last = slice(logits, (end - 1) * s.vocab(), s.vocab());
      out[r].insert(out[r].end(), last.begin(), last.end());
    }
  }
  return out;
}

}  // namespace windrow::testing
