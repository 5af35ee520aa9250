// windrow convert: a model folder with quantized weights.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "windrow/convert.h"

namespace windrow::cli {
namespace {

struct ConvertFlags {
  RunFlags run;
  std::string out, mixed;
  int bits = 4, group = 64;
  bool force = false;
  bool json = false;
};

double bits_per_weight(const Conversion& c) {
  return 8.0 * static_cast<double>(c.bytes_after) / static_cast<double>(c.parameters);
}

std::string to_json(const ConvertFlags& flags, const Conversion& c) {
  const nlohmann::ordered_json object{{"out", flags.out},
                                      {"quantized_modules", c.quantized},
                                      {"kept_tensors", c.kept},
                                      {"left_out_tensors", c.left_out},
                                      {"parameters", c.parameters},
                                      {"bytes_before", c.bytes_before},
                                      {"bytes", c.bytes_after},
                                      {"bits_per_weight", bits_per_weight(c)},
                                      {"files", c.files}};
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string to_text(const ConvertFlags& flags, const Conversion& c) {
  std::string text = fmt::format("{}: {} modules quantized, {} tensors kept", flags.out, c.quantized, c.kept);
  if (c.left_out > 0) text += fmt::format(", {} of other parts left out", c.left_out);
  return text + fmt::format("; {} of {} ({:.2f} bits a weight)\n", human_bytes(c.bytes_after),
                            human_bytes(c.bytes_before), bits_per_weight(c));
}

int convert(const ConvertFlags& flags) {
  ConvertOptions options;
  options.bits = flags.bits;
  options.group = flags.group;
  options.replace = flags.force;
  if (const Status s = Codec::affine(flags.bits, 64).check(64); !s.ok())
    usage_error("--bits", fmt::format("{} bits, allowed are 2, 3, 4, 5, 6 and 8", flags.bits));
  if (const Status s = Codec::affine(4, flags.group).check(128); !s.ok())
    usage_error("--group", fmt::format("{}, allowed are 32, 64 and 128", flags.group));
  if (!flags.mixed.empty()) {
    Result<std::vector<ConvertRule>> rules = parse_convert_rules(flags.mixed, flags.group);
    if (!rules.ok()) usage_error("--mixed", rules.status().message());
    options.rules = std::move(*rules);
  }
  ThreadPool pool = flags.run.make_pool();
  ProgressBar bar("converting", flags.run.progress());
  options.progress = [&](std::size_t done, std::size_t total) {
    bar.update(static_cast<double>(done), static_cast<double>(total));
  };
  catch_interrupt();  // what is begun is removed
  options.cancel = &interrupted();
  const Result<Conversion> done = convert_model(flags.run.model, flags.out, options, pool);
  bar.clear();
  if (!done.ok() && interrupted())
    throw Failure{kInterrupted, "interrupted, " + flags.out + " is not written"};
  need(done.status());
  if (flags.json) {
    write_stdout(to_json(flags, *done));
    flush_stdout();
  } else if (!flags.run.quiet) {
    write_stderr(to_text(flags, *done));
  }
  return kSuccess;
}

}  // namespace

void add_convert(CLI::App& app, Run& run) {
  CLI::App* sub =
      app.add_subcommand("convert", "write a model folder with quantized weights, as MLX has them");
  auto flags = std::make_shared<ConvertFlags>();
  flags->run.add_model(*sub);
  path_flag(*sub, "--out", &flags->out, "DIR", "the folder to write; it appears when complete")->required();
  int_flag(*sub, "--bits", &flags->bits, 2, 8, "bits of a weight, not 7");
  int_flag(*sub, "--group", &flags->group, 32, 128, "weights that share a scale and a bias: 32, 64 or 128");
  text_flag(*sub, "--mixed", &flags->mixed, "RULES",
            "other bits for some modules: PATTERN=BITS[:GROUP] or PATTERN=none, joined by commas, as in "
            "embed_tokens=6,down_proj=8:32. A pattern is the end of a module's path, with * and ?; the last "
            "that fits counts");
  bool_flag(*sub, "--force", &flags->force, "replace DIR if it is a model folder");
  bool_flag(*sub, "--json", &flags->json, "print one JSON object of what was written");
  flags->run.add_threads(*sub);
  flags->run.add_quiet(*sub);
  sub->callback([flags, &run] { run = [flags] { return convert(*flags); }; });
}

}  // namespace windrow::cli
