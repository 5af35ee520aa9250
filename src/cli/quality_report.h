// What `windrow quality` found, as a table, as JSON and as a plot.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "windrow/quality.h"

namespace windrow::cli {

// One codec choice and what it did.
struct Measured {
  std::string codec;                // "q4:64", or the name of a file of codecs
  std::size_t bytes_per_token = 0;  // of the layers it is about
  std::size_t row_bytes = 0;        // of a row of the context's positions, all layers
  TrialReport report;
};

// Layers of which only these are stored by a codec, all else f32.
struct MeasuredUnit {
  std::vector<int> layers;
  int window = 0;
  std::vector<Measured> codecs;
};

struct QualityFindings {
  std::string model;  // its folder
  std::string text;   // the file
  int context = 0;
  QualityReport reference;       // without trials
  std::vector<Measured> codecs;  // of all layers
  std::vector<MeasuredUnit> units;
  std::optional<Measured> file;  // --kv-file
  std::size_t budget = 0;
  std::optional<Suggestion> suggestion;
  std::size_t suggestion_bytes_per_token = 0;
  std::optional<std::vector<ComputeReport>> compute;  // empty: no quantized weights
};

std::string quality_table(const QualityFindings& findings, const ModelInfo& info);
std::string quality_json(const QualityFindings& findings, const ModelInfo& info);
std::string quality_svg(const QualityFindings& findings);

}  // namespace windrow::cli
