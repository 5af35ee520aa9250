// The families' checkpoints as other tools lay them out: stacked experts, turned convolutions, spare tensors.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/checkpoint.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

constexpr Limits kRoom{.rows = 1, .tokens = 64, .step_tokens = 64, .rollback = 0, .total_tokens = 0};

std::string reference(const char* family) { return fmt::format("{}/hf/{}", WINDROW_TEST_DATA, family); }

std::vector<float> prompt_logits(const std::string& folder, const std::string& golden) {
  Session s(folder, KvChoice(Codec::f32()), kRoom);
  return s.logits(Golden(golden).ids("prompt"), 64);
}

// Part `index` of [count, rows, cols] with the last two turned, of which each `step`-th row from `first` on.
std::vector<std::byte> turned(const OwnedTensor& t, std::size_t first, std::size_t step) {
  const std::size_t count = t.shape[0], cols = t.shape[1], rows = t.shape[2];
  std::vector<std::byte> out;
  for (std::size_t e = 0; e < count; e++) {
    for (std::size_t r = first; r < rows; r += step) {
      for (std::size_t c = 0; c < cols; c++) {
        const auto at = t.bytes.begin() + static_cast<std::ptrdiff_t>(((e * cols + c) * rows + r) * 2);
        out.insert(out.end(), at, at + 2);
      }
    }
  }
  return out;
}

// gpt-oss as mlx-lm stores it: gate and up apart, outputs first.
TEST(Layouts, GptOssExpertsMayBeSplitAndTurnedAsMlxDoes) {
  Checkpoint c(reference("gpt_oss"));
  for (int layer = 0; layer < 4; layer++) {
    const std::string prefix = fmt::format("model.layers.{}.mlp.experts.", layer);
    const OwnedTensor both = c.take(prefix + "gate_up_proj"), down = c.take(prefix + "down_proj");
    const OwnedTensor bias = c.take(prefix + "gate_up_proj_bias");
    OwnedTensor down_bias = c.take(prefix + "down_proj_bias");
    const OwnedTensor as_row{"", DType::kBF16, {4, 1, 192}, bias.bytes};
    c.tensors.push_back({prefix + "gate_proj.weight", DType::kBF16, {4, 96, 64}, turned(both, 0, 2)});
    c.tensors.push_back({prefix + "up_proj.weight", DType::kBF16, {4, 96, 64}, turned(both, 1, 2)});
    c.tensors.push_back({prefix + "down_proj.weight", DType::kBF16, {4, 64, 96}, turned(down, 0, 1)});
    c.tensors.push_back({prefix + "gate_proj.bias", DType::kBF16, {4, 96}, turned(as_row, 0, 2)});
    c.tensors.push_back({prefix + "up_proj.bias", DType::kBF16, {4, 96}, turned(as_row, 1, 2)});
    down_bias.name = prefix + "down_proj.bias";
    c.tensors.push_back(down_bias);
  }
  c.save();
  EXPECT_TRUE(same_bits(prompt_logits(c.folder, reference("gpt_oss")),
                        prompt_logits(reference("gpt_oss"), reference("gpt_oss"))));
}

TEST(Layouts, GptOssExpertsInMxfp4AreRefusedByName) {
  Checkpoint c(reference("gpt_oss"));
  c.take("model.layers.0.mlp.experts.gate_up_proj");
  c.tensors.push_back({"model.layers.0.mlp.experts.gate_up_proj_blocks", DType::kU8, {4, 192, 2, 16}, {}});
  c.tensors.back().bytes.resize(4 * 192 * 2 * 16);
  c.save();
  EXPECT_EQ(
      c.load_error(),
      "/model.safetensors: tensor \"model.layers.0.mlp.experts.gate_up_proj_blocks\": MXFP4 experts are "
      "not supported; an affine conversion (MLX) is");
}

// Qwen3-Next as mlx-lm stores it: experts stacked, the convolution turned, 1 added to the norms.
TEST(Layouts, Qwen3NextMayBeStoredAsMlxDoes) {
  Checkpoint c(reference("qwen3_next"));
  for (int layer = 1; layer < 4; layer++) {
    const std::string prefix = fmt::format("model.layers.{}.mlp.", layer);
    for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
      OwnedTensor stack{fmt::format("{}switch_mlp.{}.weight", prefix, part), DType::kBF16, {4}, {}};
      for (int e = 0; e < 4; e++) {
        const OwnedTensor one = c.take(fmt::format("{}experts.{}.{}.weight", prefix, e, part));
        if (e == 0) stack.shape.insert(stack.shape.end(), one.shape.begin(), one.shape.end());
        stack.bytes.insert(stack.bytes.end(), one.bytes.begin(), one.bytes.end());
      }
      c.tensors.push_back(stack);
    }
  }
  for (OwnedTensor& t : c.tensors) {
    if (t.name.ends_with("conv1d.weight")) std::swap(t.shape[1], t.shape[2]);
    const bool gated = t.name.ends_with("linear_attn.norm.weight");
    if (gated || (!t.name.ends_with("norm.weight") && !t.name.ends_with("layernorm.weight"))) continue;
    t = Checkpoint::converted(t, DType::kF32);
    for (std::size_t i = 0; i < t.bytes.size(); i += 4) {
      float f;
      std::memcpy(&f, &t.bytes[i], 4);
      f += 1.0f;
      std::memcpy(&t.bytes[i], &f, 4);
    }
  }
  c.save();
  EXPECT_TRUE(same_bits(prompt_logits(c.folder, reference("qwen3_next")),
                        prompt_logits(reference("qwen3_next"), reference("qwen3_next"))));
}

TEST(Layouts, AMissingExpertIsNamed) {
  Checkpoint c(reference("qwen3_next"));
  c.take("model.layers.1.mlp.experts.2.up_proj.weight");
  c.save();
  EXPECT_EQ(c.load_error(),
            "/model.safetensors: tensor \"model.layers.1.mlp.experts.2.up_proj.weight\" of shape [48, 64] is "
            "missing");
}

// Published Gemma 3n and 4 checkpoints hold projections that sharing layers never use.
TEST(Layouts, KeysAndValuesOfSharingLayersAreIgnored) {
  for (const char* family : {"gemma3n", "gemma4"}) {
    Checkpoint c(reference(family));
    for (const char* part : {"k_proj", "v_proj", "k_norm"}) {
      OwnedTensor spare = c.tensor(fmt::format("model.layers.0.self_attn.{}.weight", part));
      spare.name = fmt::format("model.layers.5.self_attn.{}.weight", part);
      c.tensors.push_back(spare);
    }
    c.save();
    EXPECT_TRUE(same_bits(prompt_logits(c.folder, reference(family)),
                          prompt_logits(reference(family), reference(family))));
  }
}

}  // namespace
}  // namespace windrow
