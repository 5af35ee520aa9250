// The measuring of bench: prefill of one row and decode of several, with probes of the machine beside them.
#pragma once

#include <cstddef>

#include "windrow/model.h"
#include "windrow/plan.h"
#include "windrow/threads.h"

namespace windrow::cli {

struct BenchSettings {
  int rows = 1, context = 512, prompt = 512, steps = 16, repeats = 3;
};

// What was measured; rates are medians of the repeats, shares are of rates measured beside each repeat.
struct BenchFigures {
  double prefill_tokens_per_s = 0, prefill_of_fma = 0;
  double decode_tokens_per_s = 0, decode_of_read = 0;
  double one_row_tokens_per_s = 0,
         over_one_row = 0;   // of one row alone, in turns with all; 0 where it is all
  double read = 0, fma = 0;  // bytes and flops a second
  ForwardProfile decode_profile;
  double decode_s = 0;  // that the profile stands for
};

// Bytes of state that one row of `length` positions stores a position, and reads for a new token.
struct StateUse {
  std::size_t stored = 0, read = 0;
};
StateUse state_use(const StatePlan& plan, int length);

// Positions of a row that a run needs.
int bench_tokens(const BenchSettings& settings);

// The plan holds `rows` rows of bench_tokens(). Throws Failures, also
// when interrupted.
BenchFigures run_bench(const BenchSettings& settings, const Model& model, const StatePlan& plan,
                       ThreadPool& pool, bool progress);

}  // namespace windrow::cli
