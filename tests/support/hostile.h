// Runs a reader over every malformed fixture of tests/data/hostile/FOLDER (its README says how they
// are made) and compares the message with the manifest's.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "support/temp_folder.h"
#include "windrow/status.h"

namespace windrow {

// `read(path)` returns the Status of reading the fixture; at least `min_count` must be there.
inline void expect_refusals(const std::string& folder, std::size_t min_count,
                            const std::function<Status(const std::string& path)>& read) {
  const std::string root = std::string(WINDROW_TEST_DATA "/hostile/") + folder + "/";
  const auto manifest = nlohmann::json::parse(read_whole_file(root + "manifest.json"));
  EXPECT_GE(manifest.size(), min_count);
  std::size_t on_disk = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    on_disk += entry.path().filename() != "manifest.json";
  }
  EXPECT_EQ(on_disk, manifest.size()) << "a fixture without a message, or the reverse";
  for (const auto& [name, message] : manifest.items()) {
    const Status status = read(root + name);
    EXPECT_FALSE(status.ok()) << name << " was accepted";
    EXPECT_EQ(status.message(), root + message.get<std::string>());
  }
}

}  // namespace windrow
