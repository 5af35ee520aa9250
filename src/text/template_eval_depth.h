// The guard of the evaluator's recursion.
//
// Thread safety: as the evaluator.
#pragma once

#include <fmt/format.h>

#include "text/template_eval.h"

namespace windrow::text {

class Evaluator::Depth {
 public:
  explicit Depth(Evaluator& e) : evaluator_(e) {
    if (++evaluator_.depth_ > kMaxRunDepth) {
      template_error(fmt::format("the template runs deeper than {} levels", kMaxRunDepth),
                     StatusCode::kResourceExhausted);
    }
  }
  ~Depth() { evaluator_.depth_--; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Evaluator& evaluator_;
};

}  // namespace windrow::text
