#include "model/linear.h"

#include <array>
#include <cassert>

#include "model/gates.h"
#include "model/tokens.h"

namespace windrow {

Status read_linear(WeightReader& weights, const std::string& name, std::size_t rows, std::size_t cols,
                   bool bias, Linear& to) {
  if (Status s = put(weights.matrix(name + ".weight", rows, cols), to.weight); !s.ok()) return s;
  return bias ? put(weights.vector(name + ".bias", rows, 0.0f), to.bias) : Status();
}

void linear(std::span<const LinearOutput> outputs, const float* x, std::size_t tokens, ThreadPool& pool) {
  constexpr std::size_t kMost = 8;
  assert(!outputs.empty() && outputs.size() <= kMost);
  std::array<ProductOutput, kMost> products_of;
  for (std::size_t i = 0; i < outputs.size(); i++) {
    products_of[i] = {&outputs[i].linear->weight, outputs[i].y, outputs[i].linear->outputs()};
  }
  products({products_of.data(), outputs.size()}, x, outputs[0].linear->weight.cols(), tokens, pool);
  for (const LinearOutput& o : outputs) {
    if (o.linear->bias.empty()) continue;
    const std::size_t n = o.linear->outputs();
    each_token(pool, tokens, [&](std::size_t t) { add_scaled(o.linear->bias.data(), 1.0f, n, o.y + t * n); });
  }
}

}  // namespace windrow
