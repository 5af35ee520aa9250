// --draft and its relatives: where guesses of the next tokens come from.
#pragma once

#include <algorithm>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/model_flags.h"
#include "windrow/scheduler.h"
#include "windrow/speculation.h"

namespace windrow::cli {

// A draft model with all that it needs, or none.
class DraftSource {
 public:
  Drafter* drafter() const { return drafter_.get(); }

 private:
  friend struct DraftFlags;
  std::optional<Model> model_;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<RunnerModel> step_model_;
  std::unique_ptr<Drafter> drafter_;
};

struct DraftFlags {
  std::string from;  // a model folder, "ngram", or empty
  int tokens = 8;
  int tree = 1;

  void add(CLI::App& app);
  // Before anything is loaded: what belongs to a draft is given with one.
  void check() const;
  bool on() const { return !from.empty(); }
  // Nodes of a token tree that the target's plan needs; 0: chains.
  int tree_nodes() const { return on() && tree > 1 ? tokens + 1 : 0; }
  // What a target's plan needs: tokens of a step for each row, and of a part of it that may be kept.
  int step_tokens() const { return on() ? tokens + 1 : 1; }
  int verify_tokens() const { return std::max(16, step_tokens()); }
  // For texts of `rows` rows and `tokens_a_row` positions. A draft model must have the target's vocabulary.
  std::unique_ptr<DraftSource> load(const ModelInfo& target, int rows, int tokens_a_row, Compute compute,
                                    ThreadPool& pool) const;

  CLI::Option* tokens_option = nullptr;
  CLI::Option* tree_option = nullptr;
};

nlohmann::ordered_json drafts_json(const DraftStats& drafts);
std::string drafts_text(const DraftStats& drafts);  // one line

}  // namespace windrow::cli
