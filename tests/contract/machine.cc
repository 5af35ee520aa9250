#include "contract/machine.h"

#include <algorithm>

namespace windrow::contract {
namespace {

StateStore make_store(const StatePlan& plan) {
  Result<StateStore> store = StateStore::create(plan, {.poison = true});
  JUDGE(store.ok(), "store: {}", store.status().message());
  return std::move(*store);
}

}  // namespace

Machine::Machine(World& world) : world_(&world), store_(make_store(world.plan)), model_(world) {
  JUDGE(store_.bytes() == world.plan.bytes(), "the store maps {} bytes, the plan says {}", store_.bytes(),
        world.plan.bytes());
}

void Machine::apply(const Operation& op) {
  world_->operations++;
  const bool refused = model_.refuses(op);
  std::vector<Expected> expected;
  if (op.kind == Operation::Kind::kStep && !refused) expected = model_.expected(op);
  const bool done = engine(op, &expected);
  // Reads that are kept hold pages nobody planned for.
  JUDGE(done == !refused || (!done && !held_.empty()), "{}: {}, expected the other", op.text(),
        done ? "done" : "refused");
  if (done) {
    if (op.kind == Operation::Kind::kStep && op.hold)
      model_.held.push_back(std::make_shared<Expected>(std::move(expected[0])));
    if (op.kind == Operation::Kind::kStep && op.hold) expected[0] = *model_.held.back();
    model_.apply(op, expected, true);
  }
  if (op.kind == Operation::Kind::kAlone) alone(op);
  judge_rest();
}

void Machine::replay(const Operation& op) { engine(op, nullptr); }

bool Machine::engine(const Operation& op, const std::vector<Expected>* expected) {
  using Kind = Operation::Kind;
  const auto r = static_cast<std::size_t>(op.row);
  const auto add = [&](Result<Row> row) {
    if (row.ok()) {
      rows_.push_back(std::move(*row));
      return true;
    }
    JUDGE(row.status().code() == StatusCode::kResourceExhausted, "{}", row.status().message());
    return false;
  };
  switch (op.kind) {
    case Kind::kNewRow: return add(store_.new_row());
    case Kind::kFork: return add(rows_.at(r).fork());
    case Kind::kDrop: rows_.erase(rows_.begin() + op.row); return true;
    case Kind::kTruncate: {
      const int lowest = rows_.at(r).minimum_length();
      const Status s = rows_[r].truncate(op.value);
      if (!s.ok() && op.value >= 0 && op.value < lowest) {
        JUDGE(s.code() == StatusCode::kFailedPrecondition &&
                  s.message().find(std::to_string(lowest)) != std::string::npos,
              "truncate: {}", s.message());
      }
      return s.ok();
    }
    case Kind::kConvert: {
      const Status s = rows_.at(r).convert(0);
      JUDGE(s.ok() || s.code() == StatusCode::kInvalidArgument || s.code() == StatusCode::kResourceExhausted,
            "convert: {}", s.message());
      return s.ok();
    }
    case Kind::kStep: return step(op, expected);
    case Kind::kAdopt:
    case Kind::kCopy: return transfer(op);
    case Kind::kRelease: held_.clear(); return true;
    default: return true;
  }
}

bool Machine::transfer(const Operation& op) {
  const auto r = static_cast<std::size_t>(op.row);
  const auto pass = [&](StateStore& to, const Row& from) -> Result<Row> {
    if (op.kind == Operation::Kind::kCopy) return to.copy(from);
    Result<RowRecords> records = from.extract();
    JUDGE(records.ok(), "extract: {}", records.status().message());
    return to.adopt(*records);
  };
  std::vector<Row> between;
  if (op.value == 1) {
    if (!other_) other_ = make_store(world_->other_plan);
    Result<Row> there = pass(*other_, rows_.at(r));
    JUDGE(there.ok(), "to the other store: {}", there.status().message());
    between.push_back(std::move(*there));
  }
  Result<Row> row = pass(store_, between.empty() ? rows_.at(r) : between[0]);
  if (row.ok()) rows_.push_back(std::move(*row));
  JUDGE(row.ok() || row.status().code() == StatusCode::kResourceExhausted, "{}", row.status().message());
  between.clear();
  if (op.value == 1) {
    const PoolUse use = other_->pool_use(0);
    JUDGE(use.owned == 0 && other_->live_rows() == 0 && other_->check().ok(),
          "the other store keeps {} pages", use.owned);
  }
  return row.ok();
}

std::vector<int> Machine::owned() const {
  std::vector<int> out;
  for (int g = 0; g < world_->plan.group_count(); g++)
    out.push_back(store_.pool_use(g).owned + store_.delayed_pool_use(g).owned);
  return out;
}

void Machine::judge_preview(const Operation& op, const std::vector<StepRow>& asked, const Result<Step>& step,
                            const std::vector<int>& before) const {
  // peek is asked before begin in step(); here only what begin did is compared.
  if (!step.ok()) {
    JUDGE(owned() == before, "{}: a refused begin took pages", op.text());
    return;
  }
  JUDGE(step->rows() == static_cast<int>(asked.size()), "step of {} rows", step->rows());
}

bool Machine::step(const Operation& op, const std::vector<Expected>* expected) {
  std::vector<StepRow> asked;
  std::vector<int> ids;
  for (const Part& p : op.parts) {
    StepRow row{.row = &rows_.at(static_cast<std::size_t>(p.row)), .length = p.length()};
    row.block = p.kind == Part::Kind::kBlock;
    row.spans = p.spans;
    if (p.kind == Part::Kind::kTree) row.parents = p.parents;
    row.window_starts = p.starts;
    asked.push_back(row);
    ids.insert(ids.end(), p.ids.begin(), p.ids.end());
  }
  const bool judged = expected != nullptr;
  std::vector<int> before;
  std::optional<StepPreview> preview;
  if (judged) {
    before = owned();
    Result<StepPreview> peek = store_.peek(asked);
    JUDGE(peek.ok(), "peek: {}", peek.status().message());
    preview = std::move(*peek);
  }
  Result<Step> step = store_.begin(asked);
  if (judged) {
    JUDGE(preview->status.code() == step.status().code() &&
              preview->status.message() == step.status().message(),
          "peek says '{}', begin '{}'", preview->status.message(), step.status().message());
    judge_preview(op, asked, step, before);
  }
  if (!step.ok()) return false;
  if (judged) {
    const std::vector<int> after = owned();
    for (std::size_t g = 0; g < after.size(); g++)
      JUDGE(after[g] - before[g] == preview->pages[g], "peek promised {} pages of group {}, begin took {}",
            preview->pages[g], g, after[g] - before[g]);
    for (std::size_t i = 0; i < op.parts.size(); i++) {
      const Part& p = op.parts[i];
      JUDGE(preview->positions[i] == model_.row(p.row).length(), "peek: position {}", preview->positions[i]);
      JUDGE(p.length() <= preview->uncut[i] || model_.cut(p, 0) >= 0 || p.kind == Part::Kind::kBlock,
            "peek: {} tokens are not cut, but only {} would not be", p.length(), preview->uncut[i]);
      JUDGE(p.length() > preview->uncut[i] || model_.cut(p, 0) <= 0, "peek: {} tokens are cut at {}",
            p.length(), model_.cut(p, 0));
    }
  }
  if (op.twice) {
    const Status s = append(*step, ids, 1);
    JUDGE(s.ok(), "append: {}", s.message());
  }
  const Status appended = append(*step, ids, 0);
  JUDGE(appended.ok(), "append: {}", appended.message());
  recur(*step, op, judged);
  for (const int layer : world_->layers) {
    if (!judged && !op.hold) break;
    Result<KvRead> read = step->read(layer);
    JUDGE(read.ok(), "read: {}", read.status().message());
    const int g = world_->plan.group_of_layer(layer);
    if (judged) {
      judge_read(*world_, *read, (*expected)[static_cast<std::size_t>(g)]);
      judge_attention(*read, (*expected)[static_cast<std::size_t>(g)]);
    }
    if (op.hold && layer == world_->layers[0]) held_.push_back(*read);
  }
  if (op.ending == Operation::Ending::kAbort) step->abort();
  if (op.ending == Operation::Ending::kResolve) {
    std::vector<Keep> keep;
    for (const Part& p : op.parts) {
      const bool first = !p.branches();  // half the time by count
      keep.push_back(first && p.kept() % 2 == 0 ? Keep(p.kept()) : Keep(p.path));
    }
    const Status s = step->resolve(keep);
    JUDGE(s.ok(), "resolve: {}", s.message());
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
void Machine::recur(Step& step, const Operation& op, bool judged) const {
  for (std::size_t l = 0; l < world_->recurrent_layers.size(); l++) {
    const int layer = world_->recurrent_layers[l];
    const RecurrentShape& shape = world_->plan.recurrent(world_->plan.recurrent_of_layer(layer)).shape;
    std::vector<float> x, q, k, v, g, beta;
    for (const Part& p : op.parts) {
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
    for (const Part& p : op.parts) {
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
