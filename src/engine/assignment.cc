#include "engine/assignment.h"

#include <algorithm>
#include <limits>

namespace windrow {
namespace {

using Choice = AssignmentTable::Choice;

// One slot's change to another codec.
struct Move {
  std::size_t slot = 0, codec = 0;
  double divergence = 0;     // added
  std::ptrdiff_t bytes = 0;  // added
};

std::vector<Move> moves(const AssignmentTable& table, const std::vector<std::size_t>& assigned) {
  std::vector<Move> all;
  for (std::size_t s = 0; s < table.slots.size(); s++) {
    const Choice& now = table.slots[s][assigned[s]];
    for (std::size_t c = 0; c < table.slots[s].size(); c++) {
      const Choice& then = table.slots[s][c];
      if (c == assigned[s]) continue;
      all.push_back({s, c, then.divergence - now.divergence,
                     static_cast<std::ptrdiff_t>(then.bytes) - static_cast<std::ptrdiff_t>(now.bytes)});
    }
  }
  return all;
}

}  // namespace

double AssignmentTable::divergence(const std::vector<std::size_t>& assigned) const {
  double sum = 0;
  for (std::size_t s = 0; s < slots.size(); s++) sum += slots[s][assigned[s]].divergence;
  return sum;
}

std::size_t AssignmentTable::bytes(const std::vector<std::size_t>& assigned) const {
  std::size_t sum = 0;
  for (std::size_t s = 0; s < slots.size(); s++) sum += slots[s][assigned[s]].bytes;
  return sum;
}

std::vector<std::size_t> greedy_assignment(const AssignmentTable& table, std::size_t budget) {
  std::vector<std::size_t> assigned;
  for (const std::vector<Choice>& slot : table.slots) {
    const auto best = std::min_element(slot.begin(), slot.end(), [](const Choice& a, const Choice& b) {
      return a.divergence != b.divergence ? a.divergence < b.divergence : a.bytes < b.bytes;
    });
    assigned.push_back(static_cast<std::size_t>(best - slot.begin()));
  }
  while (table.bytes(assigned) > budget) {
    const auto price = [](const Move& m) { return m.divergence / -static_cast<double>(m.bytes); };
    const Move* cheapest = nullptr;
    const std::vector<Move> all = moves(table, assigned);
    for (const Move& m : all) {
      if (m.bytes < 0 && (cheapest == nullptr || price(m) < price(*cheapest))) cheapest = &m;
    }
    if (cheapest == nullptr) break;  // everything is at its smallest
    assigned[cheapest->slot] = cheapest->codec;
  }
  return assigned;
}

std::vector<std::size_t> improve_assignment(const AssignmentTable& table, std::size_t budget,
                                            std::vector<std::size_t> assigned) {
  for (;;) {
    const std::vector<Move> all = moves(table, assigned);
    const std::ptrdiff_t room =
        static_cast<std::ptrdiff_t>(budget) - static_cast<std::ptrdiff_t>(table.bytes(assigned));
    // Less than rounding can bring about is no gain; it also lets the loop end.
    double best = -1e-9 * table.divergence(assigned);
    const Move *one = nullptr, *other = nullptr;
    for (const Move& a : all) {
      if (a.bytes <= room && a.divergence < best) best = a.divergence, one = &a, other = nullptr;
      if (a.divergence >= 0) continue;  // of a pair that gains one gains
      for (const Move& b : all) {
        if (b.slot == a.slot || a.bytes + b.bytes > room || a.divergence + b.divergence >= best) continue;
        best = a.divergence + b.divergence, one = &a, other = &b;
      }
    }
    if (one == nullptr) return assigned;
    assigned[one->slot] = one->codec;
    if (other != nullptr) assigned[other->slot] = other->codec;
  }
}

}  // namespace windrow
