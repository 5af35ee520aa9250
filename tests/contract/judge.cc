// What the machine holds against the model: reads, attention, rows and pools.
#include <algorithm>

#include "codec/block_layout.h"
#include "contract/machine.h"

namespace windrow::contract {
namespace {

void judge_record(const SideLayout& side, const std::byte* block, int slot, const Stored& want, int head,
                  const char* what, int row, int position) {
  std::uint32_t words[64], params[8];
  const auto w = static_cast<std::size_t>(side.words), p = static_cast<std::size_t>(side.params);
  side.get(block, slot, std::span(words).first(w), std::span(params).first(p));
  const auto h = static_cast<std::size_t>(head);
  JUDGE(std::memcmp(words, want.words.data() + h * w, 4 * w) == 0 &&
            (p == 0 || std::memcmp(params, want.params.data() + h * p, 4 * p) == 0),
        "read: {} of row {} at position {} head {} are not the token's", what, row, position, head);
}

// Of everything that the output may depend on.
std::uint64_t sight_key(int layer, int id, const Sight& s) {
  std::uint64_t key = mix(mix(1, static_cast<std::uint64_t>(layer)), static_cast<std::uint64_t>(id));
  key = mix(mix(key, static_cast<std::uint64_t>(s.begin)), static_cast<std::uint64_t>(s.end));
  for (std::size_t i = 0; i < s.positions.size(); i++) {
    key = mix(key, static_cast<std::uint64_t>(s.positions[i]));
    key = mix(key, static_cast<std::uint64_t>(s.ids[i]) * 4 + static_cast<unsigned>(s.stages[i]));
  }
  return key;
}
std::uint64_t hash_bits(std::span<const float> x) {
  std::uint64_t h = 1;
  for (const float f : x) h = mix(h, std::bit_cast<std::uint32_t>(f));
  return h | 1;  // never 0
}

// The dense recompute: f64 attention over the visible tokens, by the definition.
std::vector<double> recompute(World& world, int layer, int id, const Sight& s) {
  const int owner = world.plan.owner_of_layer(layer);
  const AttentionGroup& g = world.plan.group(world.plan.group_of_layer(layer));
  const int n = static_cast<int>(s.ids.size());
  oracle::Kv kv{oracle::Tensor(1, g.kv_heads, n, g.head_dim), oracle::Tensor(1, g.kv_heads, n, g.value_dim)};
  oracle::Ints all;
  for (int c = 0; c < n; c++) {
    all.push_back(c);
    for (const bool key : {true, false}) {
      oracle::Tensor& x = key ? kv.k : kv.v;
      const Stored& from =
          world.stored(owner, key, s.stages[static_cast<std::size_t>(c)], s.ids[static_cast<std::size_t>(c)]);
      for (int h = 0; h < g.kv_heads; h++)
        std::copy_n(from.read.begin() + h * x.dim, x.dim, x.at(0, h, c).begin());
    }
  }
  const AttentionParams params = world.params(layer);
  return oracle::attend(kv, all, world.query(layer, id), params.q_heads,
                        {.scale = params.scale, .softcap = params.softcap, .sink_logits = params.sinks});
}

}  // namespace

void judge_read(World& world, const KvRead& read, const Expected& expected) {
  const int owner = world.plan.owner_of_layer(read.layer);
  JUDGE(read.tokens() == static_cast<int>(expected.sights.size()), "read: {} tokens", read.tokens());
  for (std::size_t r = 0; r < read.rows.size(); r++) {
    const KvRead::Row& row = read.rows[r];
    const BlockLayout& layout = *read.storages[row.storage].layout;
    for (std::int32_t t = read.row_offsets[r]; t < read.row_offsets[r + 1]; t++) {
      const auto i = static_cast<std::size_t>(t);
      const Sight& want = expected.sights[i];
      const int begin = read.begins[i], end = read.ends[i];
      JUDGE(read.positions[i] == want.position, "read: token {} at position {}, expected {}", t,
            read.positions[i], want.position);
      JUDGE(begin == want.begin && end == want.end, "read: token {} sees {} .. {}, expected {} .. {}", t,
            begin, end, want.begin, want.end);
      std::size_t n = 0;
      for (int p = 0; p < end; p++) {
        if (p >= read.sinks && p < begin) continue;
        JUDGE(n < want.positions.size() && want.positions[n] == p, "read: token {} sees position {}", t, p);
        const std::int32_t slot = read.slot_of(r, t, p);
        for (int h = 0; h < read.kv_heads; h++) {
          const std::byte* block = read.block(row, slot / read.page_tokens, h);
          const int at = slot % read.page_tokens;
          judge_record(layout.keys, block, at, world.stored(owner, true, want.stages[n], want.ids[n]), h,
                       "keys", static_cast<int>(r), p);
          judge_record(layout.values, block, at, world.stored(owner, false, want.stages[n], want.ids[n]), h,
                       "values", static_cast<int>(r), p);
        }
        n++;
      }
      JUDGE(n == want.positions.size(), "read: token {} sees {} positions, expected {}", t, n,
            want.positions.size());
    }
  }
}

void Machine::judge_attention(const KvRead& read, const Expected& expected) const {
  const AttentionParams params = world_->params(read.layer);
  std::vector<float> q;
  for (const int id : expected.ids) {
    const std::vector<float> one = world_->query(read.layer, id);
    q.insert(q.end(), one.begin(), one.end());
  }
  const std::size_t each = static_cast<std::size_t>(params.q_heads * read.value_dim), n = expected.ids.size();
  std::vector<float> reference(n * each, NAN), fast(n * each, NAN);
  Status s = attend_reference(read, q, params, reference);
  JUDGE(s.ok(), "attend_reference: {}", s.message());
  s = world_->kernels.attend(read, q, params, fast, nullptr);
  JUDGE(s.ok(), "attend: {}", s.message());
  float largest = 0;
  for (const float f : reference) largest = std::max(largest, std::abs(f));
  for (std::size_t t = 0; t < n; t++) {
    const std::uint64_t key = sight_key(read.layer, expected.ids[t], expected.sights[t]);
    const auto slow_out = std::span(reference).subspan(t * each, each),
               fast_out = std::span(fast).subspan(t * each, each);
    const std::uint64_t bits = hash_bits(slow_out) << 32 | (hash_bits(fast_out) & 0xffffffff);
    std::uint64_t& known = world_->bits(key);
    world_->queries++;
    if (known != 0) {
      world_->repeated++;
      JUDGE(known == bits,
            "attention: layer {} position {}: {} gives other bits than it gave for an equal history",
            read.layer, expected.sights[t].position,
            (known ^ bits) >> 32 != 0 ? "the reference" : "the kernel");
      continue;
    }
    known = bits;
    const std::vector<double> want = recompute(*world_, read.layer, expected.ids[t], expected.sights[t]);
    double scale = 0;
    for (const double x : want) scale = std::max(scale, std::abs(x));
    for (std::size_t i = 0; i < each; i++) {
      JUDGE(std::abs(slow_out[i] - want[i]) <= 1e-5 * scale,
            "attention: layer {} position {}: {} instead of {}", read.layer, expected.sights[t].position,
            slow_out[i], want[i]);
      JUDGE(std::abs(fast_out[i] - want[i]) <= 2e-5 * largest,
            "kernels: layer {} position {}: {} instead of {}", read.layer, expected.sights[t].position,
            fast_out[i], want[i]);
    }
  }
}

void Machine::judge_row(int r, const Row& row, const Model& model, int model_row) const {
  const ModelRow& its = model.row(model_row);
  JUDGE(row.length() == its.length(), "row {} has length {}, expected {}", r, row.length(), its.length());
  JUDGE(row.minimum_length() == model.minimum_length(model_row), "row {} can be cut to {}, expected {}", r,
        row.minimum_length(), model.minimum_length(model_row));
  const Result<RowRecords> got = row.extract();
  JUDGE(got.ok(), "extract: {}", got.status().message());
  JUDGE(got->signature == world_->plan.signature() && got->length == its.length(), "extract: row {}", r);
  std::size_t at = 0;
  for (int g = 0; g < world_->plan.group_count(); g++) {
    const AttentionGroup& group = world_->plan.group(g);
    JUDGE(row.converted(g) == !its.groups[static_cast<std::size_t>(g)].early, "row {} converted: {}", r,
          row.converted(g));
    for (const int layer : group.layers) {
      LayerRecords want;
      want.layer = layer;
      want.begin = model.extract_begin(model_row, g);
      want.end = its.length();
      want.sinks = want.begin == 0 ? 0 : group.sinks;
      want.converted = row.converted(g);
      for (int h = 0; h < group.kv_heads; h++) {
        for (int p = 0; p < its.length(); p++) {
          if (p >= want.sinks && p < want.begin) continue;
          for (const bool key : {true, false}) {
            const Stored& s = world_->stored(layer, key, model.stage(model_row, g, p),
                                             its.ids[static_cast<std::size_t>(p)]);
            const auto part = [&](const std::vector<std::uint32_t>& from, std::vector<std::uint32_t>& to) {
              const auto n = static_cast<std::ptrdiff_t>(from.size()) / group.kv_heads;
              to.insert(to.end(), from.begin() + h * n, from.begin() + (h + 1) * n);
            };
            part(s.words, key ? want.key_words : want.value_words);
            part(s.params, key ? want.key_params : want.value_params);
          }
        }
      }
      JUDGE(at < got->layers.size() && got->layers[at] == want,
            "row {} does not hold what it should in layer {} ({} .. {}, {} sinks; expected {} .. {}, {})", r,
            layer, got->layers.at(at).begin, got->layers.at(at).end, got->layers.at(at).sinks, want.begin,
            want.end, want.sinks);
      at++;
    }
  }
  JUDGE(got->layers.size() == at && got->recurrent.size() == its.states.size(), "row {}: layers", r);
  for (std::size_t l = 0; l < its.states.size(); l++) {
    const RecurrentRecords& state = got->recurrent[l];
    JUDGE(state.layer == world_->recurrent_layers[l] &&
              hash_bits(state.state) == hash_bits(its.states[l].state) &&
              hash_bits(state.tail) == hash_bits(its.states[l].tail),
          "row {}: the state of layer {} is not that of its tokens alone", r, state.layer);
  }
}

void Machine::judge_rest() const {
  JUDGE(store_.live_rows() == model_.row_count() && rows_.size() == model_.rows().size(),
        "{} live rows, expected {}", store_.live_rows(), model_.row_count());
  for (int r = 0; r < model_.row_count(); r++) judge_row(r, rows_[static_cast<std::size_t>(r)], model_, r);
  for (std::size_t i = 0; i < held_.size(); i++) judge_read(*world_, held_[i], *model_.held[i]);
  judge_pools();
}

void Machine::judge_pools() const {
  const Status s = store_.check();
  JUDGE(s.ok(), "{}", s.message());
  std::size_t owned = 0, bytes = 0;
  const auto add = [&](const PoolUse& use, std::size_t page) {
    JUDGE(use.owned + use.free == use.pages && use.peak <= use.pages, "pool: {} + {} of {}", use.owned,
          use.free, use.pages);
    owned += static_cast<std::size_t>(use.owned) * page;
    bytes += use.bytes;
  };
  for (int g = 0; g < world_->plan.group_count(); g++) {
    add(store_.pool_use(g), world_->plan.group_bytes(g).page);
    add(store_.delayed_pool_use(g), world_->plan.delayed_bytes(g).page);
  }
  for (int g = 0; g < world_->plan.recurrent_count(); g++) {
    add(store_.state_pool_use(g), world_->plan.recurrent_bytes(g).state);
    const PoolUse records = store_.record_pool_use(g);
    JUDGE(records.owned == 0, "{} records are owned at rest", records.owned);
    bytes += records.bytes;
  }
  JUDGE(bytes == store_.bytes(), "the pools map {} bytes, the store {}", bytes, store_.bytes());
  if (!held_.empty()) return;
  std::size_t referred = 0;
  for (const Row& row : rows_) referred += row.bytes();
  JUDGE(rows_.size() > 1 ? owned <= referred : owned == referred, "{} bytes are owned, the rows refer to {}",
        owned, referred);
}

// The row's history fed to a store of its own, in steps of another length: the same bytes, and by the table
// of outputs the same bits.
void Machine::alone(const Operation& op) const {
  using Kind = Operation::Kind;
  const ModelRow& row = model_.row(op.row);
  Machine machine(world_->alone());
  machine.apply({.kind = Kind::kNewRow});
  const bool converted = !row.groups[0].early && world_->setup.delayed;
  const int at = row.groups[0].converted_at;
  for (int fed = 0; fed < row.length();) {
    int n = std::min(op.value, row.length() - fed);
    // By policy it happens by itself, else by call.
    if (converted && machine.model_.row(0).groups[0].early && at != *world_->setup.delayed) {
      if (fed == at) machine.apply({.kind = Kind::kConvert});
      if (fed < at) n = std::min(n, at - fed);
    }
    Part part;
    for (int i = 0; i < n; i++) {
      part.ids.push_back(row.ids[static_cast<std::size_t>(fed + i)]);
      part.path.push_back(i);
    }
    Operation step{.kind = Kind::kStep};
    step.parts.push_back(std::move(part));
    machine.apply(step);
    fed += n;
  }
  if (converted && machine.model_.row(0).groups[0].early) machine.apply({.kind = Kind::kConvert});
  machine.judge_row(op.row, machine.rows_[0], machine.model_, 0);
  for (std::size_t l = 0; l < row.states.size(); l++)
    JUDGE(row.states[l].state == machine.model_.row(0).states[l].state, "row {} alone: another state",
          op.row);
  machine.finish();
}

void Machine::finish() {
  held_.clear();
  rows_.clear();
  model_ = Model(*world_);
  judge_rest();
  for (int g = 0; g < world_->plan.group_count(); g++)
    JUDGE(store_.pool_use(g).owned == 0 && store_.delayed_pool_use(g).owned == 0,
          "pages of group {} stay owned", g);
  for (int g = 0; g < world_->plan.recurrent_count(); g++)
    JUDGE(store_.state_pool_use(g).owned == 0, "states of recurrent group {} stay owned", g);
}

}  // namespace windrow::contract
