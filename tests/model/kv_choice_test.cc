// The choice of codecs for single layers: plans follow it, and its file is read strictly.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "support/temp_folder.h"
#include "windrow/model.h"

namespace windrow {
namespace {

constexpr LayerShape kSliding{8, 2, 64}, kFull{kFullWindow, 2, 64};

// Layers 0, 1, 3: sliding; 2: full; 4 attends over 3's state; 5 is recurrent.
ModelInfo info() {
  ModelInfo info;
  info.model_type = "test_text";
  info.layers = {kSliding, kSliding, kFull, kSliding, kSliding, {}};
  info.layers[4].donor = 3;
  info.layers[5].recurrent = RecurrentShape{
      .delta = {.key_heads = 1, .value_heads = 1, .key_dim = 16, .value_dim = 16}, .conv = {.channels = 48}};
  return info;
}

KvCodecs q(int keys, int values) { return {Codec::affine(keys), Codec::affine(values)}; }

std::string error_of(const std::string& json) {
  const Result<KvChoice> kv = parse_kv_choice(json, "kv.json", info());
  return kv.ok() ? "accepted" : kv.status().message();
}

TEST(KvChoice, ALayersOwnCodecsWinOverThoseOfItsKind) {
  KvChoice kv(Codec::f16());
  kv.full = q(8, 4);
  kv.layers[1] = q(3, 2);
  EXPECT_EQ(kv.of(0, kSliding), (KvCodecs{Codec::f16(), Codec::f16()}));
  EXPECT_EQ(kv.of(1, kSliding), q(3, 2));
  EXPECT_EQ(kv.of(2, kFull), q(8, 4));
  EXPECT_EQ(to_string(q(8, 4)), "q8:64/q4:64");
  EXPECT_EQ(to_string(q(4, 4)), "q4:64");
}

TEST(KvChoice, APlanGroupsLayersOfEqualShapeAndCodecsInOrderOfTheFirst) {
  KvChoice kv(Codec::bf16());
  kv.layers[1] = kv.layers[3] = q(8, 4);
  const Result<StatePlan> plan = plan_state(info(), kv, {.rows = 1, .tokens = 64, .step_tokens = 8});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_EQ(plan->group_count(), 3);
  EXPECT_EQ(plan->group(0).layers, std::vector<int>{0});
  EXPECT_EQ(plan->group(0).keys, Codec::bf16());
  EXPECT_EQ(plan->group(1).layers, (std::vector<int>{1, 3}));
  EXPECT_EQ(plan->group(1).keys, Codec::affine(8));
  EXPECT_EQ(plan->group(1).values, Codec::affine(4));
  EXPECT_EQ(plan->group(2).layers, std::vector<int>{2});
  EXPECT_EQ(plan->owner_of_layer(4), 3);
  EXPECT_EQ(plan->group_of_layer(4), 1) << "a sharer follows its owner";
  EXPECT_EQ(plan->recurrent_of_layer(5), 0);
}

TEST(KvChoice, APlanRefusesLayersThatStoreNothingAndCodecsThatDoNotFit) {
  const auto message = [](int layer, const KvCodecs& codecs) {
    KvChoice kv;
    kv.layers[layer] = codecs;
    return plan_state(info(), kv, {.rows = 1, .tokens = 64, .step_tokens = 8}).status().message();
  };
  EXPECT_EQ(message(6, {}), "kv choice: layer 6: the model has 0 to 5");
  EXPECT_EQ(message(-1, {}), "kv choice: layer -1: the model has 0 to 5");
  EXPECT_EQ(message(4, {}), "kv choice: layer 4 attends over the state of layer 3");
  EXPECT_EQ(message(5, {}), "kv choice: layer 5 is recurrent, it stores no keys and values");
  EXPECT_EQ(message(0, {Codec::affine(4, 128), {}}).rfind("kv choice: layer 0: ", 0), 0u)
      << message(0, {Codec::affine(4, 128), {}});
}

TEST(KvFile, EachLayerGetsItsCodecsAndTheOthersTheDefault) {
  const Result<KvChoice> kv = parse_kv_choice(
      R"({"windrow_kv": 1, "model_type": "test_text", "num_layers": 6, "default": {"keys": "bf16", "values": "f16"},
          "layers": [{"layers": [0, 3], "keys": "q4", "values": "q8:32:f32"}, {"layers": 2, "keys": "f32", "values": "q2:64"}]})",
      "kv.json", info());
  ASSERT_TRUE(kv.ok()) << kv.status().message();
  EXPECT_EQ(kv->of(0, kSliding), (KvCodecs{Codec::affine(4), Codec::affine(8, 32, DType::kF32)}));
  EXPECT_EQ(kv->of(1, kSliding), (KvCodecs{Codec::bf16(), Codec::f16()}));
  EXPECT_EQ(kv->of(2, kFull), (KvCodecs{Codec::f32(), Codec::affine(2)}));
  EXPECT_EQ(kv->of(3, kSliding), kv->of(0, kSliding));
}

TEST(KvFile, WithoutADefaultEveryLayerThatStoresStateMustBeNamed) {
  const std::string some =
      R"({"windrow_kv": 1, "layers": [{"layers": [0, 1, 3], "keys": "q4", "values": "q4"})";
  EXPECT_EQ(error_of(some + "]}"), "kv.json: layer 2 is not named, and there is no \"default\"");
  EXPECT_EQ(error_of(some + R"(, {"layers": [2], "keys": "q4", "values": "q4"}]})"), "accepted");
  EXPECT_EQ(error_of(R"({"windrow_kv": 1, "default": {"keys": "q4", "values": "q4"}})"), "accepted");
}

