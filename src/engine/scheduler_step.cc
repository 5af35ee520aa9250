// One step: which tokens it runs, the forward pass, and what its logits choose.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/scheduler_impl.h"

namespace windrow {

// A token of every row that decodes, drafts, then prompts by turns, as far as the budget goes.
std::vector<Scheduler::Impl::Part> Scheduler::Impl::choose_parts() {
  std::vector<Part> parts;
  int budget = options.step_tokens;
  const std::size_t n = running.size();
  turn = n == 0 ? 0 : (turn + 1) % n;
  int prompts = 0;
  for (std::size_t i = 0; i < n; i++) {
    Entry* e = running[(turn + i) % n];
    if (!e->sequence.decoding()) {
      prompts++;
    } else if (budget > 0) {
      parts.push_back({.entry = e, .fresh = 1, .wanted = e->sequence.left() > 0});
      budget--;
    }
  }
  int for_drafts = prompts > 0 ? budget / 2 : budget;
  budget -= for_drafts;
  add_drafts(parts, for_drafts);
  budget += for_drafts;
  for (std::size_t i = 0; i < n && prompts > 0; i++) {
    Entry* e = running[(turn + i) % n];
    if (e->sequence.decoding()) continue;
    const int unfed = static_cast<int>(e->sequence.unfed());
    // What others would not use is not held back for them.
    const int share = prompts == 1 ? budget : std::min(options.prefill_chunk, budget);
    prompts--;
    if (share == 0) continue;
    const int fresh = std::min(unfed, share);
    parts.push_back({.entry = e, .fresh = fresh, .wanted = fresh == unfed && e->sequence.left() > 0});
    budget -= fresh;
  }
  return parts;
}

void Scheduler::Impl::add_drafts(std::vector<Part>& parts, int& budget) {
  if (options.drafter == nullptr || budget <= 0) return;
  const StatePlan& plan = store.plan();
  std::vector<DraftRequest> requests;
  std::vector<std::size_t> asked;
  for (std::size_t i = 0; i < parts.size() && budget > 0; i++) {
    Entry& e = *parts[i].entry;
    const Request& r = e.sequence.request();
    int most = r.draft_tokens >= 0 ? r.draft_tokens : options.draft_tokens;
    most = std::min({most, budget, e.sequence.left() - 1});
    // Of longer parts recurrent states can keep all or nothing.
    if (plan.recurrent_count() > 0) most = std::min(most, plan.limits().verify_tokens - 1);
    const DraftLength::Wish wish =
        e.draft_length.next(cost, static_cast<int>(parts.size()), std::max(most, 0));
    if (wish.most == 0) continue;
    requests.push_back({e.id, e.sequence.tokens(), wish.most, wish.least});
    asked.push_back(i);
    budget -= wish.most;
  }
  if (requests.empty()) return;
  std::vector<Draft> drafts(requests.size());
  const double start = options.cost_clock();
  const bool ok = options.drafter->propose(requests, drafts).ok();
  const double seconds = options.cost_clock() - start;
  const double spent = cost.price_of(seconds) / static_cast<double>(requests.size());
  int drafted = 0;
  for (std::size_t k = 0; k < requests.size(); k++) {
    const std::size_t size = drafts[k].tokens.size();
    parts[asked[k]].asked = true;
    parts[asked[k]].spent = spent;
    const bool tree = !drafts[k].parents.empty();
    const bool sound =
        ok && size <= static_cast<std::size_t>(requests[k].most) &&
        (drafts[k].chances.empty() || drafts[k].chances.size() == size) &&
        (!tree || (drafts[k].parents.size() == size && static_cast<int>(size) < plan.limits().tree_nodes)) &&
        std::ranges::all_of(drafts[k].tokens,
                            [&](std::int32_t id) { return id >= 0 && id < model.vocab_size(); });
    if (!sound) {
      budget += requests[k].most;
      continue;
    }
    budget += requests[k].most - static_cast<int>(size);
    drafted += static_cast<int>(size);
    parts[asked[k]].draft = std::move(drafts[k]);
  }
  if (drafted > 0) cost.add_draft(drafted, seconds);
}

// Runs the parts in one step of the store.
Status Scheduler::Impl::run(std::vector<Part>& parts, std::vector<Event>& events) {
  std::vector<StepRow> rows;
  std::vector<std::int32_t> ids, wanted;
  for (Part& p : parts) {
    const std::span<const std::int32_t> tokens = p.entry->sequence.tokens();
    const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(p.entry->sequence.fed());
    ids.insert(ids.end(), from, from + p.fresh);
    ids.insert(ids.end(), p.draft.tokens.begin(), p.draft.tokens.end());
    const int length = p.fresh + static_cast<int>(p.draft.tokens.size());
    if (p.wanted) {
      p.first_logits = static_cast<int>(wanted.size());
      const int last = static_cast<int>(ids.size());
      for (int t = last - length + p.fresh - 1; t < last; t++) wanted.push_back(t);
    }
    if (!p.draft.parents.empty()) {
      for (int i = 0; i < p.fresh; i++) p.parents.push_back(i - 1);
      for (const int parent : p.draft.parents) p.parents.push_back(p.fresh + parent);
    }
    rows.push_back({.row = &p.entry->row, .length = length, .parents = p.parents});
  }
  const auto vocab = static_cast<std::size_t>(model.vocab_size());
  logits.resize(wanted.size() * vocab);
  const double start = options.cost_clock();
  Result<Step> step = store.begin(rows);
  Status failed = step.ok() ? model.forward(*step, ids, wanted, logits) : step.status();
  if (failed.ok()) {
    const std::int64_t emitted = stats.decode_tokens;
    for (Part& p : parts) walk(p, static_cast<int>(parts.size()), events);
    std::vector<Keep> keeps;
    for (const Part& p : parts) {
      keeps.push_back(p.parents.empty() ? Keep(static_cast<int>(p.path.size()))
                                        : Keep(std::span<const int>(p.path)));
    }
    failed = step->resolve(keeps);
    stats.steps++;
    stats.row_steps += static_cast<std::int64_t>(parts.size());
    // The tokens of prompts are cheaper, and their steps tell nothing of others.
    if (std::ranges::all_of(parts, [](const Part& p) { return p.wanted && p.fresh == 1; })) {
      cost.add(static_cast<double>(ids.size()), options.cost_clock() - start,
               static_cast<double>(stats.decode_tokens - emitted));
    }
  }
  // Texts that ended have their rows dropped now that the step is over.
  for (Part& p : parts) {
    Entry* e = p.entry;
    if (!failed.ok()) {
      finish(e, FinishReason::kFailed, events, failed);
      continue;
    }
    e->sequence.add_fed(p.path.size());
    if (e->ended) finish(e, *e->ended, events, std::move(e->error));
  }
  return failed;
}

// One chosen token. True if the text goes on.
bool Scheduler::Impl::emit(Part& part, int node, std::vector<Event>& events, std::int32_t& token) {
  Entry& e = *part.entry;
  const auto vocab = static_cast<std::size_t>(model.vocab_size());
  const std::span<float> row =
      std::span(logits).subspan(static_cast<std::size_t>(part.first_logits + node) * vocab, vocab);
  std::vector<float> raw;
  if (e.sequence.request().logprobs >= 0) raw.assign(row.begin(), row.end());
  Result<std::int32_t> chosen = e.sequence.choose(row);
  if (!chosen.ok()) {
    e.ended = FinishReason::kFailed;
    e.error = chosen.status();
    return false;
  }
  token = *chosen;
  bool taken = false;
  e.ended = e.sequence.take(token, taken);
  if (taken) {
    Event event{.kind = Event::Kind::kToken, .request = e.id, .token = token};
    if (!raw.empty()) {
      event.logprob = logprob_of(raw, token, e.sequence.request().logprobs, event.best).logprob;
    }
    events.push_back(std::move(event));
    stats.decode_tokens++;
  }
  return !e.ended;
}

void Scheduler::Impl::count_prefill(const Part& part, std::vector<Event>& events) {
  Entry& e = *part.entry;
  const std::size_t prompt = e.sequence.request().prompt.size(), fed = e.sequence.fed();
  if (fed >= prompt) return;
  const int ran = std::min(part.fresh, static_cast<int>(prompt - fed)), done = static_cast<int>(fed) + ran;
  stats.prefill_tokens += ran;
  events.push_back({.kind = Event::Kind::kPrefill, .request = e.id, .done = done});
  if (e.sequence.left() == 0 && done == static_cast<int>(prompt)) e.ended = FinishReason::kLength;
}

// Follows the draft as long as the model chooses what it says. Node 0 of the logits is the last fresh token,
// node i + 1 the draft's token i.
void Scheduler::Impl::walk(Part& part, int rows, std::vector<Event>& events) {
  part.path.resize(static_cast<std::size_t>(part.fresh));
  std::iota(part.path.begin(), part.path.end(), 0);
  count_prefill(part, events);
  if (!part.wanted) return;
  const int drafted = static_cast<int>(part.draft.tokens.size());
  int at = -1;  // the draft's token that was taken in last; -1: none yet
  bool rejected = false;
  for (std::int32_t token = 0; emit(part, at + 1, events, token);) {
    int next = drafted;
    bool has_child = false;
    for (int i = 0; i < drafted && next == drafted; i++) {
      const int parent = part.draft.parents.empty() ? i - 1 : part.draft.parents[static_cast<std::size_t>(i)];
      if (parent != at) continue;
      has_child = true;
      if (part.draft.tokens[static_cast<std::size_t>(i)] == token) next = i;
    }
    if (next == drafted) {
      rejected = has_child;
      break;
    }
    at = next;
    part.path.push_back(part.fresh + at);
    part.accepted++;
  }
  if (!part.asked) return;
  part.entry->draft_length.add(drafted, part.accepted, rejected, part.draft.chances,
                               part.spent + cost.price_of(cost.of(rows + drafted) - cost.of(rows)));
  if (drafted == 0) return;
  stats.drafts.rounds++;
  stats.drafts.drafted += drafted;
  stats.drafts.accepted += part.accepted;
}

}  // namespace windrow
