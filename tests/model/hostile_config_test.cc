// Malformed config.json and generation_config.json: each is refused with the message its manifest states.
#include <gtest/gtest.h>

#include "model/config.h"
#include "support/hostile.h"

namespace windrow {
namespace {

TEST(HostileConfig, EveryFixtureIsRefusedWithItsMessage) {
  expect_refusals("config", 110, [](const std::string& path) { return load_config(path).status(); });
}

}  // namespace
}  // namespace windrow
