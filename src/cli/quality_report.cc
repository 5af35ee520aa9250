#include "cli/quality_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "cli/plot.h"

namespace windrow::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string window_text(int window) {
  return window == kFullWindow ? "full" : fmt::format("window {}", window);
}

const char* compute_name(Compute compute) {
  switch (compute) {
    case Compute::kDefault: return "default";
    case Compute::kFast: return "fast";
    case Compute::kF32: return "f32";
  }
  return "unknown";
}

constexpr int kNameWidth = 14;

std::string divergence_columns(const Divergence& d) {
  return fmt::format("{:>10.3g} {:>10.3g} {:>10.3g} {:>10.3g} {:>8.2f} % {:>11.3f}\n", d.kld_mean,
                     d.kld_median, d.kld_p99, d.kld_max, d.same_top * 100, d.perplexity());
}

std::string head(const std::string& title, const char* size) {
  return fmt::format("\n{}\n{:<{}} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>11}\n", title, "", kNameWidth,
                     size, "KLD mean", "median", "99 %", "largest", "same top", "perplexity");
}

std::string row(const Measured& m) {
  return fmt::format("{:<{}} {:>10} ", m.codec, kNameWidth, m.bytes_per_token) +
         divergence_columns(m.report.divergence);
}

std::string rows(const std::vector<Measured>& all) {
  std::string text;
  for (const Measured& m : all) text += row(m);
  return text;
}

// Layers down, codecs across.
std::string attention_table(const QualityFindings& f) {
  std::vector<const Measured*> shown;
  for (const Measured& m : f.codecs) shown.push_back(&m);
  if (f.file) shown.push_back(&*f.file);
  if (shown.empty()) return "";
  std::string text =
      fmt::format("\nerror of attention outputs, relative (rms), for the same inputs\n{:<8}", "layer");
  for (const Measured* m : shown) text += fmt::format(" {:>10}", m->codec.substr(0, 10));
  text += "\n";
  for (std::size_t layer = 0; layer < shown[0]->report.attention.size(); layer++) {
    text += fmt::format("{:<8}", layer);
    for (const Measured* m : shown) text += fmt::format(" {:>10.3g}", m->report.attention[layer]);
    text += "\n";
  }
  return text;
}

// The layers of an assignment that are stored alike.
struct Stored {
  std::vector<int> layers;
  KvCodecs codecs;
};

std::vector<Stored> stored_alike(const KvChoice& kv, const ModelInfo& info) {
  std::vector<Stored> all;
  for (const std::vector<int>& unit : kv_units(info.layers, true)) {
    const KvCodecs& codecs = kv.of(unit[0], info.layers[static_cast<std::size_t>(unit[0])]);
    auto same = std::find_if(all.begin(), all.end(), [&](const Stored& s) { return s.codecs == codecs; });
    if (same == all.end()) same = all.insert(all.end(), {{}, codecs});
    same->layers.push_back(unit[0]);
  }
  return all;
}

std::string suggestion_table(const QualityFindings& f, const ModelInfo& info) {
  const Suggestion& s = *f.suggestion;
  std::string text = fmt::format("\nsuggested for {} bytes a row of {} positions\n{:<24} {:>12} {:>12}\n",
                                 f.budget, f.context, "layers", "keys", "values");
  for (const Stored& stored : stored_alike(s.chosen.kv, info)) {
    text += fmt::format("{:<24} {:>12} {:>12}\n", layers_text(stored.layers), stored.codecs.keys.to_string(),
                        stored.codecs.values.to_string());
  }
  const auto line = [](const std::string& name, const Assignment& a) {
    return fmt::format("{}: {} bytes, KLD mean {:.3g}, same top {:.2f} %, perplexity {:.3f}", name, a.bytes,
                       a.divergence.kld_mean, a.divergence.same_top * 100, a.divergence.perplexity());
  };
  text += line("measured", s.chosen) + fmt::format(" (predicted KLD {:.3g})\n", s.predicted);
  if (s.uniform) text += line("best uniform codec, " + s.uniform->codec.to_string(), *s.uniform) + "\n";
  return text;
}

std::string compute_table(const std::vector<ComputeReport>& modes) {
  if (modes.empty()) return "\ncompute modes: do not apply, the model has no quantized weights\n";
  std::string text = head("compute modes of quantized weights, against exact f32", "");
  for (const ComputeReport& mode : modes) {
    text += fmt::format("{:<{}} {:>10} ", compute_name(mode.compute), kNameWidth, "") +
            divergence_columns(mode.divergence);
  }
  return text;
}

Json to_json(const Divergence& d) {
  return {{"kld", {{"mean", d.kld_mean}, {"median", d.kld_median}, {"p99", d.kld_p99}, {"max", d.kld_max}}},
          {"same_top", d.same_top},
          {"nll", d.nll},
          {"perplexity", d.perplexity()}};
}

