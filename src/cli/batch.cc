// windrow batch: many requests of a file, as many rows at once as asked for.
#include <fmt/format.h>

#include <chrono>
#include <map>
#include <optional>

#include "cli/batch_file.h"
#include "cli/draft_flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace windrow::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct BatchFlags {
  RunFlags run;
  KvFlags kv;
  DraftFlags draft;
  std::string in, out;
  Request defaults;
  int rows = 8;
  int context = 0;  // 0: what the longest request needs
  bool ignore_eos = false;
  bool json = false;
};

// A request that runs, and what it has so far.
struct Running {
  const BatchLine* line;
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
  Json best = Json::array();
};

class Batch {
 public:
  Batch(const Tokenizer* tokenizer, BatchOutput& out) : tokenizer_(tokenizer), out_(out) {}

  // Submits a line, or writes its error.
  void submit(Scheduler& scheduler, const BatchLine& line) {
    std::string error = line.error;
    if (error.empty()) {
      Result<RequestId> id = scheduler.submit(line.request);
      if (id.ok()) {
        running_.emplace(*id, Running{&line, {}, {}});
        return;
      }
      error = id.status().message();
    }
    out_.write({{"line", line.number}, {"id", line.id}, {"error", error}});
    failed++;
    finished++;
  }

  void take(const std::vector<Event>& events) {
    for (const Event& e : events) {
      if (e.kind == Event::Kind::kToken) {
        Running& r = running_.at(e.request);
        r.ids.push_back(e.token);
        if (e.logprob) add_logprob(r, e);
      } else if (e.kind == Event::Kind::kFinished) {
        finish(running_.at(e.request), e);
        running_.erase(e.request);
      }
    }
  }

  int finished = 0, failed = 0;

 private:
  static void add_logprob(Running& r, const Event& e) {
    r.logprobs.push_back(*e.logprob);
    Json best = Json::array();
    for (const TokenLogprob& l : e.best) best.push_back({l.id, l.logprob});
    r.best.push_back(std::move(best));
  }

  void finish(const Running& r, const Event& e) {
    finished++;
    if (e.reason == FinishReason::kCancelled) return;  // interrupted: the next run does it
    Json result{{"line", r.line->number}, {"id", r.line->id}};
    if (e.reason == FinishReason::kFailed) {
      result["error"] = e.status.message();
      failed++;
    } else {
      result["finish_reason"] = finish_reason_name(e.reason);
      result["prompt_tokens"] = r.line->request.prompt.size();
      result["ids"] = r.ids;
      if (tokenizer_ != nullptr) result["text"] = text_of(r);
      if (r.line->request.logprobs >= 0) {
        result["logprobs"] = r.logprobs;
        result["top_logprobs"] = r.best;
      }
    }
    out_.write(result);
  }

  // The new text, cut before the stop string that ended it. Decoded behind the prompt: whether a leading
  // space is dropped depends on what stands before.
  std::string text_of(const Running& r) const {
    Tokenizer::Decoder decoder(*tokenizer_);
    for (const std::int32_t id : r.line->request.prompt) (void)decoder.push(id);
    std::string text;
    for (const std::int32_t id : r.ids) {
      Result<std::string> piece = decoder.push(id);
      if (piece.ok()) text += *piece;
    }
    text += decoder.finish();
    std::size_t end = std::string::npos;
    for (const std::string& stop : r.line->stops) end = std::min(end, text.find(stop));
    return text.substr(0, end);
  }

  const Tokenizer* tokenizer_;
  BatchOutput& out_;
  std::map<RequestId, Running> running_;
};

// Positions of the longest request that the model can take.
int longest(const std::vector<BatchLine>& lines, const BatchOutput& out, const ModelInfo& info) {
  int most = 1;
  for (const BatchLine& l : lines) {
    if (!l.error.empty() || out.done(l.number)) continue;
    const std::int64_t length = static_cast<std::int64_t>(l.request.prompt.size()) + l.request.max_tokens - 1;
    if (length <= info.max_positions) most = std::max(most, static_cast<int>(length));
  }
  return most;
}

Json summary_json(const Scheduler& scheduler, const StatePlan& plan, const Batch& batch, bool drafts,
                  double seconds) {
  const SchedulerStats& s = scheduler.stats();
  const auto share = [](std::int64_t a, std::int64_t b) {
    return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0.0;
  };
  return {{"finished", batch.finished},
          {"failed", batch.failed},
          {"seconds", seconds},
          {"rows", plan.limits().rows},
          {"steps", s.steps},
          {"prefill_tokens", s.prefill_tokens},
          {"decode_tokens", s.decode_tokens},
          {"decode_tokens_per_s", seconds > 0 ? static_cast<double>(s.decode_tokens) / seconds : 0},
          {"occupancy", share(s.row_steps, s.steps)},
          {"drafts", drafts ? drafts_json(s.drafts) : Json()},
          {"state_bytes", plan.bytes()}};
}

