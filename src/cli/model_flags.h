// The flags of subcommands that run or plan a model: folder, state codecs, threads; and loading.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "windrow/engine.h"
#include "windrow/model.h"
#include "windrow/threads.h"
#include "windrow/tokenizer.h"

namespace windrow::cli {

struct KvFlags {
  std::string all = "bf16", sliding, full, keys, values, file;
  std::vector<CLI::Option*> options;  // all but --kv-file

  void add(CLI::App& app);
  // The codecs for a model; a codec that its head dims can't have is a usage error at its flag, a file that
  // is wrong a failure.
  KvChoice choose(const ModelInfo& info) const;
};

struct PromptFlags {
  std::string text, file;
  std::vector<std::int32_t> ids;
  CLI::Option* text_option = nullptr;
  CLI::Option* file_option = nullptr;
  CLI::Option* ids_option = nullptr;

  void add(CLI::App& app, bool with_file);
  // Before anything is loaded: exactly one source is given, and it isn't empty.
  void check() const;
  bool needs_tokenizer() const { return ids_option->count() == 0; }
  // The ids, all inside the vocabulary, at most max_positions.
  std::vector<std::int32_t> read(const ModelInfo& info, const Tokenizer* tokenizer) const;
};

// Temperature, the filters of the distribution, seed.
void add_sampling(CLI::App& app, SamplerOptions* options);

struct RunFlags {
  std::string model;
  int threads = 0;  // 0: what the process may use
  int prefill_chunk = 512;
  bool quiet = false;
  Compute compute = Compute::kDefault;

  void add_model(CLI::App& app);
  void add_chunk(CLI::App& app);
  void add_threads(CLI::App& app);
  void add_quiet(CLI::App& app);
  void add_compute(CLI::App& app);
  ThreadPool make_pool() const;
  Model load(ThreadPool& pool) const;  // with a progress bar
  // DIR/tokenizer.json; nullopt when it is not there and not needed.
  std::optional<Tokenizer> load_tokenizer(bool needed) const;
  bool progress() const;
  const char* compute_name() const;
};

}  // namespace windrow::cli
