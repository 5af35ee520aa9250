// windrow logits: the logits of every token of a prompt, in a safetensors file.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "io/tensor_stream.h"
#include "windrow/store.h"

namespace windrow::cli {
namespace {

struct LogitsFlags {
  RunFlags run;
  KvFlags kv;
  PromptFlags prompt;
  std::string out;
};

// A step's logits are held in memory before they are written. A chunk that would need more than
// this is cut: results do not depend on how tokens are cut into steps.
constexpr std::size_t kMaxLogitsBytes = std::size_t{64} << 20;

// As generate does: a model whose numbers break is told, not passed on.
void check_finite(std::span<const float> logits, std::size_t vocab, std::size_t position) {
  for (std::size_t i = 0; i < logits.size(); i++) {
    if (std::isfinite(logits[i])) continue;
    throw Failure{
        kFailure,
        fmt::format("the logits of position {} are not finite (id {}: {}): the model's weights hold "
                    "NaN or infinities, or its numbers exceed f32",
                    position + i / vocab, i % vocab, std::isnan(logits[i]) ? "NaN" : "inf")};
  }
}

int logits(const LogitsFlags& flags) {
  flags.prompt.check();
  const ModelInfo info = need(read_model_info(flags.run.model));
  const KvChoice kv = flags.kv.choose(info);
  const std::optional<Tokenizer> tokenizer = flags.run.load_tokenizer(flags.prompt.needs_tokenizer());
  const std::vector<std::int32_t> ids = flags.prompt.read(info, tokenizer ? &*tokenizer : nullptr);

  const std::size_t vocab = static_cast<std::size_t>(info.vocab_size);
  const std::size_t most = std::max<std::size_t>(1, kMaxLogitsBytes / (vocab * sizeof(float)));
  const std::size_t chunk = std::min({static_cast<std::size_t>(flags.run.prefill_chunk), ids.size(), most});
  ThreadPool pool = flags.run.make_pool();
  const Model model = flags.run.load(pool);
  const StatePlan plan = need(model.plan(kv, {.rows = 1,
                                              .tokens = static_cast<int>(ids.size()),
                                              .step_tokens = static_cast<int>(chunk),
                                              .rollback = 0,
                                              .total_tokens = 0}));
  StateStore store = need(StateStore::create(plan));
  Runner runner = need(Runner::create(model, plan, pool));
  Row row = need(store.new_row());
  catch_interrupt();  // a file that is begun is also removed
  TensorStream file = need(TensorStream::create(flags.out, "logits", DType::kF32, {ids.size(), vocab}));

  ProgressBar bar("logits", flags.run.progress());
  std::vector<float> values(chunk * vocab);
  std::vector<std::int32_t> wanted(chunk);
  for (std::size_t i = 0; i < chunk; i++) wanted[i] = static_cast<std::int32_t>(i);
  for (std::size_t done = 0; done < ids.size();) {
    if (interrupted()) throw Failure{kInterrupted, "interrupted, " + flags.out + " is not written"};
    const std::size_t n = std::min(chunk, ids.size() - done);
    Row* const rows[] = {&row};
    const int lengths[] = {static_cast<int>(n)};
    Step step = need(store.begin(rows, lengths));
    const std::span<float> part = std::span(values).first(n * vocab);
    need(runner.forward(step, std::span(ids).subspan(done, n), std::span(wanted).first(n), part));
    need(step.resolve());
    check_finite(part, vocab, done);
    need(file.append(std::as_bytes(part)));
    done += n;
    bar.update(static_cast<double>(done), static_cast<double>(ids.size()));
  }
  need(file.finish());
  return kSuccess;
}

}  // namespace

void add_logits(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("logits", "write the logits of a prompt's tokens to a file");
  auto flags = std::make_shared<LogitsFlags>();
  flags->run.add_model(*sub);
  flags->prompt.add(*sub, false);
  path_flag(*sub, "--out", &flags->out, "FILE",
            "the safetensors file to write: tensor \"logits\", f32 [tokens, vocab]; it appears when complete")
      ->required();
  flags->kv.add(*sub);
  flags->run.add_chunk(*sub);
  flags->run.add_compute(*sub);
  flags->run.add_threads(*sub);
  flags->run.add_quiet(*sub);
  sub->callback([flags, &run] { run = [flags] { return logits(*flags); }; });
}

}  // namespace windrow::cli
