// Drafts from a smaller model: its rows follow the texts and run ahead of them.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <unordered_map>

#include "base/rank.h"
#include "model/layers.h"
#include "windrow/speculation.h"

namespace windrow {
namespace {

// A text's row in the draft model's store, and the tokens at its positions: drafted ones too, which may turn
// out wrong.
struct Follower {
  Row row;
  std::vector<std::int32_t> fed;
};

// One chain that is being drafted.
struct Chain {
  std::size_t request = 0;
  Row* row = nullptr;
  std::vector<std::int32_t>* fed = nullptr;
  std::vector<std::int32_t> pending;  // tokens that its row has to run next
  std::vector<std::int32_t> tokens;   // drafted so far
  std::vector<float> chances;         // of these
  int length = 0;                     // to be drafted
  float least = 0;                    // chance of a token that is drafted

  // Takes a token in, or ends the chain where it is not worth it.
  void draft(std::int32_t token, float probability) {
    const float chance = probability * (chances.empty() ? 1.0f : chances.back());
    if (chance < least) {
      length = static_cast<int>(tokens.size());
      return;
    }
    tokens.push_back(token);
    chances.push_back(chance);
  }
};

class ModelDrafter final : public Drafter {
 public:
  ModelDrafter(StepModel& model, StateStore& store, int branches)
      : model_(model), store_(store), branches_(branches) {}

  Status propose(std::span<const DraftRequest> requests, std::span<Draft> drafts) override try {
    for (Draft& d : drafts) d = {};
    std::vector<Chain> chains;
    for (std::size_t r = 0; r < requests.size(); r++) {
      Follower* f = follow(requests[r]);
      if (f == nullptr) continue;
      const auto from = requests[r].tokens.begin() + static_cast<std::ptrdiff_t>(f->fed.size());
      chains.push_back({.request = r,
                        .row = &f->row,
                        .fed = &f->fed,
                        .pending = {from, requests[r].tokens.end()},
                        .tokens = {},
                        .chances = {},
                        .length = requests[r].most,
                        .least = requests[r].least});
    }
    if (Status s = run(chains); !s.ok()) return s;  // each has its first token now
    Status s = branches_ == 1 ? extend(chains) : branch(chains);
    if (!s.ok()) return s;
    for (std::size_t i = 0; i < chains.size(); i++) put(chains[i], drafts[chains[i].request]);
    forks_.clear();
    return {};
  } catch (const std::exception& e) {
    forks_.clear();
    return {StatusCode::kResourceExhausted, fmt::format("draft model: {}", e.what())};
  }

  void forget(std::uint64_t id) override { followers_.erase(id); }

 private:
  // The text's row, cut to what it shares with the text, at least a token short of it. Null without a row.
  Follower* follow(const DraftRequest& request) {
    if (request.tokens.size() + static_cast<std::size_t>(request.most) >
        static_cast<std::size_t>(store_.plan().limits().tokens)) {
      return nullptr;
    }
    Follower& f = followers_[request.id];
    const auto end =
        std::mismatch(f.fed.begin(), f.fed.end(), request.tokens.begin(), request.tokens.end() - 1).first;
    const auto common = static_cast<std::size_t>(end - f.fed.begin());
    if (f.row.valid() && common < f.fed.size()) {
      if (f.row.truncate(static_cast<int>(common)).ok()) {
        f.fed.resize(common);
      } else {
        f = {};  // more was rejected than the plan's rollback: from the start
      }
    }
    if (f.row.valid()) return &f;
    Result<Row> row = store_.new_row();
    if (!row.ok()) {
      followers_.erase(request.id);
      return nullptr;
    }
    f.row = std::move(*row);
    f.fed.clear();
    return &f;
  }

  // Runs every chain's pending tokens, then drafts one more token of each whose length allows: the greedy
  // one.
  Status run(std::vector<Chain>& chains) {
    std::vector<std::size_t> done(chains.size(), 0);
    const auto budget = static_cast<std::size_t>(store_.plan().limits().step_tokens);
    while (true) {
      std::vector<Row*> rows;
      std::vector<int> lengths;
      std::vector<std::int32_t> ids, wanted;
      std::vector<std::size_t> of;
      for (std::size_t i = 0; i < chains.size() && ids.size() < budget; i++) {
        const std::size_t n = std::min(chains[i].pending.size() - done[i], budget - ids.size());
        if (n == 0) continue;
        const auto from = chains[i].pending.begin() + static_cast<std::ptrdiff_t>(done[i]);
        ids.insert(ids.end(), from, from + static_cast<std::ptrdiff_t>(n));
        rows.push_back(chains[i].row);
        lengths.push_back(static_cast<int>(n));
        done[i] += n;
        if (done[i] < chains[i].pending.size()) continue;
        wanted.push_back(static_cast<std::int32_t>(ids.size()) - 1);
        of.push_back(i);
      }
      if (ids.empty()) break;
      const auto vocab = static_cast<std::size_t>(model_.vocab_size());
      logits_.resize(wanted.size() * vocab);
      Result<Step> step = store_.begin(rows, lengths);
      if (!step.ok()) return step.status();
      if (Status s = model_.forward(*step, ids, wanted, logits_); !s.ok()) return s;
      if (Status s = step->resolve(); !s.ok()) return s;
      for (std::size_t k = 0; k < of.size(); k++) {
        best_.resize(chains.size());
        best_[of[k]] = best_tokens(std::span(logits_).subspan(k * vocab, vocab));
      }
    }
    for (std::size_t i = 0; i < chains.size(); i++) {
      Chain& c = chains[i];
      c.fed->insert(c.fed->end(), c.pending.begin(), c.pending.end());
      c.pending.clear();
      if (done[i] > 0 && static_cast<int>(c.tokens.size()) < c.length)
        c.draft(best_[i].front().token, best_[i].front().probability);
    }
    return {};
  }

