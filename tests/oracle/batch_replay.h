// Replays a golden trace of a batched cache step by step, comparing everything that was recorded; and
// compares the masks recorded before updates with a list of each row's tokens.
#pragma once

#include <functional>
#include <set>
#include <variant>

#include "oracle/trace.h"

namespace windrow::oracle {

// One more or less of either kind, under the names that the steps use.
using Cache = std::variant<BatchRing, BatchKv, SerialRing, SerialKv>;

template <class T>
inline constexpr bool kBatched = std::is_same_v<T, BatchRing> || std::is_same_v<T, BatchKv>;

inline RowColumns row_of(const Cache& cache) {
  if (const auto* ring = std::get_if<SerialRing>(&cache)) return BatchRing::row_of(*ring);
  return std::get<SerialKv>(cache).row();
}

// Where a mask differs from the position window: tokens wrongly hidden, by step.
struct Difference {
  int step, row;
  std::set<int> hidden, shown;
};

struct Report {
  int steps = 0, masks = 0, slots = 0, queries = 0;
  std::vector<std::string> not_the_window;  // "case step N"
  std::vector<Difference> differences;
};

class Replay {
 public:
  // Is shown every cache after every step, when it was found equal to the trace.
  using Observer = std::function<void(const nlohmann::json& step, const Cache&)>;

  Replay(const Trace& trace, Report& report, Observer observer = {})
      : trace_(trace), report_(report), observer_(std::move(observer)) {
    const nlohmann::json& size = trace.json().at("max_size");
    if (!size.is_null()) max_size_ = size.get<int>();
  }

  void run() {
    for (const nlohmann::json& step : trace_.steps()) {
      i_ = step.at("i");
      SCOPED_TRACE(trace_.name() + " step " + std::to_string(i_) + " " + step.at("op").get<std::string>());
      apply(step, step.at("op"), step.at("cache"));
      expect_state(step, caches_.at(step.at("cache")));
      report_.steps++;
      if (observer_) observer_(step, caches_.at(step.at("cache")));
      if (::testing::Test::HasFailure()) return;
    }
  }

 private:
  bool ring() const { return max_size_.has_value(); }

  void apply(const nlohmann::json& step, const std::string& op, const std::string& name) {
    if (step.contains("rows")) rows_[name] = step.at("rows").get<Ints>();
    if (op == "new") {
      const Ints padding = step.at("left_padding");
      if (ring()) caches_.insert_or_assign(name, BatchRing(*max_size_, padding));
      if (!ring()) caches_.insert_or_assign(name, BatchKv(padding));
      for (std::size_t b = 0; b < padding.size(); b++) padding_left_[rows_[name][b]] = padding[b];
    } else if (op == "new_serial") {
      if (ring()) caches_.insert_or_assign(name, SerialRing(*max_size_));
      if (!ring()) caches_.insert_or_assign(name, SerialKv());
    } else if (op == "merge") {
      std::vector<RowColumns> rows;
      for (const std::string& source : step.at("sources").get<std::vector<std::string>>()) {
        rows.push_back(row_of(caches_.at(source)));
      }
      if (ring()) caches_.insert_or_assign(name, BatchRing::merge(*max_size_, rows));
      if (!ring()) caches_.insert_or_assign(name, BatchKv::merge(rows));
    } else if (op == "extract") {
      const Cache& source = caches_.at(step.at("source"));
      const int index = step.at("index");
      if (ring()) caches_.insert_or_assign(name, std::get<BatchRing>(source).extract(index));
      if (!ring()) caches_.insert_or_assign(name, std::get<BatchKv>(source).extract(index));
    } else if (op == "update") {
      std::visit([&](auto& c) { update(step, name, c); }, caches_.at(name));
    } else {
      std::visit([&](auto& c) { change(step, op, name, c); }, caches_.at(name));
    }
  }

