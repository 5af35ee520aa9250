// Quantized checkpoints: MLX's logits, bits that do not depend on chunks or threads, memory, and what is
// refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/checkpoint.h"
#include "model/converted.h"
#include "support/sanitized.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

constexpr Limits kRoom{.rows = 1, .tokens = 128, .step_tokens = 128, .rollback = 0, .total_tokens = 0};
constexpr std::size_t kWhole = 100000;
constexpr double kParity = 5e-5;      // of default and f32 products, a share of the logit range
constexpr double kFastParity = 2e-3;  // 7e-5 a product, 43 products deep; measured 4e-4

LoadOptions with(Compute compute) {
  LoadOptions options;
  options.compute = compute;
  return options;
}

std::vector<std::string> prompts_of(const std::string& kind) {
  return kind == "4bit" ? std::vector<std::string>{"p0", "p1"} : std::vector<std::string>{"p2", "p3"};
}

TEST(Quantized, LogitsAndGreedyIdsAreThoseOfMlx) {
  for (const std::string kind : {"4bit", "mixed"}) {
    if (kSanitized && kind == "4bit")
      continue;  // the mixed one has its widths, and takes a minute unoptimized
    const Converted c(kind);
    const Golden golden(kCheckpoints + "/" + kind);
    for (const Compute compute : {Compute::kDefault, Compute::kF32, Compute::kFast}) {
      if (kSanitized && compute != Compute::kDefault) continue;
      SCOPED_TRACE(fmt::format("{}, mode {}", kind, static_cast<int>(compute)));
      const double parity = compute == Compute::kFast ? kFastParity : kParity;
      Session s(c.folder(), KvChoice(Codec::f32()), kRoom, 1, with(compute));
      for (const std::string& p : prompts_of(kind)) {
        const std::vector<float> all = s.logits(golden.ids(p + "_ids"), kWhole);
        const std::vector<float> last = slice(all, all.size() - 48 * s.vocab(), 48 * s.vocab());
        EXPECT_LT(relative_error(last, golden.floats(p + "_logits")), parity) << p;
      }
      const std::vector<std::int32_t> ids = golden.ids("greedy_ids");
      const std::size_t prompt = golden.ids("greedy_prompt").size();
      const std::vector<float> all = s.logits(ids, kWhole);
      for (std::size_t i = prompt; i < ids.size(); i++) {
        const std::vector<float> row = slice(all, (i - 1) * s.vocab(), s.vocab());
        const std::int32_t best = best_of(row.data(), s.vocab());
        if (best == ids[i]) continue;  // or as good, within the parity
        const auto [low, high] = std::minmax_element(row.begin(), row.end());
        EXPECT_LT(*high - row[static_cast<std::size_t>(ids[i])], parity * (*high - *low)) << "token " << i;
      }
    }
  }
}

TEST(Quantized, ChunksAndThreadsGiveTheSameBitsInEveryMode) {
  const Converted c("mixed");
  const std::vector<std::int32_t> ids = Golden(kCheckpoints + "/mixed").ids("p2_ids");
  std::vector<std::vector<float>> modes;
  for (const Compute compute : {Compute::kDefault, Compute::kFast, Compute::kF32}) {
    std::vector<float> first;
    for (const int threads : {1, 2}) {
      Session s(c.folder(), KvChoice(Codec::affine(8)), kRoom, threads, with(compute));
      for (const std::size_t chunk : {std::size_t{1}, std::size_t{3}, std::size_t{7}, kWhole}) {
        const std::vector<float> got = s.logits(ids, chunk);
        if (first.empty()) first = got;
        EXPECT_TRUE(same_bits(got, first)) << "threads " << threads << " chunk " << chunk;
      }
    }
    modes.push_back(first);
  }
  EXPECT_FALSE(same_bits(modes[0], modes[1])) << "the mode reaches the products";
  EXPECT_FALSE(same_bits(modes[0], modes[2]));
}