void print_summary(const Json& s, const DraftStats* drafts) {
  std::string text = fmt::format(
      "windrow: {} requests, {} failed, in {:.1f} s: {:.1f} tokens/s, {:.1f} of {} rows busy, "
      "state {}\n",
      s["finished"].get<int>(), s["failed"].get<int>(), s["seconds"].get<double>(),
      s["decode_tokens_per_s"].get<double>(), s["occupancy"].get<double>(), s["rows"].get<int>(),
      human_bytes(s["state_bytes"].get<std::size_t>()));
  if (drafts != nullptr) text += drafts_text(*drafts);
  write_stderr(text);
}

int run_batch(const BatchFlags& flags) {
  if (flags.in == flags.out) usage_error("--out", "is the input file");
  flags.draft.check();
  const ModelInfo info = need(read_model_info(flags.run.model));
  const KvChoice kv = flags.kv.choose(info);
  const std::optional<Tokenizer> tokenizer = flags.run.load_tokenizer(false);
  const std::vector<BatchLine> lines =
      read_batch(flags.in, flags.defaults, info, tokenizer ? &*tokenizer : nullptr, flags.ignore_eos);
  BatchOutput out(flags.out);
  const int context = flags.context > 0 ? flags.context : longest(lines, out, info);

  ThreadPool pool = flags.run.make_pool();
  const std::unique_ptr<DraftSource> draft =
      flags.draft.load(info, flags.rows, context, flags.run.compute, pool);
  const Model model = flags.run.load(pool);
  const Limits limits{.rows = flags.rows,
                      .tokens = context,
                      .step_tokens = flags.run.prefill_chunk + flags.rows * flags.draft.step_tokens(),
                      .tree_nodes = flags.draft.tree_nodes(),
                      .verify_tokens = flags.draft.verify_tokens()};
  const StatePlan plan = need(model.plan(kv, limits));
  StateStore store = need(StateStore::create(plan));
  Runner runner = need(Runner::create(model, plan, pool));
  RunnerModel step_model(runner, info);
  SchedulerOptions options{.prefill_chunk = flags.run.prefill_chunk};
  options.draft_tokens = flags.draft.tokens;
  options.drafter = draft ? draft->drafter() : nullptr;
  Scheduler scheduler = need(Scheduler::create(step_model, store, options));

  Batch batch(tokenizer ? &*tokenizer : nullptr, out);
  const std::size_t before = out.count();
  ProgressBar bar("requests", flags.run.progress());
  catch_interrupt();
  const auto start = Clock::now();
  std::size_t next = 0;
  std::vector<Event> events;
  while (!interrupted().load()) {
    // A few wait, so that a row that ends is taken at once; the others cost no memory yet.
    while (next < lines.size() && scheduler.waiting() < flags.rows) {
      if (!out.done(lines[next].number)) batch.submit(scheduler, lines[next]);
      next++;
    }
    if (scheduler.idle()) break;
    events.clear();
    const Status status = scheduler.step(events);
    batch.take(events);
    if (!status.ok() && events.empty()) need(status);  // a step that ended nobody would come back for ever
    bar.update(static_cast<double>(before) + batch.finished, static_cast<double>(lines.size()));
  }
  bar.clear();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const Json summary = summary_json(scheduler, plan, batch, flags.draft.on(), seconds);
  if (flags.json) {
    write_stdout(summary.dump() + "\n");
    flush_stdout();
  }
  if (!flags.run.quiet) print_summary(summary, flags.draft.on() ? &scheduler.stats().drafts : nullptr);
  if (interrupted().load()) return kInterrupted;
  return batch.failed > 0 ? kFailure : kSuccess;
}

}  // namespace

void add_batch(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("batch", "answer the requests of a file, many at once");
  auto flags = std::make_shared<BatchFlags>();
  flags->run.add_model(*sub);
  path_flag(
      *sub, "--in", &flags->in, "F.jsonl",
      "requests, one JSON object a line: prompt or ids; id, max_tokens, temperature, top_k, top_p, min_p, "
      "repetition_penalty, seed, stop, logprobs, priority; - is stdin")
      ->required();
  path_flag(*sub, "--out", &flags->out, "F.jsonl",
            "results as they finish; lines that stand there already are not run again")
      ->required();
  int_flag(*sub, "--rows", &flags->rows, 1, 4096, "requests that run at once");
  int_flag(*sub, "--context", &flags->context, 1, 1 << 30, "positions of a row",
           "what the longest request needs");
  int_flag(*sub, "--max-tokens", &flags->defaults.max_tokens, 1, 1 << 30, "of requests that do not say");
  add_sampling(*sub, &flags->defaults.sampling);
  flags->draft.add(*sub);
  flags->kv.add(*sub);
  flags->run.add_chunk(*sub);
  flags->run.add_compute(*sub);
  flags->run.add_threads(*sub);
  bool_flag(*sub, "--ignore-eos", &flags->ignore_eos, "go on when the model ends its text");
  bool_flag(*sub, "--json", &flags->json, "print a summary as one JSON object");
  flags->run.add_quiet(*sub);
  sub->callback([flags, &run] { run = [flags] { return run_batch(*flags); }; });
}

}  // namespace windrow::cli
