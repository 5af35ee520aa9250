// An assignment of codecs to layers under a budget, found by measuring.
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "engine/assignment.h"
#include "windrow/quality.h"

namespace windrow {
namespace {

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

using Assigned = std::vector<std::size_t>;  // [slot]; slot 2u: the keys of unit u, 2u + 1: its values

class Suggester {
 public:
  Suggester(const Model& model, const QualityText& text, const SuggestOptions& suggest,
            const QualityOptions& options, ThreadPool& pool)
      : model_(model), text_(text), suggest_(suggest), options_(options), pool_(pool) {}

  Result<Suggestion> run() {
    if (Status s = check(); !s.ok()) return s;
    if (Status s = weigh(); !s.ok()) return s;
    if (least_ > suggest_.budget) {
      return invalid(fmt::format("a budget of {} bytes, a row of {} positions takes at least {}",
                                 suggest_.budget, options_.context, least_));
    }
    if (Status s = measure_slots(); !s.ok()) return s;
    return choose();
  }

 private:
  Status check() const {
    if (suggest_.codecs.empty()) return invalid("suggestion: no codec to choose from");
    std::vector<int> named, stored;
    for (const std::vector<int>& unit : suggest_.units) named.insert(named.end(), unit.begin(), unit.end());
    for (const std::vector<int>& unit : kv_units(model_.info().layers)) {
      stored.insert(stored.end(), unit.begin(), unit.end());
    }
    std::sort(named.begin(), named.end());
    std::sort(stored.begin(), stored.end());
    if (named == stored && !stored.empty()) return {};
    return invalid(
        fmt::format("suggestion: the units name {} layers, expected each of the {} that store keys "
                    "and values once",
                    named.size(), stored.size()));
  }

  KvChoice choice(const Assigned& assigned) const {
    KvChoice kv;
    for (std::size_t u = 0; u < suggest_.units.size(); u++) {
      kv = with_codecs(std::move(kv), suggest_.units[u],
                       {suggest_.codecs[assigned[2 * u]], suggest_.codecs[assigned[2 * u + 1]]});
    }
    return kv;
  }

  // Everything f32 but one slot.
  KvChoice only(std::size_t slot, const Codec& codec) const {
    KvCodecs codecs{Codec::f32(), Codec::f32()};
    (slot % 2 == 0 ? codecs.keys : codecs.values) = codec;
    return with_codecs(KvChoice(Codec::f32()), suggest_.units[slot / 2], codecs);
  }

  // The bytes of each choice, beyond those of the slot's smallest; and of the smallest assignment. They add
  // up: a page holds keys beside values, layer beside layer.
  Status weigh() {
    table_.slots.assign(2 * suggest_.units.size(),
                        std::vector<AssignmentTable::Choice>(suggest_.codecs.size()));
    Assigned smallest;
    for (std::size_t s = 0; s < table_.slots.size(); s++) {
      std::vector<std::size_t> bytes;
      for (const Codec& codec : suggest_.codecs) {
        const Result<std::size_t> row = kv_row_bytes(model_.info(), only(s, codec), options_.context);
        if (!row.ok()) return row.status();
        bytes.push_back(*row);
      }
      const auto least = std::min_element(bytes.begin(), bytes.end());
      smallest.push_back(static_cast<std::size_t>(least - bytes.begin()));
      for (std::size_t c = 0; c < bytes.size(); c++) table_.slots[s][c].bytes = bytes[c] - *least;
    }
    const Result<std::size_t> least = kv_row_bytes(model_.info(), choice(smallest), options_.context);
    if (!least.ok()) return least.status();
    least_ = *least;
    return {};
  }

  Status measure_slots() {
    std::vector<KvTrial> trials;
    for (std::size_t s = 0; s < table_.slots.size(); s++) {
      for (const Codec& codec : suggest_.codecs) trials.push_back({.kv = only(s, codec)});
    }
    const Result<QualityReport> report = measure_quality(model_, text_, trials, stage(0), pool_);
    if (!report.ok()) return report.status();
    std::size_t next = 0;
    for (std::vector<AssignmentTable::Choice>& slot : table_.slots) {
      for (AssignmentTable::Choice& c : slot) c.divergence = report->trials[next++].divergence.kld_mean;
    }
    return {};
  }

  // What the table suggests, and every uniform assignment that fits.
  Result<Suggestion> choose() {
    const std::size_t room = suggest_.budget - least_;
    std::vector<Assigned> candidates;
    const auto add = [&](Assigned a) {
      if (std::find(candidates.begin(), candidates.end(), a) == candidates.end())
        candidates.push_back(std::move(a));
    };
    for (std::size_t c = 0; c < suggest_.codecs.size(); c++) {
      Assigned uniform(table_.slots.size(), c);
      if (table_.bytes(uniform) <= room) add(std::move(uniform));
    }
    const std::size_t uniforms = candidates.size();
    const Assigned greedy = greedy_assignment(table_, room);
    for (std::size_t i = 0; i < uniforms; i++) add(improve_assignment(table_, room, Assigned(candidates[i])));
    add(improve_assignment(table_, room, greedy));
    add(greedy);

    std::vector<KvTrial> trials;
    for (const Assigned& a : candidates) trials.push_back({.kv = choice(a)});
    const Result<QualityReport> report = measure_quality(model_, text_, trials, stage(1), pool_);
    if (!report.ok()) return report.status();
    const auto best = [&](std::size_t count) {
      const auto first = report->trials.begin();
      return static_cast<std::size_t>(std::min_element(first, first + static_cast<std::ptrdiff_t>(count),
                                                       [](const TrialReport& a, const TrialReport& b) {
                                                         return a.divergence.kld_mean < b.divergence.kld_mean;
                                                       }) -
                                      first);
    };
    const auto assignment = [&](std::size_t i) -> Result<Assignment> {
      Assignment a{trials[i].kv, 0, report->trials[i].divergence};
      const Result<std::size_t> bytes = kv_row_bytes(model_.info(), a.kv, options_.context);
      if (!bytes.ok()) return bytes.status();
      a.bytes = *bytes;
      return a;
    };
    const std::size_t chosen = best(candidates.size());
    Result<Assignment> all = assignment(chosen);
    if (!all.ok()) return all.status();
    Suggestion suggestion{
        .chosen = std::move(*all), .uniform = {}, .predicted = table_.divergence(candidates[chosen])};
    if (uniforms > 0) {
      const std::size_t even = best(uniforms);
      Result<Assignment> uniform = assignment(even);
      if (!uniform.ok()) return uniform.status();
      suggestion.uniform = UniformAssignment{std::move(*uniform), suggest_.codecs[candidates[even][0]]};
    }
    return suggestion;
  }

  // The options of one of the two measurements: progress goes on from one to the other.
  QualityOptions stage(std::size_t which) const {
    QualityOptions options = options_;
    if (options_.progress) {
      options.progress = [this, which](std::size_t done, std::size_t total) {
        options_.progress(which * total + done, 2 * total);
      };
    }
    return options;
  }

  const Model& model_;
  const QualityText& text_;
  const SuggestOptions& suggest_;
  const QualityOptions& options_;
  ThreadPool& pool_;
  AssignmentTable table_;
  std::size_t least_ = 0;  // bytes of the smallest assignment
};

}  // namespace

Result<Suggestion> suggest_kv(const Model& model, const QualityText& text, const SuggestOptions& suggest,
                              const QualityOptions& options, ThreadPool& pool) try {
  return Suggester(model, text, suggest, options, pool).run();
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("suggestion: {}", e.what()));
}

}  // namespace windrow
