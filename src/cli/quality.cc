// windrow quality: what the codecs of the state do to a model's predictions of a text.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "base/checked.h"
#include "base/json.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/quality_report.h"
#include "io/file.h"

namespace windrow::cli {
namespace {

// What the tokenizer takes.
constexpr std::size_t kMaxTextBytes = std::size_t{16} << 20;
constexpr const char* kDefaultCodecs = "f32,bf16,q8,q6,q5,q4,q3,q2";
constexpr int kDefaultContext = 1024, kDefaultTokens = 2048;

struct QualityFlags {
  RunFlags run;
  std::string text, kv = kDefaultCodecs, kv_file, svg, out;
  int context = 0;  // 0: kDefaultContext, or the model's where that is less
  int tokens = 0;   // 0: kDefaultTokens, or what the text has
  std::size_t budget = 0;
  bool per_layer = false, compute = false, json = false;
  CLI::Option *kv_option = nullptr, *suggest_option = nullptr;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    items.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

// "4096", "96K", "3M", "2G": powers of 1024.
std::size_t parse_bytes(const std::string& text) {
  std::size_t value = 0, unit = 1;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (rest + 1 == end) {
    unit = *rest == 'K'   ? std::size_t{1} << 10
           : *rest == 'M' ? std::size_t{1} << 20
           : *rest == 'G' ? std::size_t{1} << 30
                          : 0;
  }
  const std::optional<std::size_t> bytes = checked_mul(value, unit);
  if (error == std::errc() && rest + (unit > 1 ? 1 : 0) == end && bytes && *bytes > 0) return *bytes;
  usage_error("--suggest",
              quote(text) + " is not a number of bytes (a whole number above 0, K, M or G may follow)");
}

// The codecs of --kv, each once. Of the default list, those that the model's head dims can have.
std::vector<Codec> choose_codecs(const QualityFlags& flags, const ModelInfo& info) {
  std::vector<Codec> codecs;
  for (const std::string& item : split(flags.kv)) {
    const Codec codec = need(parse_kv_codec(item, info.layers));
    const Status fits = check_kv_choice(KvChoice(codec), info.layers);
    if (!fits.ok() && flags.kv_option->count() > 0) usage_error("--kv", fits.message());
    if (!fits.ok()) continue;
    if (std::find(codecs.begin(), codecs.end(), codec) != codecs.end()) {
      usage_error("--kv", fmt::format("{} is given twice", codec.to_string()));
    }
    codecs.push_back(codec);
  }
  return codecs;
}

// The tokens of the text, and those that the model expects before one (bos).
QualityText read_text(const QualityFlags& flags, const ModelInfo& info) {
  const std::string name = flags.text == "-" ? "stdin" : flags.text;
  const std::string content = read_input(flags.text, kMaxTextBytes);
  if (content.empty()) throw Failure{kFailure, name + ": is empty"};
  const Tokenizer tokenizer = *flags.run.load_tokenizer(true);
  QualityText text;
  const auto encode = [&](bool special) {
    Result<std::vector<std::int32_t>> ids = tokenizer.encode(content, special);
    if (!ids.ok()) throw Failure{kFailure, ids.status().with_context(name).message()};
    return std::move(*ids);
  };
  text.ids = encode(false);
  const std::vector<std::int32_t> whole = encode(true);
  const auto at = std::search(whole.begin(), whole.end(), text.ids.begin(), text.ids.end());
  if (at != whole.end()) text.start.assign(whole.begin(), at);
  for (const std::int32_t id : whole) {
    if (id < info.vocab_size) continue;
    throw Failure{kFailure, fmt::format("{}: the tokenizer gives id {}, the model's vocabulary is 0 to {}",
                                        name, id, info.vocab_size - 1)};
  }
  const std::size_t scorable = text.ids.size() - (text.start.empty() && !text.ids.empty() ? 1 : 0);
  if (scorable == 0) throw Failure{kFailure, name + ": has no token to score"};
  const std::size_t wanted = static_cast<std::size_t>(flags.tokens);
  if (scorable < wanted) {
    throw Failure{kFailure,
                  fmt::format("{}: has {} tokens to score, --tokens asks for {}", name, scorable, wanted)};
  }
  return text;
}

// Of a plan of one choice for all layers, the part of some layers of one shape.
std::size_t bytes_per_token(const ModelInfo& info, const KvChoice& kv, const std::vector<int>& layers) {
  const StatePlan plan = need(plan_state(info, kv, {.rows = 1, .tokens = 1, .step_tokens = 1}));
  std::size_t bytes = 0;
  for (const int layer : layers) {
    const int g = plan.group_of_layer(layer);
    bytes += plan.group_bytes(g).per_token / plan.group(g).layers.size();
  }
  return bytes;
}

// Builds the trials, and takes their reports apart again.
class Measurement {
 public:
  Measurement(const QualityFlags& flags, const Model& model, const QualityOptions& options)
      : flags_(flags), info_(model.info()), options_(options) {
    for (const std::vector<int>& unit : kv_units(info_.layers))
      all_.insert(all_.end(), unit.begin(), unit.end());
    std::sort(all_.begin(), all_.end());
  }

