// What each compute mode of quantized weights does to a model's predictions.
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "io/safetensors.h"
#include "windrow/quality.h"

namespace windrow {
namespace {

// A module is quantized iff its scales exist (MLX).
Result<bool> has_quantized_weights(const std::string& folder) {
  const Result<ModelTensors> tensors = ModelTensors::open(folder);
  if (!tensors.ok()) return tensors.status();
  return std::any_of(tensors->tensors().begin(), tensors->tensors().end(),
                     [](const TensorView& t) { return t.name.ends_with(".scales"); });
}

}  // namespace

Result<std::vector<ComputeReport>> measure_compute(const std::string& folder, const QualityText& text,
                                                   const QualityOptions& options, ThreadPool& pool) try {
  std::vector<ComputeReport> reports;
  const Result<bool> quantized = has_quantized_weights(folder);
  if (!quantized.ok()) return quantized.status();
  if (!*quantized) return reports;
  const auto load = [&](Compute compute) {
    LoadOptions load_options;
    load_options.compute = compute;
    return Model::load(folder, pool, load_options);
  };
  const Result<Model> exact = load(Compute::kF32);
  if (!exact.ok()) return exact.status();
  for (const Compute compute : {Compute::kDefault, Compute::kFast}) {
    const Result<Model> model = load(compute);
    if (!model.ok()) return model.status();
    const KvTrial trials[] = {{.kv = KvChoice(Codec::f32()), .model = &*model}};
    const Result<QualityReport> report = measure_quality(*exact, text, trials, options, pool);
    if (!report.ok()) return report.status();
    if (reports.empty()) reports.push_back({Compute::kF32, report->reference});
    reports.push_back({compute, report->trials[0].divergence});
  }
  return reports;
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("{}: {}", folder, e.what()));
}

}  // namespace windrow