  // Operations of batched caches only.
  template <class C>
  void change(const nlohmann::json& step, const std::string& op, const std::string& name, C& cache) {
    if constexpr (kBatched<C>) {
      if (op == "prepare") {
        const Ints lengths = step.at("lengths_arg"), padding = step.at("right_padding_arg");
        if constexpr (std::is_same_v<C, BatchRing>) cache.prepare(lengths, padding);
        if constexpr (std::is_same_v<C, BatchKv>) cache.prepare(padding);
        for (std::size_t b = 0; b < lengths.size(); b++) room_[rows_[name][b]] = lengths[b];
      } else if (op == "finalize") {
        cache.finalize();
        room_.clear();
      } else if (op == "filter") {
        cache.filter(step.at("keep").get<Ints>());
      } else if (op == "extend") {
        cache.extend(std::get<C>(caches_.at(step.at("other"))));
      } else if (op == "trim_prompt_cache") {
        bool trimmable = true;
        if constexpr (std::is_same_v<C, BatchRing>) trimmable = cache.is_trimmable();
        EXPECT_EQ(trimmable, step.at("trimmable").get<bool>());
        const int n = cache.trim(step.at("n"));
        EXPECT_EQ(n, step.at("trimmed"));
        for (const int r : rows_[name]) {
          ASSERT_GE(held_[r].size(), static_cast<std::size_t>(n));
          held_[r].resize(held_[r].size() - n);
        }
      } else {
        FAIL() << "unknown op";
      }
      return;
    }
    FAIL() << "not for a serial cache";
  }

  template <class C>
  void update(const nlohmann::json& step, const std::string& name, C& cache) {
    const Kv fresh = trace_.kv("in", i_);
    ASSERT_EQ(fresh.columns(), step.at("S"));
    ASSERT_EQ(fresh.batch(), static_cast<int>(rows_[name].size()));
    std::vector<Ints> queries;
    for (int b = 0; b < fresh.batch(); b++) queries.push_back(feed(rows_[name][b], fresh, b));
    if constexpr (kBatched<C>) {
      const Mask mask = cache.make_mask(fresh.columns());
      EXPECT_EQ(mask, trace_.mask(step.at("premask"))) << "premask";
      report_.masks++;
      compare_with_window(step, mask, rows_[name], queries);
    }
    const Kv out = cache.update(fresh);
    expect_bits(out, trace_.kv("out", i_));
    fed_.expect_slots(out, step.at("slot_tokens").get<std::vector<Ints>>());
    report_.slots++;
  }

  // Notes the columns fed to a row; returns its tokens' numbers, -1 for columns that are padding.
  Ints feed(int row, const Kv& fresh, int b) {
    Ints numbers;
    for (int t = 0; t < fresh.columns(); t++) {
      const int number = 1000 * row + columns_fed_[row]++;
      fed_.feed(number, fresh, b, t);
      bool padding = padding_left_[row] > 0;
      if (padding) padding_left_[row]--;
      if (const auto room = room_.find(row); !padding && room != room_.end()) padding = room->second-- <= 0;
      if (!padding) held_[row].push_back(number);
      numbers.push_back(padding ? -1 : number);
    }
    return numbers;
  }

  // Does each query see exactly the newest max_size tokens up to its own?
  void compare_with_window(const nlohmann::json& step, const Mask& mask, const Ints& rows,
                           const std::vector<Ints>& queries) {
    const auto slots = step.at("slot_tokens").get<std::vector<Ints>>();
    std::set<int> rows_that_differ;
    for (int b = 0; b < mask.batch; b++) {
      const Ints& held = held_[rows[b]];
      for (int q = 0; q < mask.queries; q++) {
        if (queries[b][q] < 0) continue;
        const auto end = std::ranges::find(held, queries[b][q]) + 1;
        const auto before = static_cast<int>(end - held.begin());
        const std::set<int> want(end - std::min(before, max_size_.value_or(before)), end);
        std::set<int> seen;
        for (int t = 0; t < mask.columns; t++) {
          if (mask.at(b, q, t)) seen.insert(slots[b][t]);
        }
        report_.queries++;
        if (seen == want) continue;
        Difference d{i_, rows[b], {}, {}};
        std::ranges::set_difference(want, seen, std::inserter(d.hidden, d.hidden.end()));
        std::ranges::set_difference(seen, want, std::inserter(d.shown, d.shown.end()));
        report_.differences.push_back(d);
        const std::string where = trace_.name() + " step " + std::to_string(i_);
        if (report_.not_the_window.empty() || report_.not_the_window.back() != where) {
          report_.not_the_window.push_back(where);
        }
      }
    }
  }

