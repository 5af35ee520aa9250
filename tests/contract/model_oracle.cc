// The lockstep oracles of a model: mirrored, and held against what the definition expects.
#include "contract/model.h"

#include <algorithm>

namespace windrow::contract {
namespace {

using oracle::Kv;
using oracle::Lockstep;

// The tokens of a step as a lockstep takes them: of every row, packed.
struct Feed {
  std::vector<std::vector<int>> ids;  // of each row
  std::vector<int> keep;

  explicit Feed(int rows) : ids(static_cast<std::size_t>(rows)), keep(static_cast<std::size_t>(rows)) {}
};

void begin(Lockstep& oracle, World& world, int layer, const Feed& feed) {
  std::vector<int> lengths;
  std::vector<float> k, v;
  for (const std::vector<int>& ids : feed.ids) {
    lengths.push_back(static_cast<int>(ids.size()));
    for (const int id : ids) {  // as computed: the hooks do the rest
      const Stored &key = world.stored(layer, true, Stage::kFinal, id),
                   &value = world.stored(layer, false, Stage::kFinal, id);
      k.insert(k.end(), key.raw.begin(), key.raw.end());
      v.insert(v.end(), value.raw.begin(), value.raw.end());
    }
  }
  oracle.begin(lengths, k, v);
}

// The columns are those tokens as attention reads them.
void judge_columns(World& world, int layer, const Kv& kv, std::span<const int> ids,
                   std::span<const Stage> stages, int r) {
  JUDGE(kv.columns() == static_cast<int>(ids.size()), "oracle: row {} holds {} columns, expected {}", r,
        kv.columns(), ids.size());
  for (std::size_t c = 0; c < ids.size(); c++) {
    for (const bool key : {true, false}) {
      const oracle::Tensor& x = key ? kv.k : kv.v;
      const Stored& want = world.stored(layer, key, stages[c], ids[c]);
      for (int h = 0; h < x.heads; h++) {
        const auto got = x.at(0, h, static_cast<int>(c));
        JUDGE(std::equal(got.begin(), got.end(), want.read.begin() + h * x.dim),
              "oracle: row {} column {} is not token {}", r, c, ids[c]);
      }
    }
  }
}

void judge_query(const Lockstep& oracle, World& world, int layer, int r, int i, const Sight& sight) {
  const oracle::Seen seen = oracle.seen(r, i);
  JUDGE(seen.positions == sight.positions, "oracle: query {} of row {} sees other positions", i, r);
  judge_columns(world, layer, seen.kv, sight.ids, sight.stages, r);
}

}  // namespace

// The tokens of a row that crosses the start of delayed codecs stand in two steps of the oracle: those
// before, and, with all of it converted, those from there on.
void Model::step_oracle(const Operation& op, const Expected& expected, bool judged) {
  const int g = expected.group, layer = world_->plan.group(g).layers[0];
  Lockstep& real = oracles_[static_cast<std::size_t>(g)];
  const bool resolved = op.ending == Operation::Ending::kResolve;
  Feed first(row_count()), second(row_count());
  std::size_t t = 0;
  std::vector<int> crossed;
  std::vector<std::pair<int, std::size_t>> plain;  // rows that the oracle sees as they are, first token
  for (const Part& part : op.parts) {
    const int at = cut(part, g);
    const auto r = static_cast<std::size_t>(part.row);
    const int before = at < 0 ? part.length() : at;
    const bool line = part.spans.empty() && part.starts.empty() && part.kind != Part::Kind::kBlock;
    if (line && !part.branches()) plain.emplace_back(part.row, t);
    if (part.branches()) {
      if (resolved) {
        for (const int slot : part.path) first.ids[r].push_back(part.ids[static_cast<std::size_t>(slot)]);
      }
    } else if (part.kind != Part::Kind::kBlock) {
      first.ids[r].assign(part.ids.begin(), part.ids.begin() + before);
    }
    first.keep[r] = std::min(part.kept(), part.branches() ? part.kept() : before);
    if (at >= 0 && judged && line) {
      Lockstep alone = real;
      alone.permute({part.row});
      Feed early(1), late(1);
      early.ids[0] = first.ids[r];
      early.keep[0] = before;
      late.ids[0].assign(part.ids.begin() + before, part.ids.end());
      begin(alone, *world_, layer, early);
      alone.resolve(early.keep);
      alone.convert(0, world_->hooks(g, false));
      begin(alone, *world_, layer, late);
      for (int i = before; i < part.length(); i++)
        judge_query(alone, *world_, layer, 0, i - before, expected.sights[t + static_cast<std::size_t>(i)]);
    }
    if (at >= 0 && resolved && part.kept() > at) {
      crossed.push_back(part.row);
      second.ids[r].assign(part.ids.begin() + at, part.ids.end());
      second.keep[r] = part.kept() - at;
    }
    t += part.ids.size();
  }
  begin(real, *world_, layer, first);
  for (const auto& [r, at] : plain) {
    for (std::size_t i = 0; judged && i < first.ids[static_cast<std::size_t>(r)].size(); i++)
      judge_query(real, *world_, layer, r, static_cast<int>(i), expected.sights[at + i]);
  }
  if (!resolved) return real.abort();
  real.resolve(first.keep);
  if (crossed.empty()) return;
  for (const int r : crossed) real.convert(r, world_->hooks(g, false));
  begin(real, *world_, layer, second);
  real.resolve(second.keep);
}

void Model::judge_rest() const {
  for (int g = 0; g < world_->plan.group_count(); g++) {
    const int layer = world_->plan.group(g).layers[0], window = world_->plan.group(g).window;
    for (int r = 0; r < row_count(); r++) {
      const oracle::RowColumns newest = oracles_[static_cast<std::size_t>(g)].newest(r);
      const int length = row(r).length();
      JUDGE(newest.end == length && newest.begin >= std::max(0, length - window) &&
                newest.begin <= std::max(0, length - (window - 1)),
            "oracle: row {} holds {} .. {} of {}", r, newest.begin, newest.end, length);
      std::vector<Stage> stages;
      for (int p = newest.begin; p < length; p++) stages.push_back(stage(r, g, p));
      judge_columns(*world_, layer, newest.kv,
                    std::span(row(r).ids).subspan(static_cast<std::size_t>(newest.begin)), stages, r);
    }
  }
}

}  // namespace windrow::contract
