// What a built plan says.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "state/plan_impl.h"

namespace windrow {
namespace {

using nlohmann::ordered_json;

ordered_json group_json(const AttentionGroup& g, const GroupBytes& size, const GroupBytes& early) {
  ordered_json out{{"layers", g.layers},
                   {"window", g.window == kFullWindow ? ordered_json() : ordered_json(g.window)},
                   {"sinks", g.sinks},
                   {"kv_heads", g.kv_heads},
                   {"head_dim", g.head_dim},
                   {"value_dim", g.value_dim},
                   {"codec_keys", g.keys.to_string()},
                   {"codec_values", g.values.to_string()},
                   {"page_bytes", size.page},
                   {"pages_per_row", size.pages_per_row},
                   {"pages", size.pages},
                   {"bytes_per_token", size.per_token},
                   {"bytes", size.total}};
  if (g.delayed) {
    out["delayed"] = ordered_json{
        {"start", g.delayed->start == Delayed::kOnlyByCall ? ordered_json() : ordered_json(g.delayed->start)},
        {"codec_keys", g.delayed->keys.to_string()},
        {"codec_values", g.delayed->values.to_string()},
        {"pages", early.pages},
        {"bytes", early.total}};
  }
  if (!g.sharers.empty()) {
    ordered_json sharers = ordered_json::array();
    for (const Sharer& s : g.sharers) sharers.push_back(ordered_json{{"layer", s.layer}, {"owner", s.owner}});
    out["sharers"] = std::move(sharers);
  }
  return out;
}

ordered_json recurrent_json(const RecurrentGroup& g, const RecurrentBytes& size) {
  const GatedDeltaShape& d = g.shape.delta;
  return ordered_json{{"layers", g.layers},
                      {"key_heads", d.key_heads},
                      {"value_heads", d.value_heads},
                      {"key_dim", d.key_dim},
                      {"value_dim", d.value_dim},
                      {"gate", d.gate == DecayGate::kScalar ? "scalar" : "vector"},
                      {"conv_channels", g.shape.conv.channels},
                      {"conv_taps", g.shape.conv.taps},
                      {"state_bytes", size.state},
                      {"states", size.states},
                      {"record_bytes", size.record},
                      {"records", size.records},
                      {"bytes", size.total}};
}

}  // namespace

StatePlan::StatePlan(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

const Limits& StatePlan::limits() const noexcept { return impl_->limits; }
int StatePlan::page_tokens() const noexcept { return impl_->page_tokens; }
int StatePlan::group_count() const noexcept { return static_cast<int>(impl_->groups.size()); }
const AttentionGroup& StatePlan::group(int g) const noexcept {
  return impl_->groups[static_cast<std::size_t>(g)];
}
const GroupBytes& StatePlan::group_bytes(int g) const noexcept {
  return impl_->sizes[kFinal][static_cast<std::size_t>(g)];
}
const GroupBytes& StatePlan::delayed_bytes(int g) const noexcept {
  return impl_->sizes[kEarly][static_cast<std::size_t>(g)];
}
int StatePlan::recurrent_count() const noexcept { return static_cast<int>(impl_->recurrent.size()); }
const RecurrentGroup& StatePlan::recurrent(int g) const noexcept {
  return impl_->recurrent[static_cast<std::size_t>(g)];
}
const RecurrentBytes& StatePlan::recurrent_bytes(int g) const noexcept {
  return impl_->recurrent_sizes[static_cast<std::size_t>(g)];
}
std::size_t StatePlan::bytes() const noexcept { return impl_->bytes; }
const std::string& StatePlan::signature() const noexcept { return impl_->signature; }

int StatePlan::group_of_layer(int layer) const noexcept { return impl_->place(layer).group; }
int StatePlan::slot_of_layer(int layer) const noexcept { return impl_->place(layer).slot; }
int StatePlan::owner_of_layer(int layer) const noexcept { return impl_->place(layer).owner; }
int StatePlan::recurrent_of_layer(int layer) const noexcept { return impl_->place(layer).recurrent; }
int StatePlan::recurrent_slot_of_layer(int layer) const noexcept {
  return impl_->place(layer).recurrent_slot;
}

std::size_t StatePlan::projected_bytes(int tokens) const noexcept {
  const std::int64_t length = std::clamp(tokens, 0, impl_->limits.tokens), b = impl_->page_tokens;
  std::size_t bytes = 0;
  for (std::size_t g = 0; g < impl_->groups.size(); g++) {
    const AttentionGroup& group = impl_->groups[g];
    const bool early = group.delayed && length <= group.delayed->start;
    const std::int64_t first =
        std::max<std::int64_t>(0, length - retained_positions(group, impl_->limits)) / b;
    const std::int64_t sinks = std::min<std::int64_t>(first, sink_pages(group, static_cast<std::int32_t>(b)));
    bytes += impl_->sizes[early ? kEarly : kFinal][g].page *
             static_cast<std::size_t>((length + b - 1) / b - first + sinks);
  }
  for (const RecurrentBytes& size : impl_->recurrent_sizes) bytes += length > 0 ? size.state : 0;
  return bytes;
}

Result<StatePlan> StatePlan::with_codec(const Codec& codec) const {
  Builder builder(impl_->limits);
  builder.page_tokens(impl_->page_tokens);
  for (AttentionGroup g : impl_->groups) {
    g.keys = codec;
    g.values = codec;
    g.delayed.reset();
    builder.attention(std::move(g));
  }
  for (const RecurrentGroup& g : impl_->recurrent) builder.recurrent(g);
  return builder.build();
}

std::string StatePlan::to_json() const {
  const Limits& l = impl_->limits;
  ordered_json groups = ordered_json::array(), recurrent_groups = ordered_json::array();
  for (int i = 0; i < group_count(); i++)
    groups.push_back(group_json(group(i), group_bytes(i), delayed_bytes(i)));
  for (int i = 0; i < recurrent_count(); i++)
    recurrent_groups.push_back(recurrent_json(recurrent(i), recurrent_bytes(i)));
  return ordered_json{{"bytes", bytes()},
                      {"page_tokens", page_tokens()},
                      {"limits", ordered_json{{"rows", l.rows},
                                              {"tokens", l.tokens},
                                              {"step_tokens", l.step_tokens},
                                              {"rollback", l.rollback},
                                              {"total_tokens", l.total_tokens},
                                              {"tree_nodes", l.tree_nodes},
                                              {"verify_tokens", l.verify_tokens}}},
                      {"groups", std::move(groups)},
                      {"recurrent", std::move(recurrent_groups)}}
      .dump();
}

}  // namespace windrow
