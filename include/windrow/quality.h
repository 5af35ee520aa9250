// The quality meter: how far the codecs of the state (and the compute modes of quantized weights) move what a
// model predicts, measured on a text against the same model with f32 state; and an assignment of codecs to
// layers that fits a budget of bytes, found by measuring.
//
//   const QualityText text{.ids = ids, .start = {bos}};
//   const KvTrial trials[] = {{.kv = KvChoice(Codec::affine(4))}};
//   Result<QualityReport> report = measure_quality(model, text, trials, {.context = 1024}, pool);
//   report->trials[0].divergence.kld_mean;     // nats a token
//
// A text is cut into windows of `context` positions. Each begins in a fresh row with the tokens of `start`
// (a model's bos), so that every token but those is predicted once. Reference and trials go over the text
// side by side, chunk by chunk: the logits of one chunk are held at a time, and a row of state for each
// trial.
//
// Results depend on model, text and options only, not on threads or chunks (model.h, row determinism).
//
// Thread safety: free functions; the pool serves one call at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "windrow/compute.h"
#include "windrow/export.h"
#include "windrow/kv_choice.h"
#include "windrow/model.h"
#include "windrow/status.h"
#include "windrow/threads.h"

namespace windrow {

struct QualityText {
  std::vector<std::int32_t> ids = {};    // of the text alone
  std::vector<std::int32_t> start = {};  // fed before each window, never scored; without it the first token
                                         // of the text is not scored either
};

struct QualityOptions {
  int context = 1024;      // positions of a window, start included; more than start, at most max_positions
  int step_tokens = 512;   // of a chunk, at most; fewer where the logits of a chunk would exceed 32 MiB
  std::size_t tokens = 0;  // scored tokens, at most; 0: all
  // States of all trials that run side by side, at most (a single one may exceed it); more trials take more
  // passes over the text, each with a run of the reference.
  std::size_t state_bytes = std::size_t{1} << 30;
  // Called on the calling thread, positions run over all trials and their total. Must not throw.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
};

// Of a trial's predictions q from the reference's p, over the scored tokens. A token's divergence is
//   KL(p || q) = sum_i p_i (log p_i - log q_i)   in nats, summed in f64 over the whole vocabulary.
struct Divergence {
  double kld_mean = 0;
  double kld_median = 0;  // percentiles by nearest rank
  double kld_p99 = 0;
  double kld_max = 0;
  double same_top =
      1;           // share of tokens whose most probable token is the reference's (the lower id of equals)
  double nll = 0;  // mean of -log q(token), nats

  double perplexity() const noexcept;  // exp(nll)
};

// One way to run the model beside the reference.
struct KvTrial {
  KvChoice kv = {};
  bool attention = false;        // fill TrialReport::attention
  const Model* model = nullptr;  // another model of the same layers and vocabulary; null: the reference's
};

struct TrialReport {
  Divergence divergence;
  // [layers], 0 for layers without attention; empty unless asked for. The relative error of a layer's
  // attention output, sqrt(sum |o' - o|^2 / sum |o|^2) over all tokens and heads, where o is the reference's
  // output and o' is the output over this trial's codecs for the same queries, keys and values: the codec's
  // own share, without what earlier layers have done to its input.
  std::vector<double> attention;
};

struct QualityReport {
  std::size_t tokens = 0;   // scored
  std::size_t windows = 0;  // that they stand in
  Divergence reference;     // of the f32 state from itself: only nll says something
  std::vector<TrialReport> trials;
};

// Measures each trial against `reference` with f32 state. kInvalidArgument for an id outside the vocabulary,
// a text without a token to score, options out of range, a trial that does not fit the model; kCorrupt where
// logits are not finite.
WINDROW_API Result<QualityReport> measure_quality(const Model& reference, const QualityText& text,
                                                  std::span<const KvTrial> trials,
                                                  const QualityOptions& options, ThreadPool& pool);

// The layers that store keys and values, as sets of equal shape in order of their first layer: what one codec
// is chosen for. With `per_layer` each layer is a set of its own.
WINDROW_API std::vector<std::vector<int>> kv_units(std::span<const LayerShape> layers,
                                                   bool per_layer = false);
// `base` with the codecs of the layers `unit` replaced.
WINDROW_API KvChoice with_codecs(KvChoice base, std::span<const int> unit, const KvCodecs& codecs);

// Bytes that one row holds at `tokens` positions (StatePlan::projected_bytes), exactly.
WINDROW_API Result<std::size_t> kv_row_bytes(const ModelInfo& info, const KvChoice& kv, int tokens);

struct SuggestOptions {
  std::size_t budget = 0;                    // bytes of one row at QualityOptions::context positions
  std::vector<Codec> codecs = {};            // candidates, for keys and values alike; at least one
  std::vector<std::vector<int>> units = {};  // layers stored alike, all that kv_units() names, each once
};

// An assignment that was measured as a whole.
struct Assignment {
  KvChoice kv = {};
  std::size_t bytes = 0;  // of one row at `context` positions
  Divergence divergence;
};

struct UniformAssignment : Assignment {
  Codec codec;  // of all keys and values
};

struct Suggestion {
  Assignment chosen;
  std::optional<UniformAssignment> uniform;  // the best of those within the budget; none where none fits
  double predicted = 0;  // kld_mean of `chosen` as the sum of its parts, each measured alone
};

// 1. Measures each candidate for the keys, or for the values, of each unit alone, all else f32.
// 2. From the best of each part, takes the cheapest step in divergence per byte saved until the budget is
// met,
//    then improves by steps and pairs of steps that stay within it, supposing that divergences add up.
// 3. Measures what came of it, and every uniform assignment within the budget, as a whole, and chooses the
// one of
//    least mean divergence: never worse than the best uniform one.
// kInvalidArgument for a budget below the smallest assignment, with both numbers.
WINDROW_API Result<Suggestion> suggest_kv(const Model& model, const QualityText& text,
                                          const SuggestOptions& suggest, const QualityOptions& options,
                                          ThreadPool& pool);

struct ComputeReport {
  Compute compute = Compute::kDefault;
  Divergence divergence;  // from Compute::kF32, both with f32 state
};
// Loads `folder` in each compute mode, two models at a time. Empty for a model without quantized weights,
// which has no modes.
WINDROW_API Result<std::vector<ComputeReport>> measure_compute(const std::string& folder,
                                                               const QualityText& text,
                                                               const QualityOptions& options,
                                                               ThreadPool& pool);

}  // namespace windrow
