// The straightforward way: K and V as dense f32, two sgemm of OpenBLAS and a softmax for each (row, kv head).
// What an engine without a state of its own would do; the baseline of the attention benchmark.
#pragma once

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "attention_state.h"
#include "base/memory.h"
#include "windrow/threads.h"

extern "C" void openblas_set_num_threads(int);

namespace windrow::bench {

class DenseState {
 public:
  explicit DenseState(const Case& c) : case_(c), random_(7), tokens_(c, random_) {
    openblas_set_num_threads(1);  // the pool's threads share the (row, kv head) pairs
    const auto dim = static_cast<std::size_t>(c.head_dim);
    for (std::size_t r = 0; r < tokens_.histories.size(); r++) {
      starts_.push_back(layer_floats_);
      layer_floats_ += 2 * dim * static_cast<std::size_t>(c.kv_heads * positions(r));
    }
    layers_ = std::max<std::size_t>(2, kStateBytes / (layer_floats_ * 4) + 1);
    arena_ = *Arena::create(layers_ * layer_floats_ * 4, "dense state");
    auto* const all = reinterpret_cast<float*>(arena_.data());
    for (std::size_t i = 0; i < layers_ * layer_floats_; i++) {
      all[i] = static_cast<float>(i * 2654435761u % 2001) * 1e-3f - 1;
    }
    q_.assign(tokens_.positions.size() * static_cast<std::size_t>(c.q_heads) * dim, 0.5f);
    out_.resize(q_.size());
    scores_.resize(static_cast<std::size_t>(ThreadPool::kMaxThreads));
  }

  double bytes() const { return tokens_.seen(case_) * case_.head_dim * 2 * 4; }

  void attend(std::size_t layer, ThreadPool& pool) {
    const auto* base = reinterpret_cast<const float*>(arena_.data()) + layer % layers_ * layer_floats_;
    const auto heads = static_cast<std::size_t>(case_.kv_heads);
    pool.parallel_for(tokens_.histories.size() * heads, [&](std::size_t task, int thread) {
      one(base, task / heads, task % heads, scores_[static_cast<std::size_t>(thread)]);
    });
  }

 private:
  int positions(std::size_t row) const {
    return tokens_.ends[static_cast<std::size_t>(tokens_.offsets[row + 1]) - 1] -
           tokens_.begins[static_cast<std::size_t>(tokens_.offsets[row])];
  }

  void one(const float* base, std::size_t row, std::size_t head, std::vector<float>& scores) {
    const int dim = case_.head_dim, count = positions(row), ratio = case_.q_heads / case_.kv_heads;
    const auto stride = static_cast<std::size_t>(count) * static_cast<std::size_t>(dim);
    const float* k = base + starts_[row] + 2 * head * stride;
    const float* v = k + stride;
    const int first = tokens_.offsets[row], fresh = tokens_.offsets[row + 1] - first,
              q_row = case_.q_heads * dim;
    scores.resize(static_cast<std::size_t>(fresh) * static_cast<std::size_t>(count));
    for (int h = 0; h < ratio; h++) {
      const std::size_t at = static_cast<std::size_t>(first) * static_cast<std::size_t>(q_row) +
                             (head * static_cast<std::size_t>(ratio) + static_cast<std::size_t>(h)) *
                                 static_cast<std::size_t>(dim);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, fresh, count, dim, 0.05f, q_.data() + at, q_row, k,
                  dim, 0, scores.data(), count);
      for (int t = 0; t < fresh; t++)
        softmax(scores.data() + static_cast<std::size_t>(t * count), first + t, count, row);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, fresh, dim, count, 1, scores.data(), count, v,
                  dim, 0, out_.data() + at, q_row);
    }
  }

  void softmax(float* scores, int token, int count, std::size_t row) const {
    const auto t = static_cast<std::size_t>(token);
    const int origin = tokens_.begins[static_cast<std::size_t>(tokens_.offsets[row])];
    const int begin = tokens_.begins[t] - origin, end = tokens_.ends[t] - origin;
    const float top = *std::max_element(scores + begin, scores + end);
    float sum = 0;
    for (int p = 0; p < count; p++) {
      scores[p] = p < begin || p >= end ? 0 : std::exp(scores[p] - top);
      sum += scores[p];
    }
    for (int p = begin; p < end; p++) scores[p] /= sum;
  }

  Case case_;
  std::mt19937 random_;
  Tokens tokens_;
  std::vector<std::size_t> starts_;
  std::size_t layer_floats_ = 0, layers_ = 0;
  Arena arena_;
  std::vector<float> q_, out_;
  std::vector<std::vector<float>> scores_;
};

}  // namespace windrow::bench
