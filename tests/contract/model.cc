#include "contract/model.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace windrow::contract {

bool Part::branches() const {
  for (int i = 0; i < length(); i++) {
    if (parent(i) != i - 1) return true;
  }
  return false;
}

std::string Operation::text() const {
  static const char* const names[] = {"nothing", "new_row", "fork", "drop",    "truncate", "convert",
                                      "step",    "adopt",   "copy", "release", "alone"};
  std::string out = names[static_cast<int>(kind)];
  if (kind != Kind::kStep) return out + fmt::format(" row {} value {}", row, value);
  for (const Part& p : parts) {
    static const char* const kinds[] = {"", " tree", " block", " spans"};
    out += fmt::format(" [row {}{} ids {} keep {}", p.row, kinds[static_cast<int>(p.kind)], p.ids, p.path);
    if (p.kind == Part::Kind::kTree) out += fmt::format(" parents {}", p.parents);
    for (const TokenSpan& s : p.spans) out += fmt::format(" {}..{}", s.begin, s.end);
    if (!p.starts.empty()) out += fmt::format(" starts {}", p.starts);
    out += ']';
  }
  if (ending != Ending::kResolve) out += ending == Ending::kAbort ? " abort" : " destroy";
  return out + (hold ? " hold" : "") + (twice ? " twice" : "");
}

Model::Model(World& world) : world_(&world) {
  for (int g = 0; g < world.plan.group_count(); g++) {
    const AttentionGroup& group = world.plan.group(g);
    oracles_.emplace_back(oracle::Lockstep::Shape{group.kv_heads, group.head_dim, group.value_dim},
                          group.window, group.sinks);
  }
}

bool Model::refuses(const Operation& op) const {
  using Kind = Operation::Kind;
  const Limits& limits = world_->plan.limits();
  switch (op.kind) {
    case Kind::kNewRow:
    case Kind::kFork:
    case Kind::kAdopt:
    case Kind::kCopy: return row_count() >= limits.rows;
    case Kind::kTruncate: return op.value < minimum_length(op.row) || op.value > row(op.row).length();
    case Kind::kConvert: return !world_->setup.delayed;
    case Kind::kStep: break;
    default: return false;
  }
  int total = 0;
  for (const Part& p : op.parts) {
    total += p.length();
    if (row(p.row).length() + p.length() > limits.tokens) return true;
    if (p.kind == Part::Kind::kTree && p.length() > limits.tree_nodes) return true;
    if (p.branches() && world_->plan.recurrent_count() > 0 && p.length() > limits.verify_tokens) return true;
    for (int g = 0; g < world_->plan.group_count(); g++) {
      const int at = cut(p, g);
      if (at >= 0 && p.branches()) return true;
      for (const TokenSpan& s : p.spans) {
        if (s.begin < at && at < s.end) return true;
      }
    }
  }
  return total > limits.step_tokens;
}

int Model::cut(const Part& part, int group) const {
  const ModelRow& its = row(part.row);
  if (!its.groups[static_cast<std::size_t>(group)].early || part.kind == Part::Kind::kBlock) return -1;
  const int start = world_->plan.group(group).delayed->start;
  return start < its.length() + part.length() ? start - its.length() : -1;
}

int Model::minimum_length(int r) const {
  int lowest = world_->plan.recurrent_count() > 0 ? row(r).length() : 0;
  for (int g = 0; g < world_->plan.group_count(); g++) {
    const ModelRow::Group& its = row(r).groups[static_cast<std::size_t>(g)];
    lowest = std::max(lowest, its.floor);
    if (its.retained > world_->plan.group(g).sinks)
      lowest = std::max(lowest, its.retained + world_->plan.group(g).window - 1);
  }
  return lowest;
}

int Model::extract_begin(int r, int group) const {
  const AttentionGroup& g = world_->plan.group(group);
  const int length = row(r).length(), retained = row(r).groups[static_cast<std::size_t>(group)].retained;
  const int begin = std::max(retained <= g.sinks ? 0 : retained, length - std::min(length, g.window));
  return begin <= g.sinks ? 0 : begin;
}

