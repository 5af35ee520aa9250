#include "state/opening.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace windrow {
namespace {

Status refuse(StatusCode code, std::size_t r, std::string what) {
  return Status(code, fmt::format("begin: row {} of the step {}", r, what));
}
Status invalid(std::size_t r, std::string what) {
  return refuse(StatusCode::kInvalidArgument, r, std::move(what));
}

}  // namespace

Status Opening::check(std::span<const StepRow> asked, std::span<const std::shared_ptr<Row::Impl>> impls) {
  parts_.resize(asked.size());
  needs_.resize(asked.size() * static_cast<std::size_t>(store_.groups()));
  std::int64_t total = 0;
  for (std::size_t r = 0; r < asked.size(); r++) {
    Part& part = parts_[r];
    part.row = impls[r].get();
    part.asked = &asked[r];
    part.tokens = part.depth = asked[r].length;
    if (Status s = check_part(r, part); !s.ok()) return s;
    total += part.tokens;
  }
  if (total > store_.plan.limits().step_tokens) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("begin: {} tokens in one step, the plan allows {}", total,
                              store_.plan.limits().step_tokens));
  }
  bool twice = false;
  for (const Part& part : parts_) twice = std::exchange(part.row->seen, true) || twice;
  for (const Part& part : parts_) part.row->seen = false;
  if (twice) return Status(StatusCode::kInvalidArgument, "begin: a row stands twice in the step");
  return Status();
}

Status Opening::check_part(std::size_t r, Part& part) const {
  const Limits& limits = store_.plan.limits();
  const StepRow& asked = *part.asked;
  if (part.row == nullptr) return invalid(r, "is no row");
  if (part.row->store.get() != &store_) return invalid(r, "belongs to another store");
  if (part.row->in_step) return refuse(StatusCode::kFailedPrecondition, r, "stands in another open step");
  if (asked.length < 0) return invalid(r, fmt::format("has length {}", asked.length));
  if (asked.length > limits.tokens - part.length()) {
    return refuse(StatusCode::kResourceExhausted, r,
                  fmt::format("has {} positions and asks for {} more, the plan allows {}", part.length(),
                              asked.length, limits.tokens));
  }
  if (int{asked.block} + int{!asked.spans.empty()} + int{!asked.parents.empty()} > 1) {
    return invalid(r, "is more than one of a block, spans and a tree");
  }
  if (!asked.window_starts.empty()) {
    if (asked.block) return invalid(r, "is a block and has window starts");
    if (asked.window_starts.size() != static_cast<std::size_t>(part.tokens)) {
      return invalid(
          r, fmt::format("has {} window starts for {} tokens", asked.window_starts.size(), part.tokens));
    }
  }
  if (Status s = check_spans(r, part); !s.ok()) return s;
  if (Status s = check_tree(r, part); !s.ok()) return s;
  std::int32_t i = 0;
  for (const int start : asked.window_starts) {
    // A tree's position is not known here; begin takes the lower of start and position.
    if (start < 0 || start > part.length() + i) {
      return invalid(r,
                     fmt::format("has window start {} at token {}, allowed are 0 to its position", start, i));
    }
    i++;
  }
  part.recorded = store_.recurrent_groups() > 0 && (part.tokens > 1 || part.tree) &&
                  part.tokens <= limits.verify_tokens && !asked.block;
  if (part.tree && store_.recurrent_groups() > 0 && !part.recorded) {
    return refuse(StatusCode::kResourceExhausted, r,
                  fmt::format("is a tree of {} nodes over recurrent layers, the plan's verify_tokens is {}",
                              part.tokens, limits.verify_tokens));
  }
  return check_cuts(r, part);
}

Status Opening::check_spans(std::size_t r, const Part& part) const {
  int end = 0;
  for (const TokenSpan& span : part.asked->spans) {
    if (span.begin < end || span.end <= span.begin || span.end > part.tokens) {
      return invalid(r, fmt::format("has span {} .. {} of {} tokens, expected ascending ones", span.begin,
                                    span.end, part.tokens));
    }
    end = span.end;
  }
  return Status();
}