  struct Best {
    std::int32_t token;
    float probability;
  };
  std::vector<Best> best_tokens(std::span<const float> logits) {
    std::vector<Best> best;
    const std::vector<std::int32_t> ids = largest(logits, static_cast<std::size_t>(branches_));
    const float top = logits[static_cast<std::size_t>(ids.front())];
    weights_.resize(logits.size());
    exp_scaled(logits.data(), logits.size(), top, 1.0f, weights_.data());
    const float sum = std::accumulate(weights_.begin(), weights_.end(), 0.0f);
    for (const std::int32_t id : ids) best.push_back({id, weights_[static_cast<std::size_t>(id)] / sum});
    return best;
  }

  // The rest of all chains, a token of each in every step.
  Status extend(std::vector<Chain>& chains) {
    while (true) {
      bool any = false;
      for (Chain& c : chains) {
        if (static_cast<int>(c.tokens.size()) >= c.length) continue;
        c.pending = {c.tokens.back()};
        any = true;
      }
      if (!any) return {};
      if (Status s = run(chains); !s.ok()) return s;
    }
  }

  // Splits each chain into `branches` that begin with the root's best tokens, on forks of its row.
  Status branch(std::vector<Chain>& chains) {
    std::vector<Chain> all;
    for (std::size_t i = 0; i < chains.size(); i++) {
      const int count = std::min(static_cast<int>(best_[i].size()), chains[i].length);
      for (int b = 0; b < count; b++) {
        Chain c = chains[i];
        c.length = chains[i].length / count + (b < chains[i].length % count ? 1 : 0);
        c.tokens.clear();
        c.chances.clear();
        c.draft(best_[i][static_cast<std::size_t>(b)].token,
                best_[i][static_cast<std::size_t>(b)].probability);
        if (c.tokens.empty()) break;  // and the others are less probable
        if (b > 0) {
          Result<Row> fork = chains[i].row->fork();
          if (!fork.ok()) break;  // no row left: fewer branches
          forks_.push_back(std::make_unique<Follower>(Follower{std::move(*fork), *chains[i].fed}));
          c.row = &forks_.back()->row;
          c.fed = &forks_.back()->fed;
        }
        all.push_back(std::move(c));
      }
    }
    chains = std::move(all);
    return extend(chains);
  }

  // Appends a chain to a draft: as its first, or as one more branch.
  static void put(const Chain& chain, Draft& draft) {
    const bool tree = !draft.tokens.empty();
    if (tree && draft.parents.empty()) {
      for (std::size_t i = 0; i < draft.tokens.size(); i++) draft.parents.push_back(static_cast<int>(i) - 1);
    }
    for (std::size_t i = 0; i < chain.tokens.size(); i++) {
      if (tree) draft.parents.push_back(i == 0 ? -1 : static_cast<int>(draft.tokens.size()) - 1);
      draft.tokens.push_back(chain.tokens[i]);
      draft.chances.push_back(chain.chances[i]);
    }
  }

  StepModel& model_;
  StateStore& store_;
  int branches_;
  std::unordered_map<std::uint64_t, Follower> followers_;
  std::vector<std::unique_ptr<Follower>> forks_;
  std::vector<float> logits_;
  std::vector<std::vector<Best>> best_;
  std::vector<float> weights_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_model_drafter(StepModel& model, StateStore& store, int branches) try {
  if (branches < 1 || branches > 16) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("draft model: {} branches, allowed are 1 to 16", branches));
  }
  if (store.plan().recurrent_count() > 0) {
    return Status(StatusCode::kUnsupported, "draft model: it has recurrent layers, whose rows can't be cut");
  }
  return std::unique_ptr<Drafter>(std::make_unique<ModelDrafter>(model, store, branches));
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("draft model: {}", e.what()));
}

}  // namespace windrow