Stage Model::stage(int r, int group, int position) const {
  const ModelRow::Group& its = row(r).groups[static_cast<std::size_t>(group)];
  return its.early ? Stage::kEarly : position < its.converted_at ? Stage::kTwice : Stage::kFinal;
}

Sight Model::sight(const Part& part, int group, int i) const {
  const AttentionGroup& g = world_->plan.group(group);
  const int length = row(part.row).length(), before = g.window - 1;
  std::vector<int> chain;  // slots of the tokens up to this one
  for (int n = i; n >= 0; n = part.parent(n)) chain.push_back(n);
  std::ranges::reverse(chain);
  Sight s;
  s.position = length + static_cast<int>(chain.size()) - 1;
  s.begin = std::max(0, s.position - before);
  s.end = s.position + 1;
  if (part.kind == Part::Kind::kBlock) {
    s.begin = std::max(0, length - before);
    s.end = length + part.length();
  }
  for (const TokenSpan& span : part.spans) {
    if (i < span.begin || i >= span.end) continue;
    s.begin = std::min(s.begin, length + span.begin);
    s.end = length + span.end;
  }
  if (!part.starts.empty())
    s.begin = std::max(s.begin, std::min(s.position, part.starts[static_cast<std::size_t>(i)]));
  const int at = cut(part, group), start = length + at;
  for (int p = 0; p < s.end; p++) {
    if (p >= g.sinks && p < s.begin) continue;
    s.positions.push_back(p);
    if (p < length) {
      s.ids.push_back(row(part.row).ids[static_cast<std::size_t>(p)]);
    } else if (part.kind == Part::Kind::kTree) {
      s.ids.push_back(part.ids[static_cast<std::size_t>(chain[static_cast<std::size_t>(p - length)])]);
    } else {
      s.ids.push_back(part.ids[static_cast<std::size_t>(p - length)]);
    }
    s.stages.push_back(at < 0 || i < at ? stage(part.row, group, p)
                       : p < start      ? Stage::kTwice
                                        : Stage::kFinal);
  }
  return s;
}

std::vector<Expected> Model::expected(const Operation& op) const {
  std::vector<Expected> out;
  for (int g = 0; g < world_->plan.group_count(); g++) {
    Expected e;
    e.group = g;
    for (const Part& p : op.parts) {
      e.ids.insert(e.ids.end(), p.ids.begin(), p.ids.end());
      for (int i = 0; i < p.length(); i++) e.sights.push_back(sight(p, g, i));
    }
    out.push_back(std::move(e));
  }
  return out;
}

int Model::retention(int group, const StatePlan& plan, int length) const {
  const int window = plan.group(group).window;
  if (window == kFullWindow) return 0;
  return std::max(0, length - (window - 1 + std::max(1, plan.limits().rollback)));
}

void Model::advance(ModelRow::State& s, int layer, int id, std::vector<float>* convolved,
                    std::vector<float>* y) const {
  const RecurrentShape& shape = world_->plan.recurrent(world_->plan.recurrent_of_layer(layer)).shape;
  const RecurrentToken& token = world_->recurrent_token(layer, id);
  if (convolved != nullptr) {
    convolved->resize(shape.conv.input_floats());
    causal_conv_scalar(shape.conv, s.tail.data(), token.x.data(), 1, world_->conv_weights.data(),
                       Activation::kSilu, convolved->data());
  }
  advance_conv_tail(shape.conv, s.tail.data(), token.x.data(), 1, s.tail.data());
  std::vector<float> outputs(shape.delta.value_floats());
  gated_delta_advance_scalar(shape.delta, token.tokens(), {0, shape.delta.value_heads}, s.state.data(),
                             s.state.data(), outputs.data());
  if (y != nullptr) *y = std::move(outputs);
}

