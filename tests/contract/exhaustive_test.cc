// Every program of up to six operations out of small alphabets, at windows 3 to 5 and pages of two positions:
// what happens at the edges of pages, windows, sinks and starts, in every order (invariants 1 to 5 and 7).
//
// A program's first operations were judged as programs of their own, so they are only carried out again; the
// last one is judged.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>

#include "contract/draw.h"
#include "contract/machine.h"
#include "support/sanitized.h"

namespace windrow::contract {
namespace {

constexpr int kLength = windrow::testing::kSanitized ? 4 : 6;

using Kind = Operation::Kind;
using Letter = std::function<Operation(const Model&)>;  // kNothing: not possible now

class Explorer {
 public:
  Explorer(World& world, std::vector<Letter> alphabet) : world_(world), alphabet_(std::move(alphabet)) {}

  void run() {
    auto machine = std::make_unique<Machine>(world_);
    const Operation first{.kind = Kind::kNewRow};
    machine->apply(first);
    program_.push_back(first);
    explore(std::move(machine), 0);
  }
  long programs() const { return programs_; }

 private:
  void explore(std::unique_ptr<Machine> machine, int depth) {
    if (depth == kLength) return named([&] { machine->finish(); });
    const Model before = machine->model();
    for (const Letter& letter : alphabet_) {
      const Operation op = letter(before);
      if (op.kind == Kind::kNothing) continue;
      if (machine == nullptr) {  // the one at hand went on with an earlier letter
        machine = std::make_unique<Machine>(world_);
        for (const Operation& done : program_) machine->replay(done);
        machine->set_model(before);
      }
      program_.push_back(op);
      programs_++;
      named([&] { machine->apply(op); });
      explore(std::move(machine), depth + 1);
      program_.pop_back();
    }
  }

  // What goes wrong says in which program.
  template <class Action>
  void named(const Action& action) {
    try {
      action();
    } catch (const Disagreement& e) {
      std::string text = world_.setup.text();
      for (const Operation& op : program_) text += "\n  " + op.text();
      throw std::runtime_error(text + "\n  " + e.what());
    }
  }

