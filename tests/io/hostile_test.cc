// Malformed safetensors files and indexes: each is refused with the message its manifest states.
#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "support/hostile.h"

namespace windrow {
namespace {

TEST(HostileSafetensors, EveryFixtureIsRefusedWithItsMessage) {
  expect_refusals("safetensors", 50,
                  [](const std::string& path) { return SafetensorsFile::open(path).status(); });
}

TEST(HostileIndex, EveryFixtureIsRefusedWithItsMessage) {
  expect_refusals("index", 24, [](const std::string& path) { return ModelTensors::open(path).status(); });
}

TEST(HostileSafetensors, CodesTellTheKindOfFault) {
  const auto code = [](const char* name) {
    return SafetensorsFile::open(std::string(WINDROW_TEST_DATA "/hostile/safetensors/") + name)
        .status()
        .code();
  };
  EXPECT_EQ(code("overlap.safetensors"), StatusCode::kCorrupt);
  EXPECT_EQ(code("dtype_f8.safetensors"), StatusCode::kUnsupported);
  EXPECT_EQ(code("not there"), StatusCode::kIo);
}

}  // namespace
}  // namespace windrow
