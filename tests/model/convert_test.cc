// convert_model: bit for bit what MLX makes of the same tensors, whole or not at all, and what it refuses.
#include "windrow/convert.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "model/convert_rules.h"
#include "model/converted.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT
using Json = nlohmann::json;

std::string hash(std::span<const std::byte> bytes) {  // FNV-1a
  std::uint64_t h = 0xcbf29ce484222325;
  for (const std::byte b : bytes) h = (h ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3;
  return fmt::format("{:016x}", h);
}

std::string error_of(const std::string& folder, const ConvertOptions& options) {
  const TempFolder temp;
  ThreadPool pool = must(ThreadPool::create(1));
  const Status s = convert_model(folder, temp.path("out"), options, pool).status();
  EXPECT_EQ(temp.entries(), 0) << "nothing half-written, nothing left behind";
  return s.message();
}

TEST(Convert, EveryTensorHasTheBytesThatMlxMadeOfTheSameModel) {
  for (const std::string kind : {"4bit", "mixed"}) {
    const Converted c(kind);
    const SafetensorsFile file = must(SafetensorsFile::open(c.file()));
    const Json want = Json::parse(read_whole_file(kCheckpoints + "/" + kind + "/tensors.json"));
    EXPECT_EQ(file.tensors().size(), want.size());
    EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "mlx"}}));
    for (const auto& [name, entry] : want.items()) {
      const TensorView* t = file.find(name);
      ASSERT_NE(t, nullptr) << name;
      EXPECT_EQ(dtype_name(t->dtype), entry["dtype"].get<std::string>()) << name;
      EXPECT_EQ(t->shape, entry["shape"].get<std::vector<std::size_t>>()) << name;
      EXPECT_EQ(hash(t->bytes), entry["fnv1a64"].get<std::string>()) << name;
    }
    EXPECT_EQ(c.result.quantized, 43u);
    EXPECT_EQ(c.result.kept, 37u);
  }
}

TEST(Convert, ConfigSaysWhatIsQuantizedTwiceAsMlxDoes) {
  const Converted c("mixed");
  const Json config = Json::parse(read_whole_file(c.folder() + "/config.json"));
  Json want = {{"group_size", 64}, {"bits", 4}};
  want["model.embed_tokens"] = {{"group_size", 64}, {"bits", 6}};
  for (int i = 0; i < 6; i++)
    want[fmt::format("model.layers.{}.mlp.down_proj", i)] = {{"group_size", 32}, {"bits", 8}};
  EXPECT_EQ(config["quantization"], want);
  EXPECT_EQ(config["quantization_config"], want);
  Json rest = config;
  rest.erase("quantization");
  rest.erase("quantization_config");
  EXPECT_EQ(rest, Json::parse(read_whole_file(kStoryteller + "/config.json")));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    EXPECT_EQ(read_whole_file(c.folder() + "/" + name), read_whole_file(kStoryteller + "/" + name)) << name;
  }
}

TEST(Convert, ThreadsAndTypesOfWeightsDoNotChangeTheBytes) {
  Checkpoint f32, f16;
  for (OwnedTensor& t : f32.tensors) t = Checkpoint::converted(t, DType::kF32);
  for (OwnedTensor& t : f16.tensors) t = Checkpoint::converted(t, DType::kF16);
  for (Checkpoint* source : {&f32, &f16}) {
    source->save();
    std::string first;
    for (const int threads : {1, 3}) {
      const TempFolder temp;
      ThreadPool pool = must(ThreadPool::create(threads));
      must(convert_model(source->folder, temp.path("out"), {.bits = 3, .group = 32}, pool).status());
      const std::string bytes = read_whole_file(temp.path("out/model.safetensors"));
      if (first.empty()) first = bytes;
      EXPECT_EQ(bytes, first);
      const SafetensorsFile file = must(SafetensorsFile::open(temp.path("out/model.safetensors")));
      const TensorView* scales = file.find("model.layers.0.mlp.up_proj.scales");
      ASSERT_NE(scales, nullptr);
      EXPECT_EQ(scales->dtype, source->tensors[0].dtype) << "parameters are of the weight's type";
      EXPECT_EQ(scales->shape, (std::vector<std::size_t>{96, 2}));
      EXPECT_EQ(file.find("model.layers.0.mlp.up_proj.weight")->shape, (std::vector<std::size_t>{96, 6}));
    }
  }
}

