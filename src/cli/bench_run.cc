#include "cli/bench_run.h"

#include <algorithm>
#include <random>
#include <vector>

#include "base/probe.h"
#include "cli/failure.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "windrow/store.h"

namespace windrow::cli {

StateUse state_use(const StatePlan& plan, int length) {
  StateUse use;
  for (int i = 0; i < plan.group_count(); i++) {
    const AttentionGroup& g = plan.group(i);
    const std::size_t position = static_cast<std::size_t>(g.kv_heads) *
                                 (g.keys.record_bytes(g.head_dim) + g.values.record_bytes(g.head_dim));
    const int seen = g.window == kFullWindow ? length : std::min(g.window, length);
    use.stored += g.layers.size() * position;
    use.read += (g.layers.size() + g.sharers.size()) * position * static_cast<std::size_t>(seen);
  }
  return use;
}

int bench_tokens(const BenchSettings& s) {
  // Two steps warm up; the first row is also measured alone.
  return std::max(s.context + (s.rows > 1 ? 2 : 1) * s.steps * s.repeats + 2, s.prompt);
}

namespace {

class Bench {
 public:
  Bench(const BenchSettings& settings, const Model& model, const StatePlan& plan, ThreadPool& pool,
        bool progress)
      : progress_(progress),
        settings_(settings),
        model_(model),
        plan_(plan),
        probes_(pool),
        store_(need(StateStore::create(plan))),
        runner_(need(Runner::create(model, plan, pool))),
        vocab_(static_cast<std::size_t>(model.info().vocab_size)),
        logits_(static_cast<std::size_t>(settings.rows) * vocab_) {}

  BenchFigures run() {
    const int all = settings_.repeats * (settings_.prompt > 0 ? 2 : 1) + 1;
    ProgressBar bar("measuring", progress_);
    int done = 0;
    const auto tick = [&] {
      check_interrupt();
      bar.update(++done, all);
    };
    BenchFigures f;
    std::vector<double> rate, share;
    if (settings_.prompt > 0) {
      for (int i = 0; i < settings_.repeats; i++, tick()) measure_prefill(rate, share);
      f.prefill_tokens_per_s = bench::median(rate);
      f.prefill_of_fma = bench::median(share);
    }
    std::vector<Row> rows = filled_rows();
    decode(rows, 2, nullptr);  // touches everything once
    tick();
    rate.clear(), share.clear();
    for (int i = 0; i < settings_.repeats; i++, tick()) measure_decode(rows, rate, share, f);
    f.decode_tokens_per_s = bench::median(rate);
    f.decode_of_read = bench::median(share);
    f.one_row_tokens_per_s = bench::median(alone_);
    f.over_one_row = bench::median(over_);
    f.read = bench::median(reads_);
    f.fma = bench::median(fmas_);
    return f;
  }

 private:
  bench::Rates probe() {
    const bench::Rates now = probes_.now();
    reads_.push_back(now.read);
    fmas_.push_back(now.fma);
    return now;
  }

  // Before every step: one may be the first of very many.
  static void check_interrupt() {
    if (interrupted()) throw Failure{kInterrupted, "interrupted"};
  }

  std::int32_t next_id() { return static_cast<std::int32_t>(random_() % vocab_); }

  // One row's next `n` tokens, and the logits of the last.
  void forward(Row& row, int n) {
    check_interrupt();
    Row* const rows[] = {&row};
    const int lengths[] = {n};
    std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
    for (std::int32_t& id : ids) id = next_id();
    const std::int32_t wanted[] = {n - 1};
    Step step = need(store_.begin(rows, lengths));
    need(runner_.forward(step, ids, wanted, std::span(logits_).first(vocab_)));
    need(step.resolve());
  }

  void prefill(Row& row, int tokens) {
    for (int done = 0; done < tokens; done += chunk()) forward(row, std::min(chunk(), tokens - done));
  }
  int chunk() const { return plan_.limits().step_tokens; }

  void measure_prefill(std::vector<double>& rate, std::vector<double>& share) {
    Row row = need(store_.new_row());
    const bench::Rates before = probe();
    const double start = bench::now();
    prefill(row, settings_.prompt);
    const double seconds = bench::now() - start;
    const bench::Rates rates = bench::between(before, probe());
    const double flops =
        2.0 * static_cast<double>(settings_.prompt) * static_cast<double>(numbers_per_token());
    rate.push_back(settings_.prompt / seconds);
    share.push_back(rates.fma > 0 ? flops / seconds / rates.fma : 0);
  }