  void run(const Model& model, const QualityText& text, const std::vector<Codec>& codecs, ThreadPool& pool,
           QualityFindings* findings) {
    for (const Codec& codec : codecs) plan(&findings->codecs, codec.to_string(), KvChoice(codec), all_, true);
    for (const std::vector<int>& unit : kv_units(info_.layers, flags_.per_layer)) {
      MeasuredUnit& measured = findings->units.emplace_back();
      measured.layers = unit;
      measured.window = info_.layers[static_cast<std::size_t>(unit[0])].window;
      for (const Codec& codec : codecs) {
        plan(&measured.codecs, codec.to_string(), with_codecs(KvChoice(Codec::f32()), unit, {codec, codec}),
             unit, false);
      }
    }
    std::vector<Measured> file;
    if (!flags_.kv_file.empty())
      plan(&file, "--kv-file", need(read_kv_choice(flags_.kv_file, info_)), all_, true);

    findings->reference = need(measure_quality(model, text, trials_, options_, pool));
    std::size_t next = 0;
    const auto take = [&](std::vector<Measured>& list) {
      for (Measured& m : list) m.report = std::move(findings->reference.trials[next++]);
    };
    take(findings->codecs);
    for (MeasuredUnit& unit : findings->units) take(unit.codecs);
    take(file);
    findings->reference.trials.clear();
    if (!file.empty()) findings->file = std::move(file[0]);
  }

 private:
  void plan(std::vector<Measured>* to, const std::string& name, const KvChoice& kv,
            const std::vector<int>& layers, bool attention) {
    to->push_back(
        {name, bytes_per_token(info_, kv, layers), need(kv_row_bytes(info_, kv, options_.context)), {}});
    trials_.push_back({.kv = kv, .attention = attention});
  }

