// Token trees: every node's output has the bits of a linear row that holds the path to it.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "attention/fixture.h"
#include "attention/targets.h"

namespace windrow::testing {
namespace {

// Slots of a tree have names of their own: the node's number, from 1.
RowSpec tree_of(std::vector<int> parents, int history) {
  RowSpec row{.content = 4, .history = history, .fresh = static_cast<int>(parents.size())};
  for (int i = 0; i < row.fresh; i++) row.variants.push_back(i + 1);
  row.parents = std::move(parents);
  return row;
}

// The nodes from the root to a node.
std::vector<int> path_to(const RowSpec& tree, int node) {
  std::vector<int> path;
  for (int i = node; i >= 0; i = tree.parents[static_cast<std::size_t>(i)]) path.insert(path.begin(), i);
  return path;
}

// The row after `committed` nodes of the path were fed; the others are the step.
RowSpec linear(const RowSpec& tree, const std::vector<int>& path, int committed) {
  RowSpec row{.content = tree.content,
              .history = tree.history + committed,
              .fresh = static_cast<int>(path.size()) - committed,
              .storage = tree.storage};
  for (const int node : path) row.variants.push_back(tree.variants[static_cast<std::size_t>(node)]);
  return row;
}

void expect_bits_of_paths(const internal::Kernels& kernels, const Shape& shape, const RowSpec& tree,
                          int every = 1) {
  const std::vector<float> out = attend(kernels, shape, ReadFixture(shape, {tree}));
  for (int node = tree.fresh - 1; node >= 0; node -= every) {
    const std::vector<int> path = path_to(tree, node);
    const int depth = static_cast<int>(path.size());
    for (const int committed : {0, depth - 1}) {  // one chunk, and plain decoding
      const RowSpec row = linear(tree, path, committed);
      const std::vector<float> expected = attend(kernels, shape, ReadFixture(shape, {row}, 7, 0x00));
      ASSERT_TRUE(same_bits(token_of(shape, out, node), token_of(shape, expected, row.fresh - 1)))
          << "node " << node << " of depth " << depth << " after " << tree.history << ", window "
          << shape.window << ", sinks " << shape.sinks << ", pages of " << shape.page_tokens;
    }
  }
}

const std::vector<int> kSmall = {-1, 0, 0, 1, -1, 4, 2, 3, 7};  // two roots

TEST(AttentionTree, ANodeHasTheBitsOfItsPath) {
  for_each_target([&](const internal::Kernels& kernels) {
    for (const int window : {1, 3, 20, kFullWindow}) {
      for (const int history : {0, 1, 15, 16, 30, 125, 127, 128, 250}) {
        for (const int sinks : {0, 4}) {
          const Shape shape{.q_heads = 3, .page_tokens = 16, .window = window, .sinks = sinks};
          expect_bits_of_paths(kernels, shape, tree_of(kSmall, history), 2);
        }
      }
    }
  });
}

TEST(AttentionTree, EveryCodecIsGathered) {
  const Codec codecs[] = {Codec::f32(),     Codec::f16(),     Codec::bf16(),
                          Codec::affine(2), Codec::affine(3), Codec::affine(5, 32, DType::kF32),
                          Codec::affine(6), Codec::affine(8)};
  for (std::size_t i = 0; i < std::size(codecs); i++) {
    const Shape shape{.keys = codecs[i], .values = codecs[(i + 3) % std::size(codecs)], .q_heads = 2};
    for_each_target([&](const internal::Kernels& kernels) {
      expect_bits_of_paths(kernels, shape, tree_of(kSmall, 122), 4);
    });
  }
}

TEST(AttentionTree, AChainBesideALeafReachesOverBlocks) {
  std::vector<int> parents = {-1, 0};
  for (int i = 2; i < 150; i++) parents.push_back(i == 2 ? 0 : i - 1);
  const Shape shape{.window = 100, .sinks = 2};
  for_each_target([&](const internal::Kernels& kernels) {
    expect_bits_of_paths(kernels, shape, tree_of(parents, 120), 29);
  });
}

TEST(AttentionTree, EqualsTheReference) {
  const Shape shape{.kv_heads = 2, .q_heads = 4, .window = 40, .sinks = 3};
  const ReadFixture fixture(shape, {tree_of(kSmall, 126), {.content = 1, .history = 40, .fresh = 5}});
  const AttentionParams params{.q_heads = 4, .scale = 0.125f};
  std::vector<float> expected(fixture.out_size());
  ASSERT_TRUE(attend_reference(fixture.read(), fixture.queries(), params, expected).ok());
  for_each_target([&](const internal::Kernels& kernels) {
    EXPECT_LE(relative_error(attend(kernels, shape, fixture), expected), 2e-5);
  });
}

// Nodes beside the path, like all that a token does not see, may be NaN.
TEST(AttentionTree, ASlotInfluencesItsDescendantsAndNoOthers) {
  const Shape shape{.q_heads = 2, .page_tokens = 16, .window = 6, .sinks = 2};
  const RowSpec tree = tree_of(kSmall, 13);
  const ReadFixture clean(shape, {tree});
  for_each_target([&](const internal::Kernels& kernels) {
    const std::vector<float> expected = attend(kernels, shape, clean);
    for (const int slot : clean.visible_slots(0)) {
      ReadFixture spoiled(shape, {tree});
      spoiled.spoil(0, slot);
      const std::vector<float> out = attend(kernels, shape, spoiled);
      for (int node = 0; node < tree.fresh; node++) {
        if (clean.sees(0, node, slot)) {
          EXPECT_TRUE(std::isnan(token_of(shape, out, node)[0])) << "node " << node << ", slot " << slot;
        } else {
          EXPECT_TRUE(same_bits(token_of(shape, out, node), token_of(shape, expected, node)))
              << "node " << node << ", slot " << slot;
        }
      }
    }
  });
}

RC_GTEST_PROP(AttentionTree, ANodeOfAnyTreeHasTheBitsOfItsPath, ()) {
  Shape shape;
  shape.keys = Codec::affine(*rc::gen::element(3, 4, 8), 32);
  shape.values = Codec::affine(*rc::gen::element(2, 4, 6), 32);
  shape.head_dim = shape.value_dim = 32;
  shape.kv_heads = *rc::gen::inRange(1, 3);
  shape.q_heads = shape.kv_heads * *rc::gen::inRange(1, 6);
  shape.page_tokens = *rc::gen::element(1, 2, 4, 8, 16, 32, 128);
  shape.window =
      *rc::gen::oneOf(rc::gen::inRange(1, 30), rc::gen::inRange(30, 300), rc::gen::just(kFullWindow));
  shape.sinks = *rc::gen::oneOf(rc::gen::just(0), rc::gen::inRange(1, 150));
  const int nodes = *rc::gen::inRange(1, 65);
  const int reach = *rc::gen::element(1, 3, 64);  // how far a parent lies back: long paths and bushes
  std::vector<int> parents;
  for (int i = 0; i < nodes; i++) parents.push_back(*rc::gen::inRange(std::max(-1, i - reach), i));
  const RowSpec tree =
      tree_of(parents, *rc::gen::oneOf(rc::gen::inRange(0, 300), rc::gen::inRange(100, 130)));
  const internal::Kernels& kernels = all_kernels()[*rc::gen::inRange<std::size_t>(0, all_kernels().size())];
  expect_bits_of_paths(kernels, shape, tree, std::max(1, nodes / 4));
}

}  // namespace
}  // namespace windrow::testing
