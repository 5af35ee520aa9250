// Masks as arrays against the formula and against mlx-lm's masks.
#include <gtest/gtest.h>

#include <cmath>

#include "oracle/trace.h"
#include "windrow/masks.h"

namespace windrow::testing {
namespace {

bool sees(int query, int key, int window, int sinks) {
  return key <= query && (key > query - window || key < sinks);
}

TEST(Masks, C4_C20_EveryOffsetLengthWindowAndSinks) {
  for (int offset = 0; offset <= 10; offset++) {
    for (int length = 0; length <= 6; length++) {
      for (int window = 1; window <= 7; window++) {
        for (int sinks = 0; sinks <= 4; sinks++) {
          for (int begin = 0; begin <= offset; begin++) {
            Result<MaskArray> mask = window_mask({offset, length, window, sinks, begin});
            ASSERT_TRUE(mask.ok()) << mask.status().message();
            std::vector<int> keys;
            for (int j = 0; j < offset + length; j++) {
              if (j < std::min(sinks, begin) || j >= begin) keys.push_back(j);
            }
            ASSERT_EQ(mask->batch, 1);
            ASSERT_EQ(mask->queries, length);
            ASSERT_EQ(mask->keys, static_cast<int>(keys.size()));
            for (int i = 0; i < length; i++) {
              for (int c = 0; c < mask->keys; c++)
                ASSERT_EQ(mask->at(0, i, c), sees(offset + i, keys[c], window, sinks));
            }
          }
        }
      }
    }
  }
  Result<MaskArray> full = window_mask({.offset = 3, .length = 2});
  EXPECT_EQ(full->seen, (std::vector<std::uint8_t>{1, 1, 1, 1, 0, 1, 1, 1, 1, 1}));
}

// makeMask of a serial ring that keeps nothing, wherever mlx-lm answers with an array.
TEST(Masks, C20_EqualsMlxsSerialMasks) {
  int compared = 0;
  for (const std::string& name : oracle::Trace::names("G2_rotating")) {
    const oracle::Trace trace = oracle::Trace::load("G2_rotating", name);
    if (trace.json().at("keep") != 0) continue;  // quirks: see the README of the reference
    const int max_size = trace.json().at("max_size");
    int offset = 0;
    for (const auto& step : trace.steps()) {
      if (step.at("op") == "update" && step.at("mask") == "array") {
        const int n = step.at("S"), begin = std::max(0, offset - (max_size - 1));
        const std::string i = std::to_string(step.at("i").get<int>());
        EXPECT_EQ(window_mask({offset, n, max_size, 0, begin})->seen, trace.mask("mask." + i).seen)
            << name << i;
        compared++;
        const int window = step.at("mask_window")[0];  // a narrower one that was asked for
        EXPECT_EQ(window_mask({offset, n, window, 0, begin})->seen, trace.mask("maskw." + i).seen)
            << name << i;
        compared++;
      }
      offset = step.at("offset");
    }
  }
  EXPECT_EQ(compared, 26);
}

TEST(Masks, C20_BatchesArePaddedOnBothSides) {
  const MaskWindow rows[] = {{.offset = 4, .length = 2, .window = 3, .begin = 2},
                             {.offset = 1, .length = 1, .window = 3},
                             {.offset = 0, .length = 0, .window = 3}};
  Result<MaskArray> masks = window_masks(rows);
  ASSERT_TRUE(masks.ok());
  EXPECT_EQ(masks->seen, (std::vector<std::uint8_t>{1, 1, 1, 0, 0, 1, 1, 1,  //
                                                    0, 0, 1, 1, 0, 0, 0, 0,  //
                                                    0, 0, 0, 0, 0, 0, 0, 0}));
  Result<MaskArray> one = window_mask({.offset = 1, .length = 1, .left_padding = 2, .right_padding = 1});
  EXPECT_EQ(one->seen, (std::vector<std::uint8_t>{0, 0, 1, 1, 0, 0, 0, 0}));
  Result<std::vector<float>> added = additive_mask(*one);
  EXPECT_EQ((*added)[2], 0.0f);
  EXPECT_EQ((*added)[0], -INFINITY);
  EXPECT_EQ((*additive_mask(*one, -1e9f))[7], -1e9f);
  EXPECT_TRUE(window_masks({})->seen.empty());
}

TEST(Masks, C20_WrongNumbersAreRefusedByName) {
  for (const MaskWindow& row :
       {MaskWindow{.offset = -1}, MaskWindow{.length = -1}, MaskWindow{.window = 0}, MaskWindow{.sinks = -1},
        MaskWindow{.begin = -1}, MaskWindow{.begin = 2}, MaskWindow{.left_padding = -1},
        MaskWindow{.right_padding = -1}, MaskWindow{.offset = kFullWindow, .length = kFullWindow}}) {
    Result<MaskArray> mask = window_mask(row);
    ASSERT_FALSE(mask.ok());
    EXPECT_EQ(mask.status().code(), StatusCode::kInvalidArgument);
  }
  const std::string message = window_mask({.offset = 7, .window = 0}).status().message();
  EXPECT_NE(message.find("offset 7, length 1, window 0"), std::string::npos) << message;
}

}  // namespace
}  // namespace windrow::testing
