// Operations, and what they promise: token lists, retention, and one lockstep oracle a group.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "contract/world.h"

namespace windrow::contract {

// One row's part of a step, with the tokens spelled out.
struct Part {
  enum class Kind { kLinear, kTree, kBlock, kSpans };
  int row = 0;
  Kind kind = Kind::kLinear;
  std::vector<int> ids;
  std::vector<int> parents;      // of a tree
  std::vector<TokenSpan> spans;  // of spans
  std::vector<int> starts;       // window starts, or none
  std::vector<int> path;         // slots kept, in order

  int length() const { return static_cast<int>(ids.size()); }
  int kept() const { return static_cast<int>(path.size()); }
  int parent(int i) const { return kind == Kind::kTree ? parents[static_cast<std::size_t>(i)] : i - 1; }
  bool branches() const;  // a tree that is no line
};

struct Operation {
  enum class Kind {
    kNothing,
    kNewRow,
    kFork,
    kDrop,
    kTruncate,
    kConvert,
    kStep,
    kAdopt,
    kCopy,
    kRelease,
    kAlone
  };
  enum class Ending { kResolve, kAbort, kDestroy };
  Kind kind = Kind::kNothing;
  int row = 0;
  int value = 0;  // truncate: the length; adopt, copy: 1 through the other store; alone: step length
  std::vector<Part> parts = {}; // of a step
  Ending ending = Ending::kResolve;
  bool hold = false;   // keeps a read of the step
  bool twice = false;  // appends other numbers first

  std::string text() const;
};

// What one query sees.
struct Sight {
  int position = 0, begin = 0, end = 0;
  std::vector<int> positions, ids;
  std::vector<Stage> stages;
};
// What the tokens of a step see in one group, and what they are.
struct Expected {
  int group = 0;
  std::vector<int> ids;  // of the queries
  std::vector<Sight> sights;
};

struct ModelRow {
  struct Group {
    bool early = false;
    int converted_at = 0;  // positions below were stored by the delayed codecs first
    int retained = 0;      // lowest position held, sinks aside
    int floor = 0;         // no cut below
  };
  struct State {
    std::vector<float> state, tail;
  };
  std::vector<int> ids;
  int color = 0;
  std::vector<Group> groups;
  std::vector<State> states;  // of each recurrent layer

  int length() const { return static_cast<int>(ids.size()); }
};

class Model {
 public:
  explicit Model(World& world);

  World& world() const { return *world_; }
  const std::vector<ModelRow>& rows() const { return rows_; }
  int row_count() const { return static_cast<int>(rows_.size()); }
  const ModelRow& row(int r) const { return rows_.at(static_cast<std::size_t>(r)); }
  std::vector<std::shared_ptr<const Expected>> held;  // of the reads kept

  // Whether the operation must be refused.
  bool refuses(const Operation& op) const;
  // Where a part of a step passes into the final codecs of a group, in tokens; -1: nowhere.
  int cut(const Part& part, int group) const;
  int minimum_length(int r) const;
  // First position of Row::extract behind the sinks, 0 when they touch.
  int extract_begin(int r, int group) const;
  Stage stage(int r, int group, int position) const;
  std::vector<Expected> expected(const Operation& step) const;

  // Carries out an operation that is not refused; `expected` is that of a step. With `judged` the oracles
  // must show what is expected of all queries they know of, and hold what the rows hold.
  void apply(const Operation& op, const std::vector<Expected>& expected, bool judged);
  // The state after one more token, and its outputs.
  void advance(ModelRow::State& state, int layer, int id, std::vector<float>* convolved,
               std::vector<float>* y) const;

 private:
  Sight sight(const Part& part, int group, int i) const;
  int retention(int group, const StatePlan& plan, int length) const;
  void step(const Operation& op, const std::vector<Expected>& expected, bool judged);
  void step_oracle(const Operation& op, const Expected& expected, bool judged);
  void transfer(const Operation& op);
  void judge_rest() const;
  ModelRow& at(int r) { return rows_.at(static_cast<std::size_t>(r)); }

  World* world_;
  std::vector<ModelRow> rows_;
  std::vector<oracle::Lockstep> oracles_;  // of each group; judges its first layer
  int births_ = 0;
};

}  // namespace windrow::contract