Json to_json(const Measured& m) {
  Json json{{"codec", m.codec}, {"bytes_per_token", m.bytes_per_token}, {"row_bytes", m.row_bytes}};
  json.update(to_json(m.report.divergence));
  if (!m.report.attention.empty()) json["attention_error"] = m.report.attention;
  return json;
}

Json to_json(const std::vector<Measured>& all) {
  Json list = Json::array();
  for (const Measured& m : all) list.push_back(to_json(m));
  return list;
}

Json to_json(const Assignment& a) {
  Json json{{"row_bytes", a.bytes}};
  json.update(to_json(a.divergence));
  return json;
}

Json to_json(const QualityFindings& f, const Suggestion& s, const ModelInfo& info) {
  Json groups = Json::array();
  for (const Stored& stored : stored_alike(s.chosen.kv, info)) {
    groups.push_back({{"layers", stored.layers},
                      {"keys", stored.codecs.keys.to_string()},
                      {"values", stored.codecs.values.to_string()}});
  }
  Json json{{"budget", f.budget}, {"layers", std::move(groups)}, {"predicted_kld", s.predicted}};
  json.update(to_json(s.chosen));
  json["uniform"] = nullptr;
  if (s.uniform) {
    json["uniform"] = {{"codec", s.uniform->codec.to_string()}};
    json["uniform"].update(to_json(static_cast<const Assignment&>(*s.uniform)));
  }
  return json;
}

Plot::Series plot_series(const std::string& name, const std::vector<Measured>& all) {
  Plot::Series series{name, {}, true};
  for (const Measured& m : all) {
    series.points.push_back({static_cast<double>(m.bytes_per_token), m.report.divergence.kld_mean, m.codec});
  }
  return series;
}

}  // namespace

std::string quality_table(const QualityFindings& f, const ModelInfo& info) {
  const Divergence& r = f.reference.reference;
  std::string text = fmt::format(
      "{} tokens of {} in {} window{} of {} positions\nperplexity {:.3f} ({:.4f} nats a token) with f32 "
      "state\n",
      f.reference.tokens, f.text, f.reference.windows, f.reference.windows == 1 ? "" : "s", f.context,
      r.perplexity(), r.nll);
  text += head("all layers", "bytes/token") + rows(f.codecs);
  if (f.file) text += row(*f.file);
  for (const MeasuredUnit& unit : f.units) {
    text += head(fmt::format("only layer{} {} ({}), all else f32", unit.layers.size() == 1 ? "" : "s",
                             layers_text(unit.layers), window_text(unit.window)),
                 "bytes/token") +
            rows(unit.codecs);
  }
  text += attention_table(f);
  if (f.compute) text += compute_table(*f.compute);
  if (f.suggestion) text += suggestion_table(f, info);
  return text;
}

std::string quality_json(const QualityFindings& f, const ModelInfo& info) {
  Json json{
      {"model", f.model},
      {"model_type", info.model_type},
      {"text", f.text},
      {"tokens", f.reference.tokens},
      {"windows", f.reference.windows},
      {"context", f.context},
      {"reference", {{"nll", f.reference.reference.nll}, {"perplexity", f.reference.reference.perplexity()}}},
      {"codecs", to_json(f.codecs)}};
  Json& units = json["groups"] = Json::array();
  for (const MeasuredUnit& unit : f.units) {
    units.push_back({{"layers", unit.layers},
                     {"window", unit.window == kFullWindow ? Json() : Json(unit.window)},
                     {"codecs", to_json(unit.codecs)}});
  }
  if (f.file) json["kv_file"] = to_json(*f.file);
  if (f.compute) {
    Json& modes = json["compute"] = Json::array();
    for (const ComputeReport& mode : *f.compute) {
      Json entry{{"compute", compute_name(mode.compute)}};
      entry.update(to_json(mode.divergence));
      modes.push_back(std::move(entry));
    }
  }
  if (f.suggestion) json["suggestion"] = to_json(f, *f.suggestion, info);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string quality_svg(const QualityFindings& f) {
  Plot plot{"Divergence from f32 state, " + f.model,
            "bytes a token, of the layers in the codec",
            "mean KL divergence, nats a token",
            {}};
  plot.series.push_back(plot_series("all layers", f.codecs));
  for (const MeasuredUnit& unit : f.units) {
    plot.series.push_back(plot_series(
        fmt::format("only {} ({})", layers_text(unit.layers), window_text(unit.window)), unit.codecs));
  }
  if (f.file) plot.series.push_back({"--kv-file", plot_series("", {*f.file}).points, false});
  if (f.suggestion) {
    plot.series.push_back({"suggested",
                           {{static_cast<double>(f.suggestion_bytes_per_token),
                             f.suggestion->chosen.divergence.kld_mean, "suggested"}},
                           false});
  }
  return plot.svg();
}

}  // namespace windrow::cli