TEST(KvFile, WhatIsWrongIsNamed) {
  const struct {
    const char *json, *message;
  } cases[] = {
      {"", "invalid JSON at byte 1: syntax error while parsing value - unexpected end of input"},
      {"[]", "the file is an array of 0, expected an object"},
      {"{}", "\"windrow_kv\" is missing"},
      {R"({"windrow_kv": 2})", "\"windrow_kv\" is 2, this program reads version 1"},
      {R"({"windrow_kv": "1"})", "\"windrow_kv\" is \"1\", expected an integer from 1 to 1073741824"},
      {R"({"windrow_kv": 1, "model_type": "llama"})",
       "\"model_type\" is \"llama\", the model is \"test_text\""},
      {R"({"windrow_kv": 1, "num_layers": 7})", "\"num_layers\" is 7, the model has 6"},
      {R"({"windrow_kv": 1, "group": 64})", "\"group\" is not a key of this format"},
      {R"({"windrow_kv": 1, "a\nb": 64})", "\"a\\x0ab\" is not a key of this format"},
      {R"({"windrow_kv": 1, "windrow_kv": 1})", "duplicate key \"windrow_kv\""},
      {R"({"windrow_kv": 1, "default": "q4"})", "\"default\" is \"q4\", expected an object"},
      {R"({"windrow_kv": 1, "default": {"keys": "q4"}})", "\"default.values\" is missing"},
      {R"({"windrow_kv": 1, "default": {"keys": 4, "values": "q4"}})",
       "\"default.keys\" is 4, expected a string"},
      {R"({"windrow_kv": 1, "default": {"keys": "q4", "values": "q4", "bits": 4}})",
       "\"default.bits\" is not a key of this format"},
      {R"({"windrow_kv": 1, "default": {"keys": "q4:128", "values": "q4"}})",
       "kv choice: layer 0: codec q4:128: head_dim 64 is not a multiple of 128, the group"},
      {R"({"windrow_kv": 1, "layers": {}})", "\"layers\" is an object, expected an array"},
      {R"({"windrow_kv": 1, "layers": [4]})", "\"layers[0]\" is 4, expected an object"},
      {R"({"windrow_kv": 1, "layers": [{"keys": "q4", "values": "q4"}]})", "\"layers[0].layers\" is missing"},
      {R"({"windrow_kv": 1, "layers": [{"layers": [0], "keys": "q4", "values": "q4", "window": 8}]})",
       "\"layers[0].window\" is not a key of this format"},
      {R"({"windrow_kv": 1, "layers": [{"layers": [0.5], "keys": "q4", "values": "q4"}]})",
       "\"layers[0].layers\" is 0.5, expected an integer from 0 to 1073741824"},
      {R"({"windrow_kv": 1, "layers": [{"layers": [-1], "keys": "q4", "values": "q4"}]})",
       "\"layers[0].layers\" is -1, expected 0 to 1073741824"},
      {R"({"windrow_kv": 1, "layers": [{"layers": [6], "keys": "q4", "values": "q4"}]})",
       "\"layers[0].layers\" names layer 6: the model has 0 to 5"},
      {R"({"windrow_kv": 1, "layers": [{"layers": [4], "keys": "q4", "values": "q4"}]})",
       "\"layers[0].layers\" names layer 4 attends over the state of layer 3"},
      {R"({"windrow_kv": 1, "layers": [{"layers": [1, 1], "keys": "q4", "values": "q4"}]})",
       "\"layers[0].layers\" names layer 1, which has its codecs already"},
      {R"({"windrow_kv": 1, "layers": [{"layers": [1], "keys": "q4", "values": "q4"},
                                       {"layers": [0, 1], "keys": "q8", "values": "q4"}]})",
       "\"layers[1].layers\" names layer 1, which has its codecs already"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(error_of(c.json), std::string("kv.json: ") + c.message) << c.json;
  }
  const std::string bad_codec =
      error_of(R"({"windrow_kv": 1, "layers": [{"layers": [0], "keys": "q7", "values": "q4"}]})");
  EXPECT_EQ(bad_codec.rfind("kv.json: \"layers[0].keys\" is codec \"q7\": ", 0), 0u) << bad_codec;
}

TEST(KvFile, AFileThatIsNotThereOrTooLargeIsNamed) {
  const TempFolder dir;
  EXPECT_EQ(read_kv_choice(dir.path("none"), info()).status().message(),
            dir.path("none") + ": cannot open: No such file or directory");
  dir.write("large", std::string((std::size_t{16} << 20) + 1, ' '));
  EXPECT_EQ(read_kv_choice(dir.path("large"), info()).status().message().rfind(dir.path("large") + ": ", 0),
            0u);
}

RC_GTEST_PROP(KvFile, WhatIsWrittenIsReadBackForEveryLayer, ()) {
  const ModelInfo model = info();
  const auto codec = [] {
    return *rc::gen::element(Codec::f32(), Codec::f16(), Codec::bf16(), Codec::affine(2),
                             Codec::affine(3, 32), Codec::affine(8, 64, DType::kF16));
  };
  KvChoice kv(codec());
  kv.full.keys = codec();
  for (const int layer : {0, 1, 2, 3}) {
    if (*rc::gen::arbitrary<bool>()) kv.layers[layer] = {codec(), codec()};
  }
  const Result<KvChoice> back = parse_kv_choice(kv_choice_json(kv, model), "kv.json", model);
  RC_ASSERT(back.ok());
  for (const int layer : {0, 1, 2, 3}) {
    const LayerShape& shape = model.layers[static_cast<std::size_t>(layer)];
    RC_ASSERT(back->of(layer, shape) == kv.of(layer, shape));
  }
}

}  // namespace
}  // namespace windrow