  void expect_state(const nlohmann::json& step, const Cache& cache) {
    std::visit([&](const auto& c) { expect_state_of(step, c); }, cache);
  }
  template <class C>
  void expect_state_of(const nlohmann::json& step, const C& cache) {
    EXPECT_EQ(cache.buffer().columns(), step.at("buffer_len"));
    if (step.contains("buffer_slots")) {
      Kv buffer = cache.buffer();
      if constexpr (std::is_same_v<C, BatchKv>) buffer = buffer.cut(0, cache.idx());
      expect_bits(buffer, trace_.kv("buf", i_));
      fed_.expect_slots(buffer, step.at("buffer_slots").get<std::vector<Ints>>());
      report_.slots++;
    }
    if constexpr (!std::is_same_v<C, SerialKv>) {
      EXPECT_EQ(cache.idx(), step.at("idx"));
    }
    if constexpr (!kBatched<C>) {
      EXPECT_EQ(cache.offset(), step.at("offset"));
      EXPECT_EQ(std::min(cache.offset(), max_size_.value_or(cache.offset())), step.at("size"));
    } else {
      EXPECT_EQ(cache.row_offset(), step.at("offset").get<Ints>());
      EXPECT_EQ(cache.left_padding(), step.at("left_padding").get<Ints>());
      expect_pending(step, cache);
      // An operation that only prepares has no masks recorded.
      EXPECT_EQ(step.contains("masks"), step.at("op") != "prepare");
      if (step.contains("masks")) expect_masks(step.at("masks"), cache);
    }
  }
  void expect_pending(const nlohmann::json& step, const BatchRing& ring) {
    EXPECT_EQ(ring.size(), step.at("size"));
    EXPECT_EQ(ring.offset(), step.at("offset_scalar"));
    EXPECT_EQ(ring.rotated(), step.at("rotated").get<bool>());
    EXPECT_EQ(ring.is_trimmable(), step.at("is_trimmable").get<bool>());
    EXPECT_EQ(ring.lengths(), step.at("lengths").is_null() ? Ints{} : step.at("lengths").get<Ints>());
  }
  void expect_pending(const nlohmann::json& step, const BatchKv& kv) {
    EXPECT_EQ(kv.idx(), step.at("size"));
    const nlohmann::json& padding = step.at("right_padding");
    EXPECT_EQ(kv.right_padding(), padding.is_null() ? Ints{} : padding.get<Ints>());
  }
  template <class C>
  void expect_masks(const nlohmann::json& masks, const C& cache) {
    for (const nlohmann::json& m : masks) {
      std::optional<int> window;
      if (!m[1].is_null()) window = m[1].get<int>();
      EXPECT_EQ(cache.make_mask(m[0], window), trace_.mask(m[2])) << m[2];
      report_.masks++;
    }
  }

  const Trace& trace_;
  Report& report_;
  Observer observer_;
  std::optional<int> max_size_;  // none: full attention
  int i_ = 0;
  std::map<std::string, Cache> caches_;
  std::map<std::string, Ints> rows_;  // of a cache: its rows' numbers
  std::map<int, int> padding_left_;   // of a row: columns of left padding still to come
  std::map<int, int> room_;           // of a row: tokens still to come before right padding
  std::map<int, int> columns_fed_;
  std::map<int, Ints> held_;  // of a row: its tokens, in order of position, none dropped
  Tokens fed_;
};

}  // namespace windrow::oracle
