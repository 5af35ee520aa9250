// Recording a step of a recurrent layer and replaying any part of it.
#include "state/recurrent_record.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "state/gated_delta_inputs.h"
#include "support/simd_targets.h"

namespace windrow {
namespace {

using testing::bits_of;
using testing::TokenInputs;

struct Layer {  // one row's state
  std::vector<float> state, tail;
  friend bool operator==(const Layer& a, const Layer& b) {
    return bits_of(a.state) == bits_of(b.state) && bits_of(a.tail) == bits_of(b.tail);
  }
};

// A step of random tokens from a random state, recorded.
struct RecordedStep {
  RecordedStep(const RecurrentShape& shape_of, std::size_t tokens, std::uint32_t seed)
      : shape(shape_of), random(seed), in(shape.delta, tokens, random) {
    x = testing::random_floats(tokens * shape.conv.input_floats(), random);
    before = {testing::random_floats(shape.delta.state_floats(), random),
              testing::random_floats(shape.conv.tail_floats(), random)};
    memory.resize(tokens * shape.record_bytes_per_token());
  }

  // Recorded in two pieces, as a step may append.
  RecurrentRecord record() {
    RecurrentRecord out(shape, memory.data(), in.count);
    const std::size_t cut = in.count / 3;
    out.put_conv(0, x.data(), cut);
    out.put_conv(cut, x.data() + cut * shape.conv.input_floats(), in.count - cut);
    out.put_tokens(0, in.slice(0, cut));
    out.put_tokens(cut, in.slice(cut, in.count - cut));
    return out;
  }

  // The state after the tokens of `path`, each fed by itself.
  Layer fed(std::span<const int> path) const {
    Layer out = before;
    for (const int slot : path) {
      const auto t = static_cast<std::size_t>(slot);
      std::vector<float> y(shape.delta.value_floats());
      gated_delta_advance(shape.delta, in.slice(t, 1), out.state.data(), out.state.data(), y.data());
      advance_conv_tail(shape.conv, out.tail.data(), x.data() + t * shape.conv.input_floats(), 1,
                        out.tail.data());
    }
    return out;
  }

  Layer unset() const {
    return {std::vector<float>(before.state.size(), NAN), std::vector<float>(before.tail.size(), NAN)};
  }