  World& world_;
  std::vector<Letter> alphabet_;
  std::vector<Operation> program_;
  long programs_ = 0;
};

// A step of one row; row -1 is the last.
Letter step(int row, int length, int keep) {
  return [=](const Model& m) {
    Operation op{.kind = Kind::kStep};
    op.parts.push_back(make_part(m, row < 0 ? m.row_count() - 1 : row, length));
    keep_first(op.parts[0], keep);
    return op;
  };
}
Letter abort(Letter letter, Operation::Ending how = Operation::Ending::kAbort) {
  return [=](const Model& m) {
    Operation op = letter(m);
    op.ending = how;
    return op;
  };
}
Letter hold(Letter letter) {
  return [=](const Model& m) {
    Operation op = letter(m);
    op.hold = true;
    return m.held.empty() ? op : Operation{};
  };
}
// All rows, the newest first: lengths[i] and keep[i] of the i-th row.
Letter all(std::vector<int> lengths, std::vector<int> keep) {
  return [=](const Model& m) {
    Operation op{.kind = Kind::kStep};
    for (int r = m.row_count(); r-- > 0;) {
      op.parts.push_back(make_part(m, r, lengths[static_cast<std::size_t>(r)]));
      keep_first(op.parts.back(), keep[static_cast<std::size_t>(r)]);
    }
    return m.row_count() > 1 ? op : Operation{};
  };
}
Letter tree(int row, std::vector<int> parents, int node) {
  return [=](const Model& m) {
    Operation op{.kind = Kind::kStep};
    op.parts.push_back(
        make_part(m, row < 0 ? m.row_count() - 1 : row, static_cast<int>(parents.size()), parents));
    keep_path(op.parts[0], node);
    return op;
  };
}
Letter block(int length) {
  return [=](const Model& m) {
    Operation op{.kind = Kind::kStep};
    op.parts.push_back(make_part(m, 0, length));
    op.parts[0].kind = Part::Kind::kBlock;
    return op;
  };
}
Letter spans(int length, int begin, int end, int keep) {
  return [=](const Model& m) {
    Operation op{.kind = Kind::kStep};
    op.parts.push_back(make_part(m, 0, length));
    op.parts[0].kind = Part::Kind::kSpans;
    op.parts[0].spans.push_back({begin, end});
    op.parts[0].starts.assign(static_cast<std::size_t>(length), std::max(0, m.row(0).length() - 1));
    keep_first(op.parts[0], keep);
    return op;
  };
}
// On row 0; with `more`, not when all rows are taken.
Letter on_row(Kind kind, int value = 0, bool more = true) {
  return [=](const Model& m) {
    const bool room = !more || m.row_count() < m.world().setup.rows;
    return room ? Operation{.kind = kind, .value = value} : Operation{};
  };
}
Letter drop(int row) {
  return [=](const Model& m) {
    if (m.row_count() < 2) return Operation{};
    return Operation{.kind = Kind::kDrop, .row = row < 0 ? m.row_count() - 1 : row};
  };
}
Letter cut(int row, int by) {
  return [=](const Model& m) {
    const int r = row < 0 ? m.row_count() - 1 : row;
    return Operation{.kind = Kind::kTruncate, .row = r, .value = m.row(r).length() - by};
  };
}

void explore(const char* name, const std::vector<Setup>& setups, const std::vector<Letter>& alphabet) {
  long programs = 0, outputs = 0, repeated = 0;
  for (Setup setup : setups) {
    World& world = World::of(setup);
    Explorer explorer(world, alphabet);
    try {
      explorer.run();
    } catch (const std::exception& e) {
      FAIL() << e.what();
    }
    programs += explorer.programs();
    outputs += world.queries;
    repeated += world.repeated;
  }
  std::printf("%s: %ld programs, %ld attention outputs, %ld of them of histories seen before\n", name,
              programs, outputs, repeated);
  ::testing::Test::RecordProperty("programs", static_cast<int>(programs));
}

// Windows 3, 4 and 5 of a setup.
std::vector<Setup> windows(Setup setup) {
  std::vector<Setup> out;
  for (const int window : {3, 4, 5}) {
    out.push_back(setup);
    out.back().window = window;
    out.back().tokens = 32;
  }
  return out;
}

TEST(ContractExhaustive, C10_C11_C31_LinearSteps) {
  explore("linear", windows({.rows = 3, .step_tokens = 12}),
          {on_row(Kind::kNewRow), step(0, 4, 4), step(0, 3, 1), step(-1, 1, 1), abort(step(0, 2, 0)),
           all({1, 4, 0}, {1, 2, 0})});
}
TEST(ContractExhaustive, C18_C19_ForkDropTruncate) {
  explore(
      "fork", windows({.rows = 3, .rollback = 2}),
      {step(0, 3, 3), step(-1, 2, 1), on_row(Kind::kFork), drop(0), cut(0, 1), all({1, 4, 2}, {1, 3, 2})});
}
TEST(ContractExhaustive, C12_Trees) {
  explore("tree", windows({.rows = 2, .tree_nodes = 4}),
          {step(0, 3, 3), tree(0, {-1, -1, 0}, 2), tree(-1, {-1, 0, 0, 1}, 3), tree(0, {-1, 0, 0, 1}, 2),
           on_row(Kind::kFork), cut(0, 1)});
}
TEST(ContractExhaustive, C12_C23_BlocksSpansAndWindowStarts) {
  explore("blocks", windows({.rows = 2, .tree_nodes = 4}),
          {step(0, 3, 3), step(-1, 1, 1), block(4), spans(4, 1, 4, 2), on_row(Kind::kFork), cut(-1, 1)});
}
TEST(ContractExhaustive, C27_DelayedByStart) {
  explore("delayed",
          windows({.keys = Codec::bf16(), .values = Codec::f16(), .delayed = 5, .rows = 2, .rollback = 2}),
          {step(0, 3, 3), step(0, 4, 1), on_row(Kind::kFork), cut(0, 1), block(4), all({4, 2}, {2, 2})});
}
TEST(ContractExhaustive, C27_DelayedByCall) {
  explore(
      "convert",
      windows({.keys = Codec::bf16(), .values = Codec::bf16(), .delayed = Delayed::kOnlyByCall, .rows = 2}),
      {step(0, 3, 3), step(-1, 2, 1), on_row(Kind::kConvert, 0, false), on_row(Kind::kFork), drop(0),
       on_row(Kind::kAdopt, 1)});
}
TEST(ContractExhaustive, C32_Sinks) {
  for (const int sinks : {1, 2, 3}) {
    explore("sinks", windows({.sinks = sinks, .rows = 2}),
            {step(0, 4, 4), step(-1, 3, 1), on_row(Kind::kFork), cut(0, 1), on_row(Kind::kAdopt, 1)});
  }
}
TEST(ContractExhaustive, C30_Recurrent) {
  explore("recurrent",
          {{.window = 3, .recurrent = Recurrent::kScalar, .rows = 2, .tokens = 32, .tree_nodes = 4}},
          {step(0, 4, 4), step(0, 3, 1), abort(step(0, 1, 0), Operation::Ending::kDestroy),
           on_row(Kind::kFork), drop(0), tree(-1, {-1, 0, 0, 2}, 3), all({0, 2}, {0, 0})});
}
TEST(ContractExhaustive, C3_C17_C21_ReadsHeldAndRowsMoved) {
  explore("moved", windows({.rows = 2, .rollback = 1}),
          {hold(step(0, 3, 2)), step(-1, 1, 1), on_row(Kind::kRelease, 0, false), on_row(Kind::kCopy, 0),
           on_row(Kind::kAdopt, 1), drop(0)});
}

}  // namespace
}  // namespace windrow::contract
