// Runs a test body on every instruction set that this build has and this machine supports.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/attend.h"
#include "attention/fixture.h"
#include "attention/validate.h"
#include "support/sanitized.h"
#include "support/simd_targets.h"

namespace windrow::testing {

// The kernels of each of them, the scalar baseline included. Instrumented code runs the best ones only: the
// others are the same sources, minutes slower.
inline const std::vector<internal::Kernels>& all_kernels() {
  static const std::vector<internal::Kernels> all = [] {
    std::vector<internal::Kernels> kernels;
    on_every_target([&] { kernels.push_back(internal::select_kernels()); });
    if (kSanitized) kernels.resize(1);
    return kernels;
  }();
  return all;
}

// The kernels' answer to a fixture's own queries.
inline std::vector<float> attend(const internal::Kernels& kernels, const Shape& shape,
                                 const ReadFixture& fixture, ThreadPool* pool = nullptr, float softcap = 0) {
  const AttentionParams params{.q_heads = shape.q_heads,
                               .scale = 1 / std::sqrt(static_cast<float>(shape.head_dim)),
                               .softcap = softcap};
  const KvRead read = fixture.read();
  const std::vector<float> q = fixture.queries();
  std::vector<float> out(fixture.out_size());
  const Status valid = internal::validate_attention(read, q.size(), params, out.size());
  EXPECT_TRUE(valid.ok()) << valid.message();
  if (!valid.ok()) return out;
  const Status status = internal::attend_with(kernels, read, q, params, out, pool);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

template <typename Body>
void for_each_target(Body&& body) {
  for (const internal::Kernels& kernels : all_kernels()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, kernels.target);
    body(kernels);
  }
}

}  // namespace windrow::testing
