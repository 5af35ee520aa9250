// Steps: one, or two that are open at once, filled, judged and ended.
#include <algorithm>

#include "contract/machine.h"

namespace windrow::contract {
namespace {

std::vector<StepRow> ask(std::vector<Row>& rows, std::span<const Part> parts) {
  std::vector<StepRow> asked;
  for (const Part& p : parts) {
    StepRow row{.row = &rows.at(static_cast<std::size_t>(p.row)), .length = p.length()};
    row.block = p.kind == Part::Kind::kBlock;
    row.spans = p.spans;
    if (p.kind == Part::Kind::kTree) row.parents = p.parents;
    row.window_starts = p.starts;
    asked.push_back(row);
  }
  return asked;
}

std::vector<int> ids_of(std::span<const Part> parts) {
  std::vector<int> ids;
  for (const Part& p : parts) ids.insert(ids.end(), p.ids.begin(), p.ids.end());
  return ids;
}

// What is expected of `tokens` tokens from one on.
Expected slice(const Expected& whole, std::size_t first, std::size_t tokens) {
  const auto from = static_cast<std::ptrdiff_t>(first), to = static_cast<std::ptrdiff_t>(first + tokens);
  return {whole.group,
          {whole.ids.begin() + from, whole.ids.begin() + to},
          {whole.sights.begin() + from, whole.sights.begin() + to}};
}

}  // namespace

std::vector<int> Machine::owned() const {
  std::vector<int> out;
  for (int g = 0; g < world_->plan.group_count(); g++)
    out.push_back(store_.pool_use(g).owned + store_.delayed_pool_use(g).owned);
  return out;
}

// begin, and peek, which must have said what it does.
Result<Step> Machine::open(std::span<const Part> parts, bool judged) {
  const std::vector<StepRow> asked = ask(rows_, parts);
  if (!judged) return store_.begin(asked);
  const std::vector<int> before = owned();
  const Result<StepPreview> peek = store_.peek(asked);
  JUDGE(peek.ok(), "peek: {}", peek.status().message());
  JUDGE(owned() == before, "peek took pages");
  Result<Step> step = store_.begin(asked);
  JUDGE(peek->status.code() == step.status().code() && peek->status.message() == step.status().message(),
        "peek says '{}', begin '{}'", peek->status.message(), step.status().message());
  const std::vector<int> after = owned();
  for (std::size_t g = 0; g < after.size(); g++) {
    JUDGE(after[g] - before[g] == (step.ok() ? peek->pages[g] : 0),
          "peek promised {} pages of group {}, begin took {}", peek->pages[g], g, after[g] - before[g]);
  }
  if (!step.ok()) return step;
  for (std::size_t i = 0; i < parts.size(); i++) {
    const Part& p = parts[i];
    JUDGE(peek->positions[i] == model_.row(p.row).length(), "peek: position {}", peek->positions[i]);
    const int uncut = peek->uncut[i], at = model_.cut(p, 0);
    JUDGE(p.length() <= uncut || at >= 0 || p.kind == Part::Kind::kBlock,
          "peek: {} tokens are not cut, but only {} would not be", p.length(), uncut);
    JUDGE(p.length() > uncut || at <= 0, "peek: {} tokens are cut at {}", p.length(), at);
  }
  return step;
}

// What must be refused while the step is open, and leave no trace.
void Machine::probe(Step& step, std::span<const Part> parts) {
  const auto refused = [](const Status& s, StatusCode code, const char* what) {
    JUDGE(s.code() == code, "{} in an open step: '{}'", what, s.message());
  };
  std::vector<Keep> keep(parts.size());
  for (std::size_t i = 0; i < parts.size(); i++) {
    const Part& p = parts[i];
    Row& row = rows_[static_cast<std::size_t>(p.row)];
    refused(row.fork().status(), StatusCode::kFailedPrecondition, "fork");
    refused(row.truncate(row.length()), StatusCode::kFailedPrecondition, "truncate");
    refused(store_.copy(row).status(), StatusCode::kFailedPrecondition, "copy");
    const StepRow again[] = {{.row = &row, .length = 0}};
    refused(store_.begin(again).status(), StatusCode::kFailedPrecondition, "begin");
    keep[i] = Keep(p.length() + 1);
    refused(step.resolve(keep), StatusCode::kInvalidArgument, "keeping too many");
    const std::vector<int> no_path{p.length() - 1, 0};
    if (p.length() > 1) {
      keep[i] = Keep(no_path);
      refused(step.resolve(keep),
              p.kind == Part::Kind::kBlock ? StatusCode::kFailedPrecondition : StatusCode::kInvalidArgument,
              "keeping no path");
    }
    keep[i] = Keep(0);
  }
  JUDGE(step.open(), "a refused resolve closed the step");
}

bool Machine::step(const Operation& op, const std::vector<Expected>* expected) {
  const bool judged = expected != nullptr;
  const std::span<const Part> all = op.parts;
  const std::span<const Part> shares[] = {all.first(all.size() - op.apart), all.last(op.apart)};
  std::vector<Step> steps;
  for (const auto& share : shares) {
    if (share.empty() && !steps.empty()) break;
    Result<Step> step = open(share, judged);
    if (!step.ok()) return false;
    steps.push_back(std::move(*step));
  }
  for (std::size_t i = 0; i < steps.size(); i++) {
    const std::vector<int> ids = ids_of(shares[i]);
    for (const int shift : {1, 0}) {
      if (shift == 1 && !op.twice) continue;
      const Status s = append(steps[i], ids, shift);
      JUDGE(s.ok(), "append: {}", s.message());
    }
    recur(steps[i], shares[i], judged);
  }
  std::size_t first = 0;
  for (std::size_t i = 0; i < steps.size(); i++) {
    const std::size_t tokens = static_cast<std::size_t>(steps[i].tokens());
    for (const int layer : world_->layers) {
      if (!judged && !op.hold) break;
      Result<KvRead> read = steps[i].read(layer);
      JUDGE(read.ok(), "read: {}", read.status().message());
      if (judged) {
        const Expected want =
            slice((*expected)[static_cast<std::size_t>(world_->plan.group_of_layer(layer))], first, tokens);
        judge_read(*world_, *read, want);
        judge_attention(*read, want);
        if (op.hold && i == 0 && layer == world_->layers[0])
          model_.held.push_back(std::make_shared<Expected>(want));
      }
      if (op.hold && i == 0 && layer == world_->layers[0]) held_.push_back(*read);
    }
    if (judged && op.twice) probe(steps[i], shares[i]);
    first += tokens;
  }
  for (std::size_t i = steps.size(); i-- > 0;) {
    if (op.ending == Operation::Ending::kAbort) steps[i].abort();
    if (op.ending != Operation::Ending::kResolve) continue;
    std::vector<Keep> keep;
    for (const Part& p : shares[i])
      keep.push_back(!p.branches() && p.kept() % 2 == 0 ? Keep(p.kept()) : Keep(p.path));
    const Status s = steps[i].resolve(keep);
    JUDGE(s.ok(), "resolve: {}", s.message());
  }
  return true;
}

// A row that is destroyed in an open step, which is then resolved or destroyed too.
bool Machine::drop_in_step(const Operation& op) {
  const StepRow asked[] = {{.row = &rows_.at(static_cast<std::size_t>(op.row)), .length = 1}};
  Result<Step> step = store_.begin(asked);
  if (step.ok()) {
    const Status s = append(*step, {token_id(0, 0)}, 0);
    JUDGE(s.ok(), "append: {}", s.message());
    Part part;
    part.row = op.row;
    part.ids = {token_id(0, 0)};
    recur(*step, std::span(&part, 1), false);
  }
  rows_.erase(rows_.begin() + op.row);
  if (step.ok() && op.value == 2) {
    const Status s = step->resolve({1});
    JUDGE(s.ok(), "resolve of a row that is gone: {}", s.message());
  }
  return true;
}

Status Machine::append(Step& step, const std::vector<int>& ids, int shift) const {
  for (const int layer : world_->layers) {
    if (world_->plan.owner_of_layer(layer) != layer) continue;
    std::vector<float> k, v;
    for (const int id : ids) {
      const int other = token_id(id % kMaxTokens, id / kMaxTokens + shift);
      const Stored &key = world_->stored(layer, true, Stage::kFinal, other),
                   &value = world_->stored(layer, false, Stage::kFinal, other);
      k.insert(k.end(), key.raw.begin(), key.raw.end());
      v.insert(v.end(), value.raw.begin(), value.raw.end());
    }
    if (Status s = step.append(layer, k, v); !s.ok()) return s;
  }
  return Status();
}

// The recurrent layers of a step; every token's outputs are those of feeding its ancestors one at a time.
void Machine::recur(Step& step, std::span<const Part> parts, bool judged) const {
  for (std::size_t l = 0; l < world_->recurrent_layers.size(); l++) {
    const int layer = world_->recurrent_layers[l];
    const RecurrentShape& shape = world_->plan.recurrent(world_->plan.recurrent_of_layer(layer)).shape;
    std::vector<float> x, q, k, v, g, beta;
    for (const Part& p : parts) {
      for (const int id : p.ids) {
        const RecurrentToken& t = world_->recurrent_token(layer, id);
        for (const auto& [from, to] :
             {std::pair(&t.x, &x), {&t.q, &q}, {&t.k, &k}, {&t.v, &v}, {&t.g, &g}, {&t.beta, &beta}})
          to->insert(to->end(), from->begin(), from->end());
      }
    }
    std::vector<float> y(v.size());
    Status s = step.convolve(layer, x, world_->conv_weights, Activation::kSilu, x);
    JUDGE(s.ok(), "convolve: {}", s.message());
    s = step.advance(layer, {q, k, v, g, beta}, y);
    JUDGE(s.ok(), "advance: {}", s.message());
    if (!judged) continue;
    std::size_t at = 0;
    for (const Part& p : parts) {
      std::vector<ModelRow::State> states;
      for (int i = 0; i < p.length(); i++, at++) {
        const int parent = p.parent(i);
        states.push_back(parent < 0 ? model_.row(p.row).states[l] : states[static_cast<std::size_t>(parent)]);
        std::vector<float> convolved, outputs;
        model_.advance(states.back(), layer, p.ids[static_cast<std::size_t>(i)], &convolved, &outputs);
        JUDGE(std::memcmp(x.data() + at * convolved.size(), convolved.data(), 4 * convolved.size()) == 0,
              "convolve: layer {} token {} of row {}", layer, i, p.row);
        JUDGE(
            std::memcmp(y.data() + at * outputs.size(), outputs.data(), 4 * shape.delta.value_floats()) == 0,
            "advance: layer {} token {} of row {}", layer, i, p.row);
      }
    }
  }
}

}  // namespace windrow::contract
