// config.json's "quantization": defaults, modules of their own, both places; tests/data/hostile has what is
// refused.
#include "model/quantization.h"

#include <gtest/gtest.h>

#include "model/config.h"

namespace windrow {
namespace {

Quantization parse(const std::string& text) {
  const Json json = Json::parse("{\"quantization\": " + text + "}");
  Status error;
  JsonReader reader(json, "config.json", error);
  const Quantization q = read_quantization(reader, "quantization");
  EXPECT_TRUE(error.ok()) << error.message();
  return q;
}

TEST(Quantization, ModulesHaveTheDefaultUnlessTheFileSaysOtherwise) {
  const Quantization q =
      parse(R"({"group_size": 64, "bits": 4, "mode": "affine", "a.b": {"group_size": 32, "bits": 8},
      "a.c": false, "a.d": true, "a.e": {"bits": 3}, "a.f": {"group_size": 128, "bits": 2, "mode": "affine"}})");
  EXPECT_EQ(q.of("x"), (AffineFormat{4, 64}));
  EXPECT_EQ(q.of("a.b"), (AffineFormat{8, 32}));
  EXPECT_EQ(q.of("a.c"), std::nullopt);
  EXPECT_EQ(q.of("a.d"), (AffineFormat{4, 64}));
  EXPECT_EQ(q.of("a.e"), (AffineFormat{3, 64})) << "MLX's own default group";
  EXPECT_EQ(q.of("a.f"), (AffineFormat{2, 128}));
  EXPECT_EQ(q.of("a"), (AffineFormat{4, 64})) << "a path is no prefix";
}

TEST(Quantization, EveryWidthAndGroupOfMlxIsRead) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      const Json json = {{"group_size", group}, {"bits", bits}};
      EXPECT_EQ(parse(json.dump()).format, (AffineFormat{bits, group}));
    }
  }
}

TEST(Quantization, WhatIsWrittenReadsBack) {
  Quantization q{{3, 128}, {{"a", std::nullopt}, {"b", AffineFormat{8, 32}}}};
  const Quantization back = parse(quantization_json(q).dump());
  EXPECT_EQ(back.format, q.format);
  EXPECT_EQ(back.modules, q.modules);
}

TEST(Quantization, TheFirstOfBothKeysCountsInsideOrOutsideOfTextConfig) {
  const std::string sizes = R"("hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2)";
  const auto bits = [&](const std::string& inside, const std::string& outside) {
    const std::string text =
        "{\"model_type\": \"gemma3\", \"text_config\": {" + sizes + inside + "}" + outside + "}";
    const Result<ModelConfig> config = parse_config(text, "");
    if (!config.ok()) ADD_FAILURE() << config.status().message();
    return config.ok() && config->quantization ? config->quantization->format.bits : 0;
  };
  const std::string q4 = R"(, "quantization": {"group_size": 64, "bits": 4})";
  const std::string copy8 = R"(, "quantization_config": {"group_size": 64, "bits": 8})";
  EXPECT_EQ(bits("", ""), 0);
  EXPECT_EQ(bits("", q4), 4);
  EXPECT_EQ(bits(q4, ""), 4);
  EXPECT_EQ(bits("", q4 + copy8), 4);
  EXPECT_EQ(bits("", copy8), 8);
}

}  // namespace
}  // namespace windrow
