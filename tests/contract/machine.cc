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

bool Machine::apply(const Operation& op) {
  const bool refused = model_.refuses(op);
  std::vector<Expected> expected;
  if (op.kind == Operation::Kind::kStep && !refused) expected = model_.expected(op);
  const bool done = engine(op, &expected);
  // Reads that are kept hold pages nobody planned for.
  JUDGE(done == !refused || (!done && !held_.empty()), "{}: {}, expected the other", op.text(),
        done ? "done" : "refused");
  if (done) {
    model_.apply(op, expected, true);
  }
  if (op.kind == Operation::Kind::kAlone) alone(op);
  judge_rest();
  return done;
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
    case Kind::kDrop:
      if (op.value > 0) return drop_in_step(op);
      rows_.erase(rows_.begin() + op.row);
      return true;
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

}  // namespace windrow::contract
