#include "contract/world.h"

#include <map>

namespace windrow::contract {
namespace {

float number(int id, int layer, int what, int index) {
  std::uint64_t h = 0x243f6a8885a308d3u;
  for (const int v : {id, layer, what, index}) h = mix(h, static_cast<std::uint64_t>(v + 7));
  return static_cast<float>(static_cast<int>(h >> 40 & 0xffff) - 32768) / 16384.0f;
}
std::vector<float> numbers(int id, int layer, int what, std::size_t n, float from = -2, float to = 2) {
  std::vector<float> out;
  for (std::size_t i = 0; i < n; i++)
    out.push_back(from + (number(id, layer, what, static_cast<int>(i)) + 2) / 4 * (to - from));
  return out;
}
enum What { kKey, kValue, kQuery, kX, kQ, kK, kV, kG, kBeta, kWeights };

StatePlan make_plan(const Setup& s, int page_tokens, int rollback) {
  Limits limits{.rows = s.rows, .tokens = s.tokens, .step_tokens = s.step_tokens, .rollback = rollback};
  limits.tree_nodes = s.tree_nodes;
  limits.verify_tokens = s.verify_tokens;
  const bool affine = s.keys.is_affine() || s.values.is_affine();
  AttentionGroup group{.layers = {0}, .window = s.window, .sinks = s.sinks};
  group.head_dim = affine ? 32 : 16;
  group.keys = s.keys;
  group.values = s.values;
  if (s.delayed) group.delayed = Delayed{.start = *s.delayed, .keys = s.early, .values = s.early};
  if (s.wide) {
    group.layers = {0, 3};
    group.kv_heads = 2;
    group.sharers = {{.layer = 5, .owner = 3}};
  }
  StatePlan::Builder builder(limits);
  builder.page_tokens(page_tokens).attention(group);
  if (s.wide)
    builder.attention(
        {.layers = {1}, .head_dim = 16, .value_dim = 32, .keys = Codec::f16(), .values = Codec::bf16()});
  if (s.recurrent != Recurrent::kNone) {
    RecurrentGroup r;
    r.layers = {2};
    if (s.wide) r.layers = {2, 4};
    r.shape.delta = {.key_heads = 1, .value_heads = 2, .key_dim = 16, .value_dim = 3};
    r.shape.delta.gate = s.recurrent == Recurrent::kVector ? DecayGate::kVector : DecayGate::kScalar;
    r.shape.conv = {.channels = 5, .taps = 3};
    builder.recurrent(r);
  }
  Result<StatePlan> plan = builder.build();
  JUDGE(plan.ok(), "plan: {}", plan.status().message());
  return *plan;
}
AttentionKernels make_kernels(const StatePlan& plan) {
  Result<AttentionKernels> kernels = AttentionKernels::select(plan);
  JUDGE(kernels.ok(), "kernels: {}", kernels.status().message());
  return *kernels;
}

}  // namespace

std::string Setup::text() const {
  return fmt::format(
      "window {} sinks {} codecs {}/{} delayed {}:{} {}{}{}rows {} tokens {} step {} rollback {} tree {} "
      "verify {} "
      "pages {}/{}",
      window, sinks, keys.to_string(), values.to_string(), delayed ? std::to_string(*delayed) : "no",
      early.to_string(), wide ? "wide " : "", logits ? "logits " : "",
      recurrent == Recurrent::kNone     ? ""
      : recurrent == Recurrent::kScalar ? "scalar "
                                        : "vector ",
      rows, tokens, step_tokens, rollback, tree_nodes, verify_tokens, page_tokens, other_page_tokens);
}

World::World(Setup s, World* table)
    : setup(s),
      plan(make_plan(s, s.page_tokens, s.rollback)),
      other_plan(make_plan(s, s.other_page_tokens, s.rollback + 1)),
      kernels(make_kernels(plan)),
      table_(table != nullptr ? table : this) {
  for (int g = 0; g < plan.group_count(); g++) {
    for (const int layer : plan.group(g).layers) layers.push_back(layer);
    for (const Sharer& sharer : plan.group(g).sharers) layers.push_back(sharer.layer);
  }
  for (int g = 0; g < plan.recurrent_count(); g++) {
    for (const int layer : plan.recurrent(g).layers) recurrent_layers.push_back(layer);
    const CausalConvShape& conv = plan.recurrent(g).shape.conv;
    conv_weights = numbers(0, 0, kWeights, conv.input_floats() * static_cast<std::size_t>(conv.taps));
  }
  if (s.logits) sink_logits = {0.5f, -1.0f, 2.0f, -INFINITY};
}

World& World::of(const Setup& setup) {
  static std::map<std::string, std::unique_ptr<World>> all;
  std::unique_ptr<World>& world = all[setup.text()];
  if (!world) world = std::make_unique<World>(setup);
  return *world;
}

World& World::alone() {
  if (!alone_) {
    Setup one = setup;
    one.rows = 1;
    one.page_tokens = 16;
    alone_ = std::make_unique<World>(one, this);
  }
  return *alone_;
}

const Stored& World::stored(int layer, bool key, Stage stage, int id) {
  const std::uint64_t at = ((static_cast<std::uint64_t>(id) * 64 + static_cast<unsigned>(layer)) * 4 +
                            static_cast<unsigned>(stage)) *
                               2 +
                           (key ? 1 : 0);
  std::unique_ptr<Stored>& out = stored_[at];
  if (out) return *out;
  out = std::make_unique<Stored>();
  const AttentionGroup& g = plan.group(plan.group_of_layer(layer));
  const int dim = key ? g.head_dim : g.value_dim;
  const Codec last = key ? g.keys : g.values;
  const Codec first = g.delayed ? key ? g.delayed->keys : g.delayed->values : last;
  for (int h = 0; h < g.kv_heads; h++) {
    std::vector<float> x = numbers(id, layer * 16 + h, key ? kKey : kValue, static_cast<std::size_t>(dim));
    out->raw.insert(out->raw.end(), x.begin(), x.end());
    if (stage == Stage::kTwice) oracle::decode_hook(first)(x);
    const Codec codec = stage == Stage::kEarly ? first : last;
    std::vector<std::uint32_t> words(static_cast<std::size_t>(codec.record_words(dim))),
        params(static_cast<std::size_t>(codec.record_params(dim)));
    encode_record(codec, x, words, params);
    out->words.insert(out->words.end(), words.begin(), words.end());
    out->params.insert(out->params.end(), params.begin(), params.end());
    oracle::attention_hook(codec)(x);
    out->read.insert(out->read.end(), x.begin(), x.end());
  }
  return *out;
}

const RecurrentToken& World::recurrent_token(int layer, int id) {
  std::unique_ptr<RecurrentToken>& out =
      tokens_[static_cast<std::uint64_t>(id) * 64 + static_cast<unsigned>(layer)];
  if (out) return *out;
  const RecurrentShape& shape = plan.recurrent(plan.recurrent_of_layer(layer)).shape;
  out = std::make_unique<RecurrentToken>();
  out->x = numbers(id, layer, kX, shape.conv.input_floats());
  out->q = numbers(id, layer, kQ, shape.delta.key_floats());
  out->k = numbers(id, layer, kK, shape.delta.key_floats(), -0.5f, 0.5f);
  out->v = numbers(id, layer, kV, shape.delta.value_floats());
  out->g = numbers(id, layer, kG, shape.delta.decay_floats(), 0.5f, 1.0f);
  out->beta = numbers(id, layer, kBeta, shape.delta.beta_floats(), 0.0f, 1.0f);
  return *out;
}

std::vector<float> World::query(int layer, int id) const {
  const AttentionGroup& g = plan.group(plan.group_of_layer(layer));
  return numbers(id, layer, kQuery, static_cast<std::size_t>(q_heads(layer) * g.head_dim));
}

AttentionParams World::params(int layer) const {
  AttentionParams p;
  p.q_heads = q_heads(layer);
  p.scale = 0.11f;
  if (!setup.logits) return p;
  p.softcap = 3.0f;
  p.sinks = std::span(sink_logits).first(static_cast<std::size_t>(p.q_heads));
  return p;
}

oracle::Hooks World::hooks(int group, bool early) const {
  const AttentionGroup& g = plan.group(group);
  return early ? oracle::Hooks{oracle::attention_hook(g.delayed->keys),
                               oracle::attention_hook(g.delayed->values)}
               : oracle::Hooks{oracle::attention_hook(g.keys), oracle::attention_hook(g.values)};
}

std::uint64_t& World::bits(std::uint64_t key) {
  auto& bits = table_->bits_;
  if (bits.size() > 200'000) bits.clear();  // of histories that only one program had, mostly
  std::uint64_t& known = bits[key];
  if (known == 0) table_->fresh_.push_back(key);
  return known;
}

void World::begin_program() { table_->fresh_.clear(); }

void World::forget_program() {
  for (const std::uint64_t key : table_->fresh_) table_->bits_.erase(key);
}

}  // namespace windrow::contract
