// Models, goldens and forward passes for the tests of model and engine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "windrow/model.h"
#include "windrow/store.h"
#include "windrow/threads.h"

namespace windrow::testing {

inline const std::string kStoryteller = WINDROW_MODELS "/storyteller";
inline const std::string kStorytellerDraft = WINDROW_MODELS "/storyteller-draft";  // of the same vocabulary
inline const std::string kTiny = WINDROW_TEST_DATA "/hf/gemma3";                   // random weights, W = 8

// A value that the test can't go on without.
template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(*result);
}
inline void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

class Golden {
 public:
  explicit Golden(const std::string& folder)
      : file_(must(SafetensorsFile::open(folder + "/golden.safetensors"))) {}
  std::vector<float> floats(const std::string& name) const { return copy<float>(name); }
  std::vector<std::int32_t> ids(const std::string& name) const { return copy<std::int32_t>(name); }

 private:
  template <class T>
  std::vector<T> copy(const std::string& name) const {
    const TensorView* view = file_.find(name);
    if (view == nullptr) throw std::runtime_error("no golden " + name);
    std::vector<T> values(view->bytes.size() / sizeof(T));
    std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
    return values;
  }
  SafetensorsFile file_;
};

// A model with a store and a runner; rows come and go.
struct Session {
  ThreadPool pool;
  Model model;
  StatePlan plan;
  StateStore store;
  Runner runner;

  Session(const std::string& folder, const KvChoice& kv, const Limits& limits, int threads = 1,
          const LoadOptions& options = {})
      : pool(must(ThreadPool::create(threads))),
        model(must(Model::load(folder, pool, options))),
        plan(must(model.plan(kv, limits))),
        store(must(StateStore::create(plan, {.poison = true}))),
        runner(must(Runner::create(model, plan, pool))) {}

  std::size_t vocab() const { return static_cast<std::size_t>(model.info().vocab_size); }

  // One step over rows: lengths[r] of `ids` each; the logits of all tokens.
  std::vector<float> step(const std::vector<Row*>& rows, const std::vector<int>& lengths,
                          const std::vector<std::int32_t>& ids) {
    Step step = must(store.begin(rows, lengths));
    std::vector<std::int32_t> wanted(ids.size());
    for (std::size_t i = 0; i < wanted.size(); i++) wanted[i] = static_cast<std::int32_t>(i);
    std::vector<float> logits(ids.size() * vocab());
    must(runner.forward(step, ids, wanted, logits));
    must(step.resolve());
    return logits;
  }

  // The logits of all ids in a new row, fed in chunks.
  std::vector<float> logits(const std::vector<std::int32_t>& ids, std::size_t chunk) {
    Row row = must(store.new_row());
    std::vector<float> all;
    for (std::size_t i = 0; i < ids.size(); i += chunk) {
      const std::size_t n = std::min(chunk, ids.size() - i);
      const auto from = ids.begin() + static_cast<std::ptrdiff_t>(i);
      const std::vector<float> part =
          step({&row}, {static_cast<int>(n)},
               std::vector<std::int32_t>(from, from + static_cast<std::ptrdiff_t>(n)));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
};

inline std::vector<float> slice(const std::vector<float>& v, std::size_t begin, std::size_t count) {
  const auto from = v.begin() + static_cast<std::ptrdiff_t>(begin);
  return std::vector<float>(from, from + static_cast<std::ptrdiff_t>(count));
}

// The largest difference as a share of the range (largest - smallest) of the golden logits.
inline double relative_error(const std::vector<float>& got, const std::vector<float>& golden) {
  if (got.size() != golden.size()) return 1e9;
  const auto [low, high] = std::minmax_element(golden.begin(), golden.end());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); i++) {
    const double d = std::abs(static_cast<double>(got[i]) - static_cast<double>(golden[i]));
    worst = std::max(worst, std::isnan(d) ? 1e9 : d);
  }
  return worst / (static_cast<double>(*high) - static_cast<double>(*low));
}

// Equal bits, NaN payloads included.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline std::int32_t best_of(const float* logits, std::size_t vocab) {
  return static_cast<std::int32_t>(std::max_element(logits, logits + vocab) - logits);
}

}  // namespace windrow::testing
