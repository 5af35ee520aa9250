// Drafts for speculative decoding: guesses of the next tokens, which the target model verifies in one step.
//
// Verification: the step runs the row's last token and the draft; each node's logits choose the next token as
// plain decoding would (same sampler, same draw number). Where a child of the node holds that token the walk
// goes on from it; else it ends. So every token is one that plain decoding would have chosen: greedy and
// sampled output alike are the same as without drafts, bit for bit, and a draft only decides how many tokens
// a step gives. (With a draft that is not random, as these are, this accepts as often as rejection sampling
// would: a token d with the target's probability p(d). Leviathan et al., arXiv 2211.17192.)
//
// Thread safety: one call at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "windrow/export.h"
#include "windrow/status.h"
#include "windrow/step_model.h"
#include "windrow/store.h"

namespace windrow {

// Tokens behind a text's last one. A chain, or a tree: node i follows node parents[i] < i, -1 the text
// itself.
struct Draft {
  std::vector<std::int32_t> tokens;
  std::vector<int> parents;  // empty: a chain
  // Of each token the chance that the text goes on up to and through it, as far as the drafter can tell;
  // empty: it can't.
  std::vector<float> chances;
};

// A row that wants a draft.
struct DraftRequest {
  std::uint64_t id = 0;                  // the same for a text's whole life
  std::span<const std::int32_t> tokens;  // the text, at least one token; it only grows between calls
  int most = 0;                          // tokens, at least 1
  float least = 0;                       // chance: a token of less is not worth verifying
};

// What became of drafts. A round is one row's part of a step that verifies a draft.
struct DraftStats {
  std::int64_t rounds = 0;
  std::int64_t drafted = 0;   // tokens that were verified
  std::int64_t accepted = 0;  // of these
  double acceptance() const noexcept {
    return drafted > 0 ? static_cast<double>(accepted) / static_cast<double>(drafted) : 0;
  }
  // The model's own token of a round comes on top of the accepted ones.
  double tokens_per_round() const noexcept {
    return rounds > 0 ? 1 + static_cast<double>(accepted) / static_cast<double>(rounds) : 0;
  }
};

class WINDROW_API Drafter {
 public:
  virtual ~Drafter() = default;
  // drafts[i] for requests[i], with at most its `most` tokens; may be empty. An error means no drafts this
  // time: the scheduler decodes on without.
  virtual Status propose(std::span<const DraftRequest> requests, std::span<Draft> drafts) = 0;
  // A text that ended.
  virtual void forget(std::uint64_t id) = 0;
};

// Looks for the text's last few tokens earlier in the text and drafts what followed there: the longest match
// of up to `longest` tokens, the latest place of equals. Chances are those that matches of that length had in
// the text so far. No model; O(longest) a token.
struct NgramOptions {
  int shortest = 2;
  int longest = 5;
};
WINDROW_API Result<std::unique_ptr<Drafter>> make_ngram_drafter(const NgramOptions& options = {});

// A smaller model of the same vocabulary, greedy, with rows of its own in its own store, which follow the
// texts. Chances are its own probabilities. `store` needs limits of rollback >= the most drafted tokens, as
// many rows as texts and their tokens; recurrent draft models are refused (their rows can't be cut). branches
// > 1: a tree whose root has the draft model's best `branches` tokens, each followed by its own chain,
// together at most `most` nodes; the target's plan then needs as many Limits::tree_nodes. `model` and `store`
// must outlive the drafter; nobody else uses the store.
WINDROW_API Result<std::unique_ptr<Drafter>> make_model_drafter(StepModel& model, StateStore& store,
                                                                int branches = 1);

}  // namespace windrow