TEST(Convert, MatricesThatTheGroupDoesNotDivideStayAsTheyAre) {
  Checkpoint c;  // hidden 64, inner 96
  c.save();
  const TempFolder temp;
  ThreadPool pool = must(ThreadPool::create(1));
  const Conversion done = must(convert_model(c.folder, temp.path("out"), {.bits = 8, .group = 64}, pool));
  const SafetensorsFile file = must(SafetensorsFile::open(temp.path("out/model.safetensors")));
  EXPECT_EQ(file.find("model.layers.0.mlp.down_proj.weight")->dtype, DType::kBF16);
  EXPECT_EQ(file.find("model.layers.0.mlp.down_proj.scales"), nullptr);
  EXPECT_EQ(file.find("model.layers.0.mlp.up_proj.weight")->dtype, DType::kU32);
  EXPECT_EQ(done.quantized, 6u * 6 + 1);
}

TEST(Convert, ShardsAreCutAndNamedAsMlxDoesAndGiveTheSameTensors) {
  const TempFolder temp;
  ThreadPool pool = must(ThreadPool::create(1));
  ConvertOptions options;
  options.shard_bytes = 1000000;
  const Conversion done = must(convert_model(kStoryteller, temp.path("out"), options, pool));
  EXPECT_EQ(done.files, 4u);
  EXPECT_TRUE(std::filesystem::exists(temp.path("out/model-00001-of-00004.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(temp.path("out/model.safetensors")));
  const Json index = Json::parse(read_whole_file(temp.path("out/model.safetensors.index.json")));
  EXPECT_EQ(index["metadata"]["total_size"], done.bytes_after);
  const ModelTensors tensors = must(ModelTensors::open(temp.path("out")));
  const Json want = Json::parse(read_whole_file(kCheckpoints + "/4bit/tensors.json"));
  EXPECT_EQ(index["weight_map"].size(), want.size());
  for (const auto& [name, entry] : want.items())
    EXPECT_EQ(hash(tensors.find(name)->bytes), entry["fnv1a64"].get<std::string>()) << name;
}

TEST(Convert, OtherPartsOfAMultimodalFolderAndTiedHeadsAreLeftOut) {
  Checkpoint c;
  OwnedTensor head = c.tensor("model.embed_tokens.weight");
  for (OwnedTensor& t : c.tensors) t.name = "language_model." + t.name;
  head.name = "language_model.lm_head.weight";
  c.tensors.push_back(head);
  c.tensors.push_back({"vision_tower.patch.weight", DType::kBF16, {1, 64}, std::vector<std::byte>(128)});
  c.config = R"({"model_type": "gemma3", "vision_config": {"a": 1}, "text_config": )" + c.config + "}";
  c.save();
  const TempFolder temp;
  ThreadPool pool = must(ThreadPool::create(1));
  const Conversion done = must(convert_model(c.folder, temp.path("out"), {.group = 32}, pool));
  EXPECT_EQ(done.left_out, 2u);
  const SafetensorsFile file = must(SafetensorsFile::open(temp.path("out/model.safetensors")));
  for (const TensorView& t : file.tensors())
    EXPECT_TRUE(t.name.starts_with("language_model.model.")) << t.name;
  EXPECT_FALSE(Json::parse(read_whole_file(temp.path("out/config.json"))).contains("vision_config"));
  Session s(temp.path("out"), KvChoice(), {.rows = 1, .tokens = 8, .step_tokens = 8});
  EXPECT_EQ(s.logits({1, 2, 3}, 3).size(), 3u * 320);
}

TEST(Convert, AnOldFolderStaysUnlessItMayBeReplaced) {
  const TempFolder temp;
  ThreadPool pool = must(ThreadPool::create(1));
  temp.write("out/config.json", "{}");
  ConvertOptions options;
  EXPECT_EQ(convert_model(kTiny, temp.path("out"), options, pool).status().message(),
            temp.path("out") + ": exists already");
  EXPECT_EQ(read_whole_file(temp.path("out/config.json")), "{}");
  options.replace = true;
  EXPECT_TRUE(convert_model(kTiny, temp.path("out"), options, pool).ok());
  EXPECT_NE(read_whole_file(temp.path("out/config.json")), "{}");
  EXPECT_EQ(temp.entries(), 1);
  EXPECT_EQ(convert_model(temp.path("out"), temp.path("out"), options, pool).status().code(),
            StatusCode::kUnsupported);
}

TEST(Convert, ACancelledConversionLeavesNothing) {
  std::atomic<bool> cancel{false};
  ConvertOptions options;
  options.cancel = &cancel;
  options.progress = [&](std::size_t done, std::size_t) { cancel = done > 100000; };
  EXPECT_EQ(error_of(kStoryteller, options), "cancelled, nothing is written");
}

TEST(Convert, ProgressEndsWithEverythingWritten) {
  const TempFolder temp;
  ThreadPool pool = must(ThreadPool::create(1));
  std::size_t last = 0, total = 0;
  ConvertOptions options;
  options.progress = [&](std::size_t done, std::size_t all) {
    EXPECT_LT(last, done);
    last = done, total = all;
  };
  const Conversion done = must(convert_model(kTiny, temp.path("out"), options, pool));
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, done.bytes_after);
}

TEST(Convert, WhatItCannotConvertIsRefusedByName) {
  const Converted quantized("4bit");
  EXPECT_EQ(
      error_of(quantized.folder(), {}),
      quantized.folder() + "/config.json: \"quantization\" is present, the folder is quantized already");
  for (const std::string type : {"gpt_oss", "qwen3_next"}) {
    const std::string folder = WINDROW_TEST_DATA "/hf/" + type;
    EXPECT_EQ(error_of(folder, {}), folder + "/config.json: model_type \"" + type +
                                        "\" can't be converted: mlx-lm stores its tensors in another form");
  }
  Checkpoint c;
  c.tensor("model.layers.1.mlp.up_proj.weight").dtype = DType::kU16;
  c.save();
  EXPECT_EQ(error_of(c.folder, {}),
            c.folder +
                "/model.safetensors: tensor \"model.layers.1.mlp.up_proj.weight\": is U16, expected F32, "
                "F16 or BF16: quantized already?");
  c.tensor("model.layers.1.mlp.up_proj.weight").dtype = DType::kBF16;
  c.tensor("model.layers.1.mlp.up_proj.weight").shape = {2, 48, 64};
  c.save();
  EXPECT_EQ(error_of(c.folder, {}),
            c.folder +
                "/model.safetensors: tensor \"model.layers.1.mlp.up_proj.weight\": experts and "
                "convolutions can't be converted");
  EXPECT_NE(error_of("/nowhere", {}), "");
}

TEST(Convert, WrongOptionsAreNamed) {
  EXPECT_EQ(error_of(kTiny, {.bits = 7}), "codec q7:64: affine bits are 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(error_of(kTiny, {.group = 48}), "codec q4:48: the group is 32, 64 or 128");
  ConvertOptions options;
  options.rules = {{.pattern = "down_proj", .bits = 8, .group = 64}};
  EXPECT_EQ(error_of(kTiny, options),
            kTiny +
                "/model.safetensors: tensor \"model.layers.0.mlp.down_proj.weight\": 96 columns are no "
                "multiple of the group 64 of rule \"down_proj\"");
  options.rules = {{.pattern = "router", .quantized = false}};
  EXPECT_EQ(error_of(kTiny, options), "rule \"router\" matches no matrix of " + kTiny + "/model.safetensors");
  options.rules = {{.pattern = "embed_tokens", .bits = 1}};
  EXPECT_EQ(error_of(kTiny, options),
            "rule \"embed_tokens\": codec q1:64: affine bits are 2, 3, 4, 5, 6 or 8");
}

TEST(ConvertRules, PatternsMeanTheWholePathOrItsEnd) {
  const std::string path = "model.layers.11.mlp.down_proj";
  for (const char* yes : {"down_proj", "mlp.down_proj", "model.layers.11.mlp.down_proj", "*",
                          "layers.*.down_proj", "layers.1?.mlp.*", "layers.11.*", "*down*", "m*p.d*j"}) {
    EXPECT_TRUE(matches(yes, path)) << yes;
  }
  for (const char* no : {"", "proj", "down_pro", "layers.1.*", "mlp", "own_proj", "?down_proj", "model"}) {
    EXPECT_FALSE(matches(no, path)) << no;
  }
  // A pattern of many stars takes no exponential time.
  EXPECT_FALSE(matches(std::string(2000, '*') + "x", std::string(5000, 'a')));
}

TEST(ConvertRules, TheLastThatFitsCountsAndNoneKeepsAModuleAsItIs) {
  const TempFolder temp;
  ThreadPool pool = must(ThreadPool::create(1));
  ConvertOptions options{.bits = 4, .group = 32};
  options.rules = must(parse_convert_rules("mlp.*=8,layers.0.*=none,layers.0.mlp.up_proj=2:64", 32));
  must(convert_model(kTiny, temp.path("out"), options, pool).status());
  const SafetensorsFile file = must(SafetensorsFile::open(temp.path("out/model.safetensors")));
  const auto cols = [&](const std::string& name) { return file.find("model.layers." + name)->shape[1]; };
  EXPECT_EQ(cols("0.mlp.gate_proj.weight"), 64u);  // bf16 still
  EXPECT_EQ(cols("0.mlp.up_proj.weight"), 4u);
  EXPECT_EQ(cols("1.mlp.up_proj.weight"), 16u);
  EXPECT_EQ(cols("1.self_attn.q_proj.weight"), 8u);
  const Json q = Json::parse(read_whole_file(temp.path("out/config.json")))["quantization"];
  EXPECT_EQ(q["model.layers.0.mlp.gate_proj"], false);
  EXPECT_EQ(q["model.layers.0.mlp.up_proj"], (Json{{"group_size", 64}, {"bits", 2}}));
  Session s(temp.path("out"), KvChoice(), {.rows = 1, .tokens = 8, .step_tokens = 8});
  EXPECT_EQ(s.logits({1, 2, 3}, 3).size(), 3u * 320);
}

TEST(ConvertRules, MalformedOnesAreQuoted) {
  const auto error = [](const std::string& text) { return parse_convert_rules(text, 64).status().message(); };
  const std::string expected = "expected PATTERN=BITS, PATTERN=BITS:GROUP or PATTERN=none";
  EXPECT_EQ(error(""), "rule \"\": " + expected);
  EXPECT_EQ(error("a=4,"), "rule \"\": " + expected);
  EXPECT_EQ(error("=4"), "rule \"=4\": " + expected);
  for (const std::string bad : {"a=7", "a=4:48", "a=", "a=4:64:f32", "a=x", "a=04", "a=4:"}) {
    EXPECT_EQ(error(bad), "rule \"" + bad + "\": bits are 2, 3, 4, 5, 6 or 8, the group is 32, 64 or 128")
        << bad;
  }
  EXPECT_EQ(must(parse_convert_rules("a=4", 128))[0].group, 128);
}

}  // namespace
}  // namespace windrow
