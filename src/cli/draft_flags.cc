#include "cli/draft_flags.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace windrow::cli {

void DraftFlags::add(CLI::App& app) {
  path_flag(app, "--draft", &from, "DIR|ngram",
            "guess ahead with a smaller model of the same vocabulary, or from repetitions in the text: the "
            "same tokens in fewer steps");
  tokens_option = int_flag(app, "--draft-tokens", &tokens, 1, 32,
                           "most guessed tokens of a step; fewer where they do not pay");
  tree_option = int_flag(app, "--draft-tree", &tree, 1, 8, "branches of a draft model's guess");
}

void DraftFlags::check() const {
  if (from == "ngram" && tree > 1)
    usage_error("--draft-tree", "is for draft models, ngram guesses one chain");
  if (on()) return;
  for (const CLI::Option* option : {tokens_option, tree_option}) {
    if (option->count() > 0) usage_error(option->get_name(), "needs --draft");
  }
}

std::unique_ptr<DraftSource> DraftFlags::load(const ModelInfo& target, int rows, int tokens_a_row,
                                              Compute compute, ThreadPool& pool) const {
  if (!on()) return nullptr;
  auto source = std::make_unique<DraftSource>();
  if (from == "ngram") {
    source->drafter_ = need(make_ngram_drafter());
    return source;
  }
  const ModelInfo info = need(read_model_info(from));
  if (info.vocab_size != target.vocab_size) {
    usage_error("--draft",
                fmt::format("{} has {} ids, the model {}", from, info.vocab_size, target.vocab_size));
  }
  source->model_.emplace(need(Model::load(from, pool, {.progress = {}, .compute = compute})));
  const Limits limits{.rows = rows * tree,
                      .tokens = tokens_a_row + tokens + 1,
                      .step_tokens = std::max(256, rows * tree * 2),
                      .rollback = tokens + 1};
  const StatePlan plan = need(source->model_->plan(KvChoice(), limits));
  source->store_ = std::make_unique<StateStore>(need(StateStore::create(plan)));
  source->runner_ = std::make_unique<Runner>(need(Runner::create(*source->model_, plan, pool)));
  source->step_model_ = std::make_unique<RunnerModel>(*source->runner_, source->model_->info());
  source->drafter_ = need(make_model_drafter(*source->step_model_, *source->store_, tree));
  return source;
}

nlohmann::ordered_json drafts_json(const DraftStats& drafts) {
  return {{"verify_steps", drafts.rounds},
          {"drafted", drafts.drafted},
          {"accepted", drafts.accepted},
          {"acceptance", drafts.acceptance()},
          {"tokens_per_verify_step", drafts.tokens_per_round()}};
}

std::string drafts_text(const DraftStats& drafts) {
  return fmt::format(
      "windrow: drafts of {} steps: {} of {} tokens accepted ({:.0f} %), {:.2f} tokens a step\n",
      drafts.rounds, drafts.accepted, drafts.drafted, 100 * drafts.acceptance(), drafts.tokens_per_round());
}

}  // namespace windrow::cli