  // Weights that a token of a long prompt is multiplied by: all matrices but the head, which serves the last
  // token only.
  std::size_t numbers_per_token() const {
    const std::size_t head = static_cast<std::size_t>(model_.info().hidden_size) * vocab_;
    return model_.multiplications() - head;
  }

  // `rows` rows of `context` tokens: as they stand after prefill, but with random keys and values, which take
  // no model. Models with recurrent layers run over the tokens.
  std::vector<Row> filled_rows() {
    std::vector<Row> rows;
    for (int r = 0; r < settings_.rows; r++) {
      rows.push_back(need(store_.new_row()));
      if (plan_.recurrent_count() > 0) {
        prefill(rows.back(), settings_.context);
        continue;
      }
      for (int done = 0; done < settings_.context; done += chunk())
        append_random(rows.back(), std::min(chunk(), settings_.context - done));
    }
    return rows;
  }

  void append_random(Row& row, int n) {
    check_interrupt();
    Row* const rows[] = {&row};
    const int lengths[] = {n};
    Step step = need(store_.begin(rows, lengths));
    std::normal_distribution<float> normal;
    for (int i = 0; i < plan_.group_count(); i++) {
      const AttentionGroup& g = plan_.group(i);
      const auto size = static_cast<std::size_t>(n * g.kv_heads * g.head_dim);
      if (noise_.size() < 2 * size) {
        noise_.resize(2 * size);
        for (float& x : noise_) x = normal(random_);
      }
      const std::span<const float> noise(noise_);
      for (const int layer : g.layers) need(step.append(layer, noise.first(size), noise.subspan(size, size)));
    }
    need(step.resolve());
  }

  // Seconds of `steps` steps of one token a row.
  double decode(std::span<Row> rows, int steps, ForwardProfile* profile) {
    std::vector<Row*> pointers;
    std::vector<std::int32_t> wanted;
    for (Row& r : rows) {
      wanted.push_back(static_cast<std::int32_t>(pointers.size()));
      pointers.push_back(&r);
    }
    const std::vector<int> lengths(rows.size(), 1);
    std::vector<std::int32_t> ids(rows.size());
    runner_.set_profile(profile);
    const double start = bench::now();
    for (int i = 0; i < steps; i++) {
      check_interrupt();
      for (std::int32_t& id : ids) id = next_id();
      Step step = need(store_.begin(pointers, lengths));
      need(runner_.forward(step, ids, wanted, std::span(logits_).first(rows.size() * vocab_)));
      need(step.resolve());
    }
    const double seconds = bench::now() - start;
    runner_.set_profile(nullptr);
    return seconds;
  }

  void measure_decode(std::vector<Row>& rows, std::vector<double>& rate, std::vector<double>& share,
                      BenchFigures& f) {
    const bench::Rates before = probe();
    const double seconds = decode(rows, settings_.steps, &f.decode_profile) / settings_.steps;
    const bench::Rates rates = bench::between(before, probe());
    const std::size_t bytes =
        model_.weight_bytes_read(settings_.rows) +
        static_cast<std::size_t>(settings_.rows) * state_use(plan_, settings_.context).read;
    f.decode_s += seconds * settings_.steps;
    rate.push_back(settings_.rows / seconds);
    if (rows.size() > 1) {
      alone_.push_back(settings_.steps / decode(std::span(rows).first(1), settings_.steps, nullptr));
      over_.push_back(rate.back() / alone_.back());
    }
    share.push_back(rates.read > 0 ? static_cast<double>(bytes) / seconds / rates.read : 0);
  }

  bool progress_;
  const BenchSettings& settings_;
  const Model& model_;
  const StatePlan& plan_;
  bench::Probes probes_;
  StateStore store_;
  Runner runner_;
  std::size_t vocab_;
  std::vector<float> logits_, noise_;
  std::vector<double> reads_, fmas_, alone_, over_;
  std::mt19937 random_{1};
};

}  // namespace

BenchFigures run_bench(const BenchSettings& settings, const Model& model, const StatePlan& plan,
                       ThreadPool& pool, bool progress) {
  return Bench(settings, model, plan, pool, progress).run();
}

}  // namespace windrow::cli
