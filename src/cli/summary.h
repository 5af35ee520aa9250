// What generate tells of a run on stderr: speed, state bytes beside those of other ways to store the
// same positions, and a picture of the ring of pages.
#pragma once

#include <string>
#include <vector>

#include "windrow/engine.h"

namespace windrow::cli {

struct RunFacts {
  const StatePlan* plan;
  std::vector<PoolUse> pools;  // [group], with the run's row in it
  int prompt_tokens = 0;
  Generation generation;
  int threads = 1;
  bool colors = false;
  bool picture = false;  // the bars and the ring, too
};

double per_second(double count, double seconds);
// Tokens that the decode steps chose: one each, and the drafted ones that were accepted.
double decoded_tokens(const Generation& g);

// Bytes that one row of `length` positions holds: as planned, with every number in bf16, and in bf16
// with every layer keeping all positions (what a cache without windows would hold).
struct StateBytes {
  std::size_t planned, bf16, unbounded;
};
Result<StateBytes> compare_bytes(const StatePlan& plan, int length);

// One character for every few positions of a group's pages, in the order of the ring's slots: page n
// stands in slot n mod pages_per_row; the newest `held` pages are still the row's. Full block: seen by the
// next query; light: behind its window, kept until the whole page is; dot: free.
std::string draw_ring(const StatePlan& plan, int group, int length, int held);

std::string summarize(const RunFacts& facts);

}  // namespace windrow::cli
