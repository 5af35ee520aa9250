// Model: loading, facts, and the state plan.
#include "windrow/model.h"

#include <fmt/format.h>

#include <exception>

#include "io/safetensors.h"
#include "model/config.h"
#include "model/family.h"
#include "model/model_impl.h"
#include "model/weights.h"

namespace windrow {
namespace {

ModelInfo describe(const ModelConfig& c, const Family& family, std::size_t parameters) {
  ModelInfo info;
  info.model_type = c.model_type;
  info.layers = c.num_layers;
  info.hidden_size = c.hidden_size;
  info.heads = c.num_heads;
  info.kv_heads = c.num_kv_heads;
  info.head_dim = c.head_dim;
  info.vocab_size = c.vocab_size;
  info.max_positions = c.max_position_embeddings;
  for (const LayerState& l : family.layers()) info.windows.push_back(l.window);
  info.dtype = c.dtype;
  info.parameters = parameters;
  info.bos_ids = c.bos_token_ids;
  info.eos_ids = c.eos_token_ids;
  return info;
}

}  // namespace

Result<Codec> parse_kv_codec(std::string_view text, int head_dim) {
  Result<Codec> codec = Codec::parse(text);
  if (!codec.ok()) return codec;
  const bool group_given = text.find(':') != std::string_view::npos;
  if (codec->is_affine() && !group_given && head_dim % codec->group() != 0) {
    codec = Codec::affine(codec->bits(), 32, codec->input());
  }
  return codec;
}

Model::Model(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<Model> Model::load(const std::string& folder, ThreadPool& pool, const LoadOptions& options) try {
  Result<ModelConfig> config = load_config(folder);
  if (!config.ok()) return config.status();
  Result<const FamilyEntry*> entry = find_family(config->model_type);
  if (!entry.ok()) return entry.status().with_context(folder + "/config.json");
  Result<ModelTensors> tensors = ModelTensors::open(folder);
  if (!tensors.ok()) return tensors.status();
  Result<WeightReader> weights = WeightReader::create(*tensors, pool, options.progress);
  if (!weights.ok()) return weights.status().with_context(folder);
  Result<std::unique_ptr<Family>> family = (*entry)->load(*config, *weights);
  if (!family.ok()) return family.status().with_context(folder);
  if (Status s = weights->finish(); !s.ok()) return s.with_context(folder);

  ModelInfo info = describe(*config, **family, weights->parameters());
  return Model(std::make_shared<Impl>(Impl{std::move(info), std::move(*tensors), std::move(*family)}));
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("{}: {}", folder, e.what()));
}

const ModelInfo& Model::info() const noexcept { return impl_->info; }

Result<StatePlan> Model::plan(const KvChoice& kv, const Limits& limits) const {
  std::vector<AttentionGroup> groups;
  const std::span<const LayerState> layers = impl_->family->layers();
  for (std::size_t i = 0; i < layers.size(); i++) {
    const LayerState& l = layers[i];
    AttentionGroup* home = nullptr;
    for (AttentionGroup& g : groups) {
      if (g.window == l.window && g.kv_heads == l.kv_heads && g.head_dim == l.head_dim) home = &g;
    }
    if (home == nullptr) {
      const bool full = l.window == kFullWindow;
      groups.push_back({.layers = {},
                        .window = l.window,
                        .kv_heads = l.kv_heads,
                        .head_dim = l.head_dim,
                        .value_dim = 0,
                        .keys = full ? kv.full_keys : kv.sliding_keys,
                        .values = full ? kv.full_values : kv.sliding_values});
      home = &groups.back();
    }
    home->layers.push_back(static_cast<int>(i));
  }
  StatePlan::Builder builder(limits);
  for (AttentionGroup& g : groups) builder.attention(std::move(g));
  return builder.build();
}

}  // namespace windrow