void Model::apply(const Operation& op, const std::vector<Expected>& expected, bool judged) {
  using Kind = Operation::Kind;
  const int r = op.row;
  switch (op.kind) {
    case Kind::kNewRow: {
      ModelRow fresh;
      fresh.color = births_++ * 2;
      for (int g = 0; g < world_->plan.group_count(); g++) {
        const bool early = world_->plan.group(g).delayed.has_value();
        fresh.groups.push_back({.early = early});
        oracles_[static_cast<std::size_t>(g)].add_row(world_->hooks(g, early));
      }
      for (const int layer : world_->recurrent_layers) {
        const RecurrentShape& shape = world_->plan.recurrent(world_->plan.recurrent_of_layer(layer)).shape;
        fresh.states.push_back(
            {std::vector<float>(shape.delta.state_floats()), std::vector<float>(shape.conv.tail_floats())});
      }
      rows_.push_back(std::move(fresh));
      break;
    }
    case Kind::kFork:
      rows_.push_back(ModelRow(row(r)));
      rows_.back().color += 3;
      for (auto& oracle : oracles_) oracle.fork(r);
      break;
    case Kind::kDrop:
      rows_.erase(rows_.begin() + r);
      for (auto& oracle : oracles_) oracle.drop(r);
      break;
    case Kind::kTruncate:
      if (op.value < row(r).length()) at(r).color++;
      at(r).ids.resize(static_cast<std::size_t>(op.value));
      for (std::size_t g = 0; g < oracles_.size(); g++) {
        oracles_[g].truncate(r, op.value);
        at(r).groups[g].converted_at = std::min(at(r).groups[g].converted_at, op.value);
      }
      break;
    case Kind::kConvert:
      if (!row(r).groups[0].early) break;
      at(r).groups[0].early = false;
      at(r).groups[0].converted_at = at(r).groups[0].floor = row(r).length();
      oracles_[0].convert(r, world_->hooks(0, false));
      break;
    case Kind::kStep: step(op, expected, judged); break;
    case Kind::kAdopt:
    case Kind::kCopy: transfer(op); break;
    case Kind::kRelease: held.clear(); break;
    default: break;
  }
  if (judged) judge_rest();
}

// A row that left the store and came back: through the other one, which may keep more or less.
void Model::transfer(const Operation& op) {
  rows_.push_back(ModelRow(row(op.row)));
  rows_.back().color += 5;
  for (auto& oracle : oracles_) oracle.fork(op.row);
  const int fresh = row_count() - 1, length = row(fresh).length();
  std::vector<const StatePlan*> plans{&world_->plan};
  if (op.value == 1) plans.insert(plans.begin(), &world_->other_plan);
  for (const StatePlan* plan : plans) {
    for (int g = 0; g < plan->group_count(); g++) {
      const int begin = extract_begin(fresh, g);
      ModelRow::Group& its = at(fresh).groups[static_cast<std::size_t>(g)];
      const bool adopt = op.kind == Operation::Kind::kAdopt;
      its.retained = std::max(adopt ? begin : its.retained, retention(g, *plan, length));
      if (adopt && plan->group(g).delayed && !its.early) its.floor = length;  // records don't say since when
    }
  }
}

void Model::step(const Operation& op, const std::vector<Expected>& expected, bool judged) {
  for (std::size_t g = 0; g < oracles_.size(); g++) step_oracle(op, expected[g], judged);
  for (const Part& part : op.parts) {
    ModelRow& its = at(part.row);
    const bool resolved = op.ending == Operation::Ending::kResolve;
    if (!resolved || part.kept() < part.length()) its.color++;
    if (!resolved || part.kept() == 0) continue;
    const int length = its.length() + part.kept();
    for (int g = 0; g < world_->plan.group_count(); g++) {
      ModelRow::Group& group = its.groups[static_cast<std::size_t>(g)];
      if (const int at = cut(part, g); at >= 0 && part.kept() > at) {
        group.early = false;
        group.converted_at = group.floor = its.length() + at;
      }
      group.retained = std::max(group.retained, retention(g, world_->plan, length));
    }
    for (const int slot : part.path) {
      const int id = part.ids[static_cast<std::size_t>(slot)];
      its.ids.push_back(id);
      for (std::size_t l = 0; l < its.states.size(); l++)
        advance(its.states[l], world_->recurrent_layers[l], id, nullptr, nullptr);
    }
  }
}

}  // namespace windrow::contract
