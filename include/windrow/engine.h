// Text generation: the sampler, and a generator of one text at a time (scheduler.h has many at once).
//
//   GenerateOptions options;
//   options.max_tokens = 300;
//   options.sampling.temperature = 0.8f;
//   options.stop_ids = model.info().eos_ids;
//   Result<Generator> g = Generator::create(model, KvChoice(Codec::affine(4)), {.tokens = 1024}, pool);
//   Result<Generation> text = g->generate(prompt_ids, options);
//
// Thread safety: a Sampler is immutable but for its scratch and serves one call at a time, as does a
// Generator with its ThreadPool.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "windrow/export.h"
#include "windrow/model.h"
#include "windrow/speculation.h"
#include "windrow/status.h"
#include "windrow/store.h"
#include "windrow/threads.h"

namespace windrow {

struct SamplerOptions {
  float temperature = 0.0f;         // 0: greedy, the filters below change nothing then
  int top_k = 0;                    // 0: off; else only the k most probable tokens
  float top_p = 1.0f;               // in (0, 1]: the smallest set of most probable tokens that holds p
  float min_p = 0.0f;               // in [0, 1): tokens at least min_p times as probable as the best
  float repetition_penalty = 1.0f;  // > 0: divides positive and multiplies negative logits of seen tokens
  std::uint64_t seed = 0;
};

// Chooses a token from logits, in this order:
//   1. repetition penalty (arXiv 1909.05858) on every id of the history, once an id;
//   2. temperature 0: the largest logit, the lower id of equals;
//   3. p = softmax(logits / temperature), then top-k, top-p (of what top-k left, renormalized) and
//      min-p cut p, each ranking equals by lower id;
//   4. draw number n of the seed picks from what is left, renormalized, in order of ids.
// A filter that cuts nothing changes nothing, and a draw depends on (seed, n) only: the same seed
// gives the same tokens on any number of threads.
class WINDROW_API Sampler {
 public:
  // kInvalidArgument names the option that is out of range (NaN included).
  static Result<Sampler> create(const SamplerOptions& options);
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();

  // `logits` [vocab] is scratch: its content is changed. `history`: all earlier tokens, prompt
  // included; ids outside the vocabulary are ignored. `draw`: the number of this choice, 0, 1, ...
  // kInvalidArgument if there is no logit, one is NaN or +infinity, or all are -infinity.
  Result<std::int32_t> sample(std::span<float> logits, std::span<const std::int32_t> history,
                              std::uint64_t draw);

  // Uniform in [0, 1): the top 53 bits of SplitMix64(seed), output number `draw`.
  static double uniform(std::uint64_t seed, std::uint64_t draw) noexcept;

 private:
  struct Impl;
  explicit Sampler(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

enum class FinishReason { kStop, kLength, kCancelled, kDeadline, kFailed };
// "stop", "length", "cancelled", "deadline", "failed".
WINDROW_API const char* finish_reason_name(FinishReason reason) noexcept;

struct GenerateOptions {
  int max_tokens = 256;  // at most this many new tokens; 0: only the prompt is processed
  // Tokens of a prefill step, at least those of a verified draft; less where the store's limit is lower.
  int prefill_chunk = 512;
  // Go on in the row of the last call: what the prompt has in common with its tokens is not run again. The
  // row is cut there if it can be (a window may have passed on; Limits::rollback keeps that many cuttable),
  // else a new row runs the whole prompt. The tokens chosen are the same either way. Of a row that an error
  // or a cancelled prefill left, what stands in it counts.
  bool reuse = false;
  // Guesses ahead: the same tokens in fewer steps (speculation.h). Of a step at most draft_tokens, fewer
  // where they do not pay; the plan needs that many step_tokens and one more, and its verify_tokens and
  // tree_nodes bound them too. Must outlive the call; null: none.
  Drafter* drafter = nullptr;
  int draft_tokens = 8;
  SamplerOptions sampling;
  std::vector<std::int32_t> stop_ids;         // ends the text; the id itself is not part of the result
  const std::atomic<bool>* cancel = nullptr;  // polled before each step; the result so far is returned
  // Called on the calling thread, must not throw. Prompt tokens done (reused ones count), of how many; after
  // each chunk.
  std::function<void(int done, int total)> on_prefill;
  // Each new token as it is chosen; false ends the text (kCancelled).
  std::function<bool(std::int32_t id)> on_token;
};

struct Generation {
  std::vector<std::int32_t> ids;  // new tokens, without the prompt and the stop id
  FinishReason finish_reason = FinishReason::kLength;
  int length = 0;  // positions in the state at the end
  int reused = 0;  // prompt tokens that were in the row already
  // With `reuse`: prompt tokens that the row had, too, but which were run again, and why ("" if none).
  int lost = 0;
  std::string lost_because;
  double prefill_s = 0;
  double decode_s = 0;  // from the first token on: decode_steps steps and their sampling
  int decode_steps = 0;
  DraftStats drafts = {};
};

// A model with one store, for one sequence at a time.
class WINDROW_API Generator {
 public:
  // limits.rows must be 1. Shares ownership of the model; `pool` must outlive the generator.
  static Result<Generator> create(const Model& model, const KvChoice& kv, const Limits& limits,
                                  ThreadPool& pool);
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;
  ~Generator();

  // Runs the prompt, which can't be empty, in a new row (or see `reuse`), then samples. The last token is not
  // fed back, so prompt + max_tokens - 1 <= limits.tokens is needed (kInvalidArgument). An error loses the
  // row; the generator stays usable. kCorrupt when a token's logits are no numbers to choose by: the weights
  // hold NaN or infinities, or the model's numbers exceed f32, with whatever codec.
  Result<Generation> generate(std::span<const std::int32_t> prompt, const GenerateOptions& options);

  // The row of the last call and the tokens at its positions, which a session takes; not valid() before the
  // first call and after an error.
  const Row& row() const noexcept;
  std::span<const std::int32_t> row_ids() const noexcept;
  // The store of the row, for rows that are restored into it. It has room for one.
  StateStore& store() noexcept;
  // Puts a row of store() in the place of the last call's, so that a call with `reuse` goes on in it. `ids`
  // are the tokens at its positions: kInvalidArgument unless they are row.length().
  Status set_row(Row row, std::span<const std::int32_t> ids);

  const StatePlan& plan() const noexcept;
  // Of the store, with the row of the last generate() still in it.
  PoolUse pool_use(int group) const noexcept;
  // See Runner::set_profile.
  void set_profile(ForwardProfile* profile) noexcept;

 private:
  struct Impl;
  explicit Generator(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace windrow
