// The dense recompute: what a query may see by the definition of a window, and attention over it in
// f64. It knows no cache. Tests only.
#pragma once

#include <cmath>

#include "oracle/tensor.h"

namespace windrow::oracle {

// Positions that a query at position p sees: the first `sinks` and the newest `window`, itself
// included, ascending. kFullWindow is a window too.
inline Ints visible_positions(int p, int window, int sinks = 0) {
  Ints out;
  for (int t = 0; t <= p; t++) {
    if (t < sinks || t > p - window) out.push_back(t);
  }
  return out;
}

struct AttendParams {
  double scale = 1;
  double softcap = 0;                  // 0: none
  std::span<const float> sink_logits;  // one per query head: joins the denominator only; or empty
};

// softmax(scale * q . K) V of one query over the given columns of row 0. q: [q_heads][key dim]; the
// result is [q_heads][value dim]; q_heads is a multiple of the row's heads (GQA).
inline std::vector<double> attend(const Kv& row, const Ints& columns, std::span<const float> q, int q_heads,
                                  const AttendParams& params = {}) {
  const int dim = row.k.dim, value_dim = row.v.dim;
  if (q_heads % row.k.heads != 0 || q.size() != static_cast<std::size_t>(q_heads) * dim) {
    throw std::invalid_argument("dense attend: query shape");
  }
  std::vector<double> out(static_cast<std::size_t>(q_heads) * value_dim);
  for (int h = 0; h < q_heads; h++) {
    const int kv_head = h / (q_heads / row.k.heads);
    std::vector<double> logits;
    for (const int t : columns) {
      double dot = 0;
      for (int d = 0; d < dim; d++) dot += static_cast<double>(q[h * dim + d]) * row.k.at(0, kv_head, t)[d];
      dot *= params.scale;
      logits.push_back(params.softcap > 0 ? params.softcap * std::tanh(dot / params.softcap) : dot);
    }
    double top = params.sink_logits.empty() ? -INFINITY : params.sink_logits[h];
    for (const double x : logits) top = std::max(top, x);
    double sum = params.sink_logits.empty() ? 0 : std::exp(params.sink_logits[h] - top);
    for (double& x : logits) sum += x = std::exp(x - top);
    for (std::size_t i = 0; i < columns.size(); i++) {
      for (int d = 0; d < value_dim; d++) {
        out[h * value_dim + d] += logits[i] / sum * row.v.at(0, kv_head, columns[i])[d];
      }
    }
  }
  return out;
}

}  // namespace windrow::oracle
