// windrow bench: the speed of a published shape with random weights.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bench_run.h"
#include "cli/interrupt.h"
#include "cli/memory.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/shapes.h"
#include "io/file.h"

namespace windrow::cli {
namespace {

using nlohmann::ordered_json;

struct BenchFlags {
  RunFlags run;
  KvFlags kv;
  std::string shape, weights = "q4";
  BenchSettings settings;
  bool json = false;
};

RandomWeightsFormat parse_weights(const std::string& text) {
  if (text == "bf16") return {};
  const Result<Codec> codec = Codec::parse(text);
  if (!codec.ok()) usage_error("--weights", codec.status().message());
  if (!codec->is_affine() || codec->input() != DType::kBF16)
    usage_error("--weights", fmt::format("{}: expected bf16, qBITS or qBITS:GROUP", quote(text)));
  return {codec->bits(), codec->group()};
}

struct Facts {
  std::size_t weight_bytes, weight_bytes_read, state_bytes;
  StateUse state;
  int threads;
};

ordered_json to_json(const BenchFlags& flags, const Facts& facts, const BenchFigures& f) {
  const auto share = [&](double seconds) { return f.decode_s > 0 ? seconds / f.decode_s : 0; };
  const ForwardProfile& p = f.decode_profile;
  ordered_json json{{"shape", flags.shape},
                    {"weights", flags.weights},
                    {"kv", flags.kv.all},
                    {"compute", flags.run.compute_name()},
                    {"threads", facts.threads},
                    {"rows", flags.settings.rows},
                    {"context", flags.settings.context},
                    {"prompt", flags.settings.prompt},
                    {"weight_bytes", facts.weight_bytes},
                    {"weight_bytes_per_step", facts.weight_bytes_read},
                    {"state_bytes", facts.state_bytes},
                    {"state_bytes_per_position", facts.state.stored},
                    {"state_bytes_read_per_token", facts.state.read},
                    {"probe", {{"read_bytes_per_s", f.read}, {"fma_flops_per_s", f.fma}}}};
  if (flags.settings.prompt > 0)
    json["prefill"] = {{"tokens_per_s", f.prefill_tokens_per_s}, {"share_of_fma", f.prefill_of_fma}};
  json["decode"] = {{"tokens_per_s", f.decode_tokens_per_s},
                    {"one_row_tokens_per_s", f.one_row_tokens_per_s},
                    {"over_one_row", f.over_one_row},
                    {"share_of_read", f.decode_of_read},
                    {"time",
                     {{"products", share(p.products)},
                      {"attention", share(p.attention)},
                      {"state", share(p.state)},
                      {"layers", share(p.layers)}}}};
  return json;
}

std::string to_text(const BenchFlags& flags, const Facts& facts, const BenchFigures& f) {
  const auto plural = [](int n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string text = fmt::format("{}, weights {}, state {}, {}, {}\n", flags.shape, flags.weights,
                                 flags.kv.all, flags.run.compute_name(), plural(facts.threads, "thread"));
  text += fmt::format("probes    {:.1f} GB/s read, {:.0f} Gflop/s of f32 fma\n", f.read / 1e9, f.fma / 1e9);
  text += fmt::format("weights   {}, {} read by a step\n", human_bytes(facts.weight_bytes),
                      human_bytes(facts.weight_bytes_read));
  text +=
      fmt::format("state     {}; {} a position, {} read by a token at {}\n", human_bytes(facts.state_bytes),
                  human_bytes(facts.state.stored), human_bytes(facts.state.read), flags.settings.context);
  if (flags.settings.prompt > 0) {
    text += fmt::format("prefill   {:.1f} tokens/s ({} tokens), {:.2f} of the fma probe\n",
                        f.prefill_tokens_per_s, flags.settings.prompt, f.prefill_of_fma);
  }
  const auto share = [&](double seconds) { return f.decode_s > 0 ? 100 * seconds / f.decode_s : 0; };
  const ForwardProfile& p = f.decode_profile;
  text += fmt::format(
      "decode    {:.1f} tokens/s ({} at {}), {:.2f} of the read probe; products {:.0f} %, "
      "attention {:.0f} %, state {:.0f} %, layers {:.0f} %\n",
      f.decode_tokens_per_s, plural(flags.settings.rows, "row"), flags.settings.context, f.decode_of_read,
      share(p.products), share(p.attention), share(p.state), share(p.layers));
  if (flags.settings.rows > 1) {
    text += fmt::format("one row   {:.1f} tokens/s alone, by turns: {} bring {:.2f} x\n",
                        f.one_row_tokens_per_s, plural(flags.settings.rows, "row"), f.over_one_row);
  }
  return text;
}

// A shape by name, or what the config.json of a folder describes.
struct Described {
  std::string name, config;
};
Described shape_of(const std::string& given) {
  if (const Shape* s = find_shape(given)) return {std::string(s->name), std::string(s->config)};
  const std::string file = given + "/config.json";
  constexpr std::size_t kMaxConfigBytes = std::size_t{4} << 20;
  if (path_exists(file)) return {file, need(read_file(file, kMaxConfigBytes))};
  std::vector<std::string_view> names;
  for (const Shape& s : shapes()) names.push_back(s.name);
  usage_error("--shape", fmt::format("{} is no folder with a config.json, and none of {} (or list)",
                                     quote(given), fmt::join(names, ", ")));
}

void list_shapes(bool json) {
  ordered_json all = ordered_json::array();
  std::string text;
  for (const Shape& s : shapes()) {
    const auto bytes = [&](int bits) {
      return need(Model::random_bytes(s.config, std::string(s.name), {bits, 64}));
    };
    const std::size_t bf16 = bytes(0), q8 = bytes(8), q4 = bytes(4);
    all.push_back({{"shape", s.name}, {"bytes_bf16", bf16}, {"bytes_q8", q8}, {"bytes_q4", q4}});
    text += fmt::format("{:<16} {:>10} bf16 {:>10} q8 {:>10} q4 in memory\n", s.name, human_bytes(bf16),
                        human_bytes(q8), human_bytes(q4));
  }
  write_stdout(json ? all.dump() + "\n" : text);
  flush_stdout();
}

// A machine that begins to swap measures its disk.
void check_memory(const BenchFlags& flags, std::size_t weights, std::size_t state) {
  const std::size_t free = available_memory();
  if (free == 0 || weights + state <= free) return;
  throw Failure{kFailure,
                fmt::format("{} with {} weights needs {} bytes ({} of weights, {} of state), {} are "
                            "available",
                            flags.shape, flags.weights, weights + state, weights, state, free)};
}

int bench_shape(const BenchFlags& flags) {
  if (flags.shape == "list") {
    list_shapes(flags.json);
    return kSuccess;
  }
  const auto [name, config] = shape_of(flags.shape);
  const RandomWeightsFormat format = parse_weights(flags.weights);
  const ModelInfo info = need(parse_model_info(config, name));
  const int tokens = bench_tokens(flags.settings);
  if (tokens > info.max_positions)
    usage_error("--context", fmt::format("{} tokens with the measured ones, {} was made for {}", tokens, name,
                                         info.max_positions));
  const Limits limits{
      .rows = flags.settings.rows,
      .tokens = tokens,
      .step_tokens = std::max({std::min(flags.run.prefill_chunk, tokens), flags.settings.rows}),
      .rollback = 0,
      .total_tokens = 0};
  const StatePlan plan = need(plan_state(info, flags.kv.choose(info), limits));
  check_memory(flags, need(Model::random_bytes(config, name, format)), plan.bytes());

  catch_interrupt();
  ThreadPool pool = flags.run.make_pool();
  LoadOptions options;
  options.compute = flags.run.compute;
  const Model model = need(Model::random(config, name, format, pool, options));
  const BenchFigures figures = run_bench(flags.settings, model, plan, pool, flags.run.progress());
  const Facts facts{model.weight_bytes(), model.weight_bytes_read(flags.settings.rows), plan.bytes(),
                    state_use(plan, flags.settings.context), pool.threads()};
  write_stdout(flags.json ? to_json(flags, facts, figures).dump() + "\n" : to_text(flags, facts, figures));
  flush_stdout();
  return kSuccess;
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("bench", "measure the speed of a published shape, with random weights");
  auto flags = std::make_shared<BenchFlags>();
  path_flag(*sub, "--shape", &flags->shape, "NAME",
            "a model's shape, as gemma3-1b (list prints them), or a folder whose config.json describes one")
      ->required();
  text_flag(*sub, "--weights", &flags->weights, "FORMAT",
            "bf16, or qBITS[:GROUP] as MLX quantizes (default q4)");
  flags->kv.add(*sub);
  flags->run.add_compute(*sub);
  int_flag(*sub, "--rows", &flags->settings.rows, 1, 1024, "rows that decode together");
  int_flag(*sub, "--context", &flags->settings.context, 1, 1 << 24,
           "tokens that each row holds when decoding begins");
  int_flag(*sub, "--prompt", &flags->settings.prompt, 0, 1 << 24,
           "tokens of the prompt that prefill is measured with; 0: none");
  int_flag(*sub, "--steps", &flags->settings.steps, 1, 1 << 16, "decode steps of a repeat");
  int_flag(*sub, "--repeats", &flags->settings.repeats, 1, 1000, "medians are of so many");
  flags->run.add_chunk(*sub);
  bool_flag(*sub, "--json", &flags->json, "print one JSON object");
  flags->run.add_threads(*sub);
  flags->run.add_quiet(*sub);
  sub->callback([flags, &run] { run = [flags] { return bench_shape(*flags); }; });
}

}  // namespace windrow::cli