  RecurrentShape shape;
  std::mt19937 random;
  TokenInputs in;
  std::vector<float> x;
  Layer before;
  std::vector<std::byte> memory;
};

RecurrentShape layer_shape(DecayGate gate, int value_dim, int taps) {
  return {{2, 4, 16, value_dim, gate}, {2 * 2 * 16 + 4 * value_dim, taps}};
}

TEST(RecurrentRecord, CountsTheBytesOfAState) {
  const RecurrentShape qwen = {{16, 32, 128, 128, DecayGate::kScalar}, {8192, 4}};
  EXPECT_EQ(qwen.state_bytes(), 4u * (32 * 128 * 128 + 3 * 8192));
  EXPECT_EQ(qwen.record_bytes_per_token(), 57600u);
  RecurrentShape kimi = qwen;
  kimi.delta.gate = DecayGate::kVector;
  EXPECT_EQ(kimi.record_bytes_per_token(), 57600u + 4 * 32 * 127);
  kimi.conv.taps = 0;
  EXPECT_EQ(kimi.check().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(qwen.check().ok());
}

TEST(RecurrentRecord, FillsExactlyTheBytesItCounts) {
  RecordedStep step(layer_shape(DecayGate::kVector, 3, 4), 5, 1);
  step.memory.assign(step.memory.size() + 64, std::byte{0xee});
  RecurrentRecord record = step.record();
  EXPECT_EQ(record.capacity(), 5u);
  for (std::size_t i = step.memory.size() - 64; i < step.memory.size(); i++) {
    ASSERT_EQ(step.memory[i], std::byte{0xee});
  }
  for (std::size_t i = 0; i < step.memory.size() - 64; i += 4) {
    std::uint32_t word;
    std::memcpy(&word, &step.memory[i], 4);
    ASSERT_NE(word, 0xeeeeeeeeu) << i;
  }
}

RC_GTEST_PROP(RecurrentRecord, ReplayOfAnyKeepEqualsHavingFedOnlyThose, ()) {
  const RecurrentShape shape = layer_shape(*rc::gen::element(DecayGate::kScalar, DecayGate::kVector),
                                           *rc::gen::inRange(1, 8), *rc::gen::inRange(1, 6));
  const std::size_t count = *rc::gen::inRange<std::size_t>(0, 20);
  RecordedStep step(shape, count, *rc::gen::arbitrary<std::uint32_t>());
  testing::on_every_target([&] {
    const RecurrentRecord record = step.record();
    std::vector<int> all(count);
    std::iota(all.begin(), all.end(), 0);
    for (std::size_t keep = 0; keep <= count; keep++) {
      const Layer want = step.fed({all.data(), keep});
      Layer to = step.unset(), same = step.before;
      record.replay(keep, step.before.state.data(), step.before.tail.data(), to.state.data(), to.tail.data());
      record.replay(keep, same.state.data(), same.tail.data(), same.state.data(), same.tail.data());
      RC_ASSERT(to == want);
      RC_ASSERT(same == want);
      if (keep == 0) RC_ASSERT(to == step.before);
    }
  });
}

RC_GTEST_PROP(RecurrentRecord, ReplayOfAPathEqualsHavingFedItsSlots, ()) {
  const RecurrentShape shape =
      layer_shape(DecayGate::kScalar, *rc::gen::inRange(1, 6), *rc::gen::inRange(1, 6));
  const std::size_t count = *rc::gen::inRange<std::size_t>(1, 16);
  RecordedStep step(shape, count, *rc::gen::arbitrary<std::uint32_t>());
  std::vector<int> path;  // ascending, as the slots of a tree path are
  for (std::size_t t = 0; t < count; t++) {
    if (*rc::gen::arbitrary<bool>()) path.push_back(static_cast<int>(t));
  }
  testing::on_every_target([&] {
    Layer to = step.unset();
    step.record().replay(path, step.before.state.data(), step.before.tail.data(), to.state.data(),
                         to.tail.data());
    RC_ASSERT(to == step.fed(path));
  });
}

TEST(RecurrentRecord, BranchesOfATreeRunFromTheirParentsStateAndReplayToTheSameBits) {
  // Slots 0 -> 1 -> 3 and 0 -> 2: every node is advanced out of place from its parent.
  RecordedStep step(layer_shape(DecayGate::kScalar, 5, 4), 4, 9);
  const int parent[] = {-1, 0, 0, 1};
  std::vector<Layer> nodes(4, step.unset());
  for (std::size_t n = 0; n < 4; n++) {
    const Layer& from = parent[n] < 0 ? step.before : nodes[static_cast<std::size_t>(parent[n])];
    std::vector<float> y(step.shape.delta.value_floats());
    gated_delta_advance(step.shape.delta, step.in.slice(n, 1), from.state.data(), nodes[n].state.data(),
                        y.data());
    advance_conv_tail(step.shape.conv, from.tail.data(), step.x.data() + n * step.shape.conv.input_floats(),
                      1, nodes[n].tail.data());
  }
  const RecurrentRecord record = step.record();
  const std::vector<std::pair<std::size_t, std::vector<int>>> paths = {
      {0, {0}}, {1, {0, 1}}, {2, {0, 2}}, {3, {0, 1, 3}}};
  for (const auto& [node, path] : paths) {
    Layer to = step.unset();
    record.replay(path, step.before.state.data(), step.before.tail.data(), to.state.data(), to.tail.data());
    EXPECT_TRUE(to == nodes[node]) << node;
  }
  EXPECT_FALSE(nodes[1] == nodes[2]);
}

}  // namespace
}  // namespace windrow