TEST(Quantized, MatricesInMemoryAreAtMostAFewPercentLargerThanInTheFile) {
  for (const std::string kind : {"4bit", "mixed"}) {
    const Converted c(kind);
    ThreadPool pool = must(ThreadPool::create(1));
    const Model model = must(Model::load(c.folder(), pool));
    const double file = static_cast<double>(std::filesystem::file_size(c.file()));
    EXPECT_LE(static_cast<double>(model.weight_bytes()), 1.05 * file);
    EXPECT_GE(static_cast<double>(model.weight_bytes()), 0.95 * file) << "they are all there";
    EXPECT_EQ(model.parameters(), 5250048u) << "numbers, not codes";
  }
}

// The tiny Gemma 3 in 4 bits of 32, its tensors and config to be broken.
class Broken : public Checkpoint {
 public:
  Broken() {
    save();
    ThreadPool pool = must(ThreadPool::create(1));
    const TempFolder temp;
    must(convert_model(folder, temp.path("q"), {.bits = 4, .group = 32}, pool).status());
    config = read_whole_file(temp.path("q/config.json"));
    tensors.clear();
    const SafetensorsFile file = must(SafetensorsFile::open(temp.path("q/model.safetensors")));
    for (const TensorView& t : file.tensors())
      tensors.push_back({t.name, t.dtype, t.shape, {t.bytes.begin(), t.bytes.end()}});
  }
  void erase(const std::string& name) {
    std::erase_if(tensors, [&](const OwnedTensor& t) { return t.name == name; });
  }
  std::string error() const {
    save();
    return load_error();
  }
  const std::string up = "model.layers.1.mlp.up_proj";
};

TEST(Quantized, ASoundOneLoads) { EXPECT_EQ(Broken().error(), ""); }

TEST(Quantized, MissingPartsAreNamed) {
  Broken scales, biases, weight;
  scales.erase(scales.up + ".scales");
  EXPECT_EQ(scales.error(),
            "/model.safetensors: tensor \"model.layers.1.mlp.up_proj.weight\" is U32, but "
            "\"model.layers.1.mlp.up_proj.scales\" is missing");
  biases.erase(biases.up + ".biases");
  EXPECT_EQ(
      biases.error(),
      "/model.safetensors: tensor \"model.layers.1.mlp.up_proj.biases\" is missing, expected BF16 of shape "
      "[96, 2] (4 bits, groups of 32)");
  weight.erase(weight.up + ".weight");
  EXPECT_EQ(
      weight.error(),
      "/model.safetensors: tensor \"model.layers.1.mlp.up_proj.weight\" is missing, expected U32 of shape "
      "[96, 8] (4 bits, groups of 32)");
}

TEST(Quantized, ShapesAndTypesThatDisagreeWithTheConfigAreNamed) {
  Broken bits;
  bits.replace("\"bits\": 4", "\"bits\": 8");
  bits.replace("\"bits\": 4", "\"bits\": 8");
  EXPECT_EQ(bits.error(),
            "/model.safetensors: tensor \"model.layers.0.self_attn.q_proj.weight\" is U32 of shape [256, 8], "
            "expected U32 of shape [256, 16] (8 bits, groups of 32)");
  Broken group;
  group.replace("\"group_size\": 32", "\"group_size\": 64");
  group.replace("\"group_size\": 32", "\"group_size\": 64");
  EXPECT_EQ(
      group.error(),
      "/model.safetensors: tensor \"model.layers.0.self_attn.q_proj.scales\" is BF16 of shape [256, 2], "
      "expected F32, F16 or BF16 of shape [256, 1] (4 bits, groups of 64)");
  Broken indivisible;
  indivisible.replace("\"quantization\": {",
                      "\"quantization\": {\"model.layers.1.mlp.down_proj\": "
                      "{\"group_size\": 64, \"bits\": 4},");
  EXPECT_EQ(
      indivisible.error(),
      "/model.safetensors: tensor \"model.layers.1.mlp.down_proj.scales\": 96 columns are no multiple of "
      "the group 64");
  Broken dtype;
  dtype.tensor(dtype.up + ".biases").dtype = DType::kF16;
  EXPECT_EQ(
      dtype.error(),
      "/model.safetensors: tensor \"model.layers.1.mlp.up_proj.biases\" is F16 of shape [96, 2], expected "
      "BF16 of shape [96, 2] (4 bits, groups of 32)");
  Broken integers;
  integers.tensor(integers.up + ".scales").dtype = DType::kI16;
  EXPECT_EQ(
      integers.error(),
      "/model.safetensors: tensor \"model.layers.1.mlp.up_proj.scales\" is I16 of shape [96, 2], expected "
      "F32, F16 or BF16 of shape [96, 2] (4 bits, groups of 32)");
  Broken codes;
  codes.tensor(codes.up + ".weight").dtype = DType::kI32;
  EXPECT_EQ(
      codes.error(),
      "/model.safetensors: tensor \"model.layers.1.mlp.up_proj.weight\" is I32 of shape [96, 8], expected "
      "U32 of shape [96, 8] (4 bits, groups of 32)");
}

