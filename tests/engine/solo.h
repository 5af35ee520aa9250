// A request run alone, one token a step, without a scheduler: what every scheduled run has to equal.
#pragma once

#include <stdexcept>
#include <vector>

#include "windrow/scheduler.h"

namespace windrow::testing {

inline std::vector<std::int32_t> run_alone(StepModel& model, const StatePlan& plan, const Request& request) {
  StateStore store = *StateStore::create(plan);
  Row row = *store.new_row();
  Sampler sampler = *Sampler::create(request.sampling);
  std::vector<std::int32_t> text = request.prompt, out;
  std::vector<float> logits(static_cast<std::size_t>(model.vocab_size()));
  for (std::size_t fed = 0;; fed++) {
    Row* rows[] = {&row};
    const int lengths[] = {1};
    Step step = *store.begin(rows, lengths);
    const std::int32_t ids[] = {text[fed]}, wanted[] = {0};
    if (Status s = model.forward(step, ids, wanted, logits); !s.ok()) throw std::runtime_error(s.message());
    if (Status s = step.resolve(); !s.ok()) throw std::runtime_error(s.message());
    if (fed + 1 < text.size()) continue;
    const std::int32_t token = *sampler.sample(logits, text, out.size());
    if (std::find(request.stop_ids.begin(), request.stop_ids.end(), token) != request.stop_ids.end())
      return out;
    text.push_back(token);
    out.push_back(token);
    if (static_cast<int>(out.size()) == request.max_tokens || (request.stop && request.stop(out))) return out;
  }
}

}  // namespace windrow::testing