  const QualityFlags& flags_;
  const ModelInfo& info_;
  const QualityOptions& options_;
  std::vector<int> all_;  // layers that store keys and values
  std::vector<KvTrial> trials_;
};

void suggest(const QualityFlags& flags, const Model& model, const QualityText& text,
             const std::vector<Codec>& codecs, const QualityOptions& options, ThreadPool& pool,
             QualityFindings* findings) {
  SuggestOptions wanted{
      .budget = flags.budget, .codecs = codecs, .units = kv_units(model.info().layers, flags.per_layer)};
  Result<Suggestion> suggestion = suggest_kv(model, text, wanted, options, pool);
  if (!suggestion.ok() && suggestion.status().code() == StatusCode::kInvalidArgument) {
    usage_error("--suggest", suggestion.status().message());
  }
  findings->budget = flags.budget;
  findings->suggestion = need(std::move(suggestion));
  std::size_t& bytes = findings->suggestion_bytes_per_token;
  for (const std::vector<int>& unit : kv_units(model.info().layers)) {
    bytes += bytes_per_token(model.info(), findings->suggestion->chosen.kv, unit);
  }
}

void write_file(const std::string& path, const std::string& content) {
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span<const char>(content))};
  need(write_atomically(path, parts, system_file_ops()));
}

int quality(const QualityFlags& flags) {
  if (!flags.out.empty() && flags.suggest_option->count() == 0) usage_error("--out", "needs --suggest");
  const ModelInfo info = need(read_model_info(flags.run.model));
  if (flags.context > info.max_positions) {
    usage_error("--context",
                fmt::format("{} tokens, the model was made for {}", flags.context, info.max_positions));
  }
  const std::vector<Codec> codecs = choose_codecs(flags, info);
  if (!flags.kv_file.empty()) need(read_kv_choice(flags.kv_file, info).status());
  const QualityText text = read_text(flags, info);
  QualityOptions options;
  options.context = flags.context > 0 ? flags.context : std::min(kDefaultContext, info.max_positions);
  options.tokens = static_cast<std::size_t>(flags.tokens > 0 ? flags.tokens : kDefaultTokens);

  ThreadPool pool = flags.run.make_pool();
  const Model model = flags.run.load(pool);
  QualityFindings findings;
  findings.model = flags.run.model;
  findings.text = flags.text;
  findings.context = options.context;
  const auto with_bar = [&](const char* label, const auto& work) {
    ProgressBar bar(label, flags.run.progress());
    options.progress = [&](std::size_t done, std::size_t total) {
      bar.update(static_cast<double>(done), static_cast<double>(total));
    };
    work();
    options.progress = {};
  };
  // The cheapest refusal first: a budget that can't be met.
  if (flags.suggest_option->count() > 0) {
    with_bar("suggesting", [&] { suggest(flags, model, text, codecs, options, pool, &findings); });
  }
  with_bar("measuring",
           [&] { Measurement(flags, model, options).run(model, text, codecs, pool, &findings); });
  if (flags.compute) {
    with_bar("compute",
             [&] { findings.compute = need(measure_compute(flags.run.model, text, options, pool)); });
  }

  if (!flags.svg.empty()) write_file(flags.svg, quality_svg(findings));
  if (!flags.out.empty()) write_file(flags.out, kv_choice_json(findings.suggestion->chosen.kv, info));
  write_stdout(flags.json ? quality_json(findings, info) : quality_table(findings, info));
  flush_stdout();
  return kSuccess;
}

}  // namespace

void add_quality(CLI::App& app, Run& run) {
  CLI::App* sub =
      app.add_subcommand("quality", "measure what the codecs of the state do to a model's predictions");
  auto flags = std::make_shared<QualityFlags>();
  flags->run.add_model(*sub);
  path_flag(*sub, "--text", &flags->text, "FILE", "the text to measure on; - is stdin")->required();
  flags->kv_option = sub->add_option_function<std::string>(
      "--kv",
      [flags](const std::string& list) {
        for (const std::string& item : split(list)) {
          if (const Result<Codec> codec = Codec::parse(item); !codec.ok())
            usage_error("--kv", codec.status().message());
        }
        flags->kv = list;
      },
      fmt::format("codecs to measure, joined by commas (default {})", kDefaultCodecs));
  flags->kv_option->type_name("CODEC,...");
  path_flag(*sub, "--kv-file", &flags->kv_file, "FILE", "codecs of each layer, to be measured too");
  int_flag(*sub, "--context", &flags->context, 1, 1 << 30, "positions of a window of the text",
           fmt::format("{}, or the model's longest", kDefaultContext).c_str());
  int_flag(*sub, "--tokens", &flags->tokens, 1, 1 << 30, "tokens to score; the text must have them",
           fmt::format("{}, or what the text has", kDefaultTokens).c_str());
  flags->suggest_option = sub->add_option_function<std::string>(
      "--suggest", [flags](const std::string& text) { flags->budget = parse_bytes(text); },
      "find codecs for a row of --context positions in so many bytes; K, M, G are powers of 1024");
  flags->suggest_option->type_name("BYTES");
  path_flag(*sub, "--out", &flags->out, "FILE", "write the suggestion there, for --kv-file");
  bool_flag(*sub, "--per-layer", &flags->per_layer,
            "measure and suggest for each layer, not for layers of equal shape");
  bool_flag(*sub, "--compute", &flags->compute, "also measure the compute modes of quantized weights");
  path_flag(*sub, "--svg", &flags->svg, "FILE", "write a plot there: divergence against bytes a token");
  bool_flag(*sub, "--json", &flags->json, "print a JSON object");
  flags->run.add_threads(*sub);
  flags->run.add_quiet(*sub);
  sub->callback([flags, &run] { run = [flags] { return quality(*flags); }; });
}

}  // namespace windrow::cli