TEST(Quantized, ScalesThatTheConfigDoesNotKnowAreRefused) {
  Broken none;
  none.config = Checkpoint().config;
  EXPECT_EQ(none.error(),
            "/model.safetensors: tensor \"model.layers.0.self_attn.q_proj.scales\": config.json has no "
            "\"quantization\"");
  Broken off;
  off.replace("\"quantization\": {", "\"quantization\": {\"model.layers.1.mlp.up_proj\": false,");
  EXPECT_EQ(
      off.error(),
      "/model.safetensors: tensor \"model.layers.1.mlp.up_proj.scales\": config.json says that the module "
      "is not quantized");
  Broken lone;
  lone.tensors.push_back({"model.norm.scales", DType::kBF16, {2}, std::vector<std::byte>(4)});
  EXPECT_EQ(lone.error(),
            "/model.safetensors: tensor \"model.norm.scales\": this model family has no use for it");
}

TEST(Quantized, ModulesMayStayPlainBesideQuantizedOnes) {
  Broken c;
  const Checkpoint plain;
  for (const std::string name : {"model.layers.1.mlp.up_proj", "model.embed_tokens"}) {
    c.erase(name + ".scales");
    c.erase(name + ".biases");
    for (const OwnedTensor& t : plain.tensors)
      if (t.name == name + ".weight") c.tensor(t.name) = t;
  }
  EXPECT_EQ(c.error(), "");
}

TEST(Quantized, AQuantizedHeadBesideAQuantizedEmbeddingIsUsed) {
  Broken c;
  for (const char* part : {".weight", ".scales", ".biases"}) {
    OwnedTensor t = c.tensor(std::string("model.embed_tokens") + part);
    t.name = std::string("lm_head") + part;
    c.tensors.push_back(t);
  }
  c.save();
  const auto logits = [&] {
    Session s(c.folder, KvChoice(), kRoom);
    return s.logits({1, 2, 3}, 3);
  };
  const std::vector<float> tied = logits();  // the second is not read
  const std::string tie = "\"tie_word_embeddings\": true";
  c.replace(tie, "\"tie_word_embeddings\": false");
  c.save();
  EXPECT_TRUE(same_bits(logits(), tied));
  OwnedTensor& codes = c.tensor("lm_head.weight");
  std::fill(codes.bytes.begin(), codes.bytes.end(), std::byte{0});
  c.save();
  EXPECT_FALSE(same_bits(logits(), tied));
}

TEST(Quantized, LoadingTellsItsProgressUpToTheEnd) {
  const Converted c("4bit");
  ThreadPool pool = must(ThreadPool::create(1));
  std::size_t calls = 0, before = 0, total = 0;
  LoadOptions options;
  options.progress = [&](std::size_t done, std::size_t all) {
    EXPECT_LE(before, done);
    EXPECT_LE(done, all);
    before = done, total = all;
    calls++;
  };
  must(Model::load(c.folder(), pool, options));
  EXPECT_EQ(before, total);
  EXPECT_GT(calls, 40u);
}

}  // namespace
}  // namespace windrow