Status Opening::check_tree(std::size_t r, Part& part) const {
  const std::span<const int> parents = part.asked->parents;
  if (parents.empty()) return Status();
  const int most = store_.plan.limits().tree_nodes;
  if (parents.size() != static_cast<std::size_t>(part.tokens)) {
    return invalid(r, fmt::format("has {} parents for {} nodes", parents.size(), part.tokens));
  }
  if (part.tokens > most) {
    return refuse(StatusCode::kResourceExhausted, r,
                  fmt::format("is a tree of {} nodes, the plan allows {}", part.tokens, most));
  }
  std::int32_t depths[64];  // the most tree_nodes can be
  part.depth = 0;
  for (int i = 0; i < part.tokens; i++) {
    const int parent = parents[static_cast<std::size_t>(i)];
    if (parent < -1 || parent >= i) {
      return invalid(r, fmt::format("has parent {} at node {}, expected -1 to {}", parent, i, i - 1));
    }
    depths[i] = parent < 0 ? 1 : depths[parent] + 1;
    part.depth = std::max(part.depth, depths[i]);
    part.tree = part.tree || parent != i - 1;
  }
  return Status();
}

Status Opening::check_cuts(std::size_t r, const Part& part) const {
  for (int g = 0; g < store_.groups(); g++) {
    const std::int32_t at = cut(part, g);
    if (at < 0) continue;
    if (part.tree) {
      return refuse(
          StatusCode::kFailedPrecondition, r,
          fmt::format("is a tree that may pass the start of group {}'s delayed codecs at {}; at most {} "
                      "tokens go before it",
                      g, store_.group(g).delayed->start, at));
    }
    for (const TokenSpan& span : part.asked->spans) {
      if (span.begin < at && at < span.end) {
        return refuse(StatusCode::kFailedPrecondition, r,
                      fmt::format("has span {} .. {} across the start of group {}'s delayed codecs at its "
                                  "token {}",
                                  span.begin, span.end, g, at));
      }
    }
  }
  return Status();
}

std::int32_t Opening::converted_from(const Part& part, int g) const {
  return std::max(store_.retained(g, store_.group(g).delayed->start),
                  part.row->tables[static_cast<std::size_t>(g)].retained);
}

void Opening::count(int g, std::int32_t (&taken)[kStorages]) {
  taken[kFinal] = taken[kEarly] = 0;
  for (std::size_t r = 0; r < parts_.size(); r++) {
    const Part& part = parts_[r];
    Need& its = needs_[static_cast<std::size_t>(g) * parts_.size() + r];
    const PageTable& table = part.row->tables[static_cast<std::size_t>(g)];
    const TableShape& shape = store_.table(table.storage, g);
    const std::int32_t length = part.length();
    its.cut = cut(part, g);
    const std::int32_t tokens = its.cut < 0 ? part.tokens : its.cut;
    its.fresh = fresh_pages(shape, length, tokens);
    its.own_tail = tokens > 0 && tail_is_own(shape, store_.pool(table.storage, g), table, length);
    its.target = part.tree ? fresh_pages(shape, length, part.depth) : 0;
    taken[table.storage] += its.fresh - (its.own_tail ? 1 : 0) + its.target;
    if (its.cut < 0) continue;
    const TableShape& final_shape = store_.table(kFinal, g);
    const std::int32_t start = length + its.cut;
    PageTable next;
    next.retained = converted_from(part, g);
    taken[kFinal] += next.wanted_pages(final_shape, start);
    taken[kFinal] +=
        fresh_pages(final_shape, start, part.tokens - its.cut) - (final_shape.in_page(start) != 0 ? 1 : 0);
  }
}

Status Opening::check_pool(int g, int* pages) {
  std::int32_t taken[kStorages];
  count(g, taken);
  if (pages != nullptr) *pages = taken[kFinal] + taken[kEarly];
  for (int storage = 0; storage < kStorages; storage++) {
    if (store_.pool(storage, g).has_free(taken[storage])) continue;
    // All retired lists have given back their pages now, so fewer tails may be shared.
    count(g, taken);
    if (store_.pool(storage, g).has_free(taken[storage])) continue;
    const PoolUse use = store_.pool(storage, g).use();
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("begin: the step needs {} pages of group {}{}, free are {} of {}", taken[storage], g,
                    storage == kEarly ? " (delayed codecs)" : "", use.free, use.pages));
  }
  return Status();
}

Status Opening::check_states() const {
  std::int32_t states = 0, records = 0;
  for (const Part& part : parts_) {
    states += part.tokens > 0 ? 1 : 0;
    records += part.recorded ? 1 : 0;
  }
  for (int g = 0; g < store_.recurrent_groups(); g++) {
    PagePool& pool = store_.states[static_cast<std::size_t>(g)];
    PagePool& record = store_.records[static_cast<std::size_t>(g)];
    if (!pool.has_free(states) || !record.has_free(records)) {
      return Status(StatusCode::kResourceExhausted,
                    fmt::format("begin: the step needs {} states and {} records of recurrent group {}, free "
                                "are {} and {}",
                                states, records, g, pool.free_pages(), record.free_pages()));
    }
  }
  return Status();
}

}  // namespace windrow
