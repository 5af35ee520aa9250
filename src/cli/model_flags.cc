#include "cli/model_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "cli/output.h"
#include "io/file.h"

namespace windrow::cli {
namespace {

// A prompt of the longest contexts in use (some million tokens of a few bytes) fits.
constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 20;

// In the order of Compute.
constexpr const char* kComputeModes[] = {"default", "fast", "f32"};

CLI::Option* codec_flag(CLI::App& app, const std::string& flag, std::string* to, const std::string& help) {
  return app
      .add_option_function<std::string>(
          flag,
          [=](const std::string& text) {
            if (const Result<Codec> codec = Codec::parse(text); !codec.ok()) {
              usage_error(flag, codec.status().message());
            }
            *to = text;
          },
          help)
      ->type_name("CODEC");
}

}  // namespace

void KvFlags::add(CLI::App& app) {
  options = {
      codec_flag(
          app, "--kv", &all,
          "how keys and values are stored: f32, f16, bf16, or q2 q3 q4 q5 q6 q8 with an optional :GROUP "
          "of 32, 64 or 128, as in q4:64. Default bf16; default group 64, or 32 where head_dim is no "
          "multiple of 64. Of this flag and the next four, a later one in this list wins where two "
          "name the same numbers"),
      codec_flag(app, "--kv-sliding", &sliding, "keys and values of sliding-window layers"),
      codec_flag(app, "--kv-full", &full, "keys and values of full-attention layers"),
      codec_flag(app, "--kv-keys", &keys, "keys of all layers"),
      codec_flag(app, "--kv-values", &values, "values of all layers")};
  path_flag(app, "--kv-file", &file, "FILE",
            "codecs of each layer, as quality --suggest --out writes them; instead of the five above");
}

KvChoice KvFlags::choose(const ModelInfo& info) const {
  if (!file.empty()) {
    for (const CLI::Option* o : options) {
      if (o->count() > 0)
        usage_error("--kv-file", fmt::format("can't be given together with {}", o->get_name()));
    }
    return need(read_kv_choice(file, info));
  }
  struct Given {
    const char* flag;
    const std::string* text;
  };
  const auto codec = [&](std::initializer_list<Given> by_precedence) {
    Given given{"--kv", &all};
    for (const Given& g : by_precedence) {
      if (!g.text->empty()) given = g;
    }
    const Codec chosen = need(parse_kv_codec(*given.text, info.layers));
    for (const LayerShape& l : info.layers) {
      if (const Status s = chosen.check(l.head_dim); !s.ok()) usage_error(given.flag, s.message());
    }
    return chosen;
  };
  KvChoice kv;
  kv.sliding.keys = codec({{"--kv-sliding", &sliding}, {"--kv-keys", &keys}});
  kv.sliding.values = codec({{"--kv-sliding", &sliding}, {"--kv-values", &values}});
  kv.full.keys = codec({{"--kv-full", &full}, {"--kv-keys", &keys}});
  kv.full.values = codec({{"--kv-full", &full}, {"--kv-values", &values}});
  return kv;
}

void PromptFlags::add(CLI::App& app, bool with_file) {
  text_option = text_flag(app, "--prompt", &text, "TEXT", "the prompt");
  if (with_file)
    file_option =
        path_flag(app, "--prompt-file", &file, "FILE", "read the prompt from a file or pipe; - is stdin");
  ids_option = ids_flag(app, "--ids", &ids, "the prompt as token ids, e.g. 2,17,5; nothing is added to them");
}

void PromptFlags::check() const {
  std::vector<std::string> given;
  for (const CLI::Option* o : {text_option, file_option, ids_option}) {
    if (o != nullptr && o->count() > 0) given.push_back(o->get_name());
  }
  if (given.empty()) {
    usage_error(file_option != nullptr ? "--prompt, --prompt-file, --ids" : "--prompt, --ids",
                "one of them is needed");
  }
  if (given.size() > 1) usage_error(given[1], fmt::format("can't be given together with {}", given[0]));
  if (text_option->count() > 0 && text.empty()) usage_error("--prompt", "is empty");
}

std::vector<std::int32_t> PromptFlags::read(const ModelInfo& info, const Tokenizer* tokenizer) const {
  std::vector<std::int32_t> prompt = ids;
  const char* flag = "--ids";
  if (tokenizer != nullptr && needs_tokenizer()) {
    const bool from_file = text_option->count() == 0;
    flag = from_file ? "--prompt-file" : "--prompt";
    // What a file holds is no wrong usage.
    const auto refuse = [&](const std::string& what) {
      if (from_file) throw Failure{kFailure, (file == "-" ? "stdin" : file) + ": " + what};
      usage_error(flag, what);
    };
    const std::string content = from_file ? read_input(file, kMaxPromptBytes) : text;
    if (content.empty()) refuse("is empty");
    Result<std::vector<std::int32_t>> encoded = tokenizer->encode(content);
    if (!encoded.ok()) refuse(encoded.status().message());
    prompt = std::move(*encoded);
    if (prompt.empty()) refuse("the prompt has no tokens");
  }
  for (std::size_t i = 0; i < prompt.size(); i++) {
    if (prompt[i] >= info.vocab_size) {
      usage_error(flag, fmt::format("id {} at place {} is outside the model's vocabulary, 0 to {}", prompt[i],
                                    i, info.vocab_size - 1));
    }
  }
  if (prompt.size() > static_cast<std::size_t>(info.max_positions)) {
    usage_error(flag, fmt::format("{} tokens, the model was made for {}", prompt.size(), info.max_positions));
  }
  return prompt;
}

void add_sampling(CLI::App& app, SamplerOptions* options) {
  SamplerOptions& s = *options;
  constexpr int kManyTokens = 1 << 30;
  float_flag(app, "--temperature", &s.temperature, {0, 100}, "0: always the most probable token");
  int_flag(app, "--top-k", &s.top_k, 0, kManyTokens, "choose among the N most probable tokens; 0: all");
  float_flag(app, "--top-p", &s.top_p, {0, 1, true},
             "choose among the most probable tokens that hold X together");
  float_flag(app, "--min-p", &s.min_p, {0, 1, false, true},
             "choose among tokens at least X times as probable as the best");
  float_flag(app, "--repetition-penalty", &s.repetition_penalty, {0.01f, 100},
             "above 1: tokens seen before lose");
  seed_flag(app, "--seed", &s.seed, "a seed gives the same tokens on any number of threads");
}

void RunFlags::add_model(CLI::App& app) {
  path_flag(app, "--model", &model, "DIR", "a Hugging Face model folder")->required();
}

void RunFlags::add_chunk(CLI::App& app) {
  int_flag(app, "--prefill-chunk", &prefill_chunk, 1, 1 << 16, "prompt tokens of one step");
}

void RunFlags::add_threads(CLI::App& app) {
  int_flag(app, "--threads", &threads, 1, ThreadPool::kMaxThreads, "threads that compute",
           "the processors this process may use");
}

void RunFlags::add_quiet(CLI::App& app) { bool_flag(app, "--quiet", &quiet, "nothing on stderr but errors"); }

const char* RunFlags::compute_name() const { return kComputeModes[static_cast<std::size_t>(compute)]; }

void RunFlags::add_compute(CLI::App& app) {
  choice_flag(app, "--compute", {std::begin(kComputeModes), std::end(kComputeModes)},
              "products over quantized weights: with integers and the error of f32; fast, with an error of "
              "7e-5; or f32 itself. Products over other weights are f32 always",
              [this](std::size_t mode) { compute = static_cast<Compute>(mode); });
}

ThreadPool RunFlags::make_pool() const {
  return need(ThreadPool::create(threads > 0 ? threads : ThreadPool::available()));
}

bool RunFlags::progress() const { return !quiet && lively_stderr(); }

Model RunFlags::load(ThreadPool& pool) const {
  ProgressBar bar("loading", progress());
  LoadOptions options;
  options.compute = compute;
  options.progress = [&](std::size_t done, std::size_t total) {
    bar.update(static_cast<double>(done), static_cast<double>(total));
  };
  return need(Model::load(model, pool, options));
}

std::optional<Tokenizer> RunFlags::load_tokenizer(bool needed) const {
  const std::string path = model + "/tokenizer.json";
  if (!needed && !path_exists(path)) return std::nullopt;
  return need(Tokenizer::load(path));
}

}  // namespace windrow::cli
