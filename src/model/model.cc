// Model: loading, facts, and the state plan.
#include "windrow/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "io/safetensors.h"
#include "model/config.h"
#include "model/families.h"
#include "model/model_impl.h"
#include "model/random_weights.h"
#include "model/weights.h"

namespace windrow {
namespace {

ModelInfo info_of(const ModelConfig& c, std::vector<LayerShape> layers) {
  ModelInfo info;
  info.model_type = c.model_type;
  info.hidden_size = c.hidden_size;
  info.heads = c.num_heads;
  info.vocab_size = c.vocab_size;
  info.max_positions = c.max_position_embeddings;
  info.layers = std::move(layers);
  info.dtype = c.dtype;
  info.bos_ids = c.bos_token_ids;
  info.eos_ids = c.eos_token_ids;
  return info;
}

struct Description {
  ModelConfig config;
  const FamilyEntry* family;
  DecoderSpec spec;
  ModelInfo info;
};

// `file` is what messages call the config.
Result<Description> describe(ModelConfig config, const std::string& file) {
  Result<const FamilyEntry*> family = find_family(config.model_type);
  if (!family.ok()) return family.status().with_context(file);
  Result<DecoderSpec> spec = (*family)->describe(config);
  if (!spec.ok()) return spec.status().with_context(file);
  ModelInfo info = info_of(config, spec->layers);
  return Description{std::move(config), *family, std::move(*spec), std::move(info)};
}

Result<Description> read_description(const std::string& folder) {
  const std::string file = folder + "/config.json";
  Result<ModelConfig> config = load_config(folder);
  if (config.ok()) return describe(std::move(*config), file);
  // That no family knows the type says more than what the config lacks.
  const Result<std::string> type = load_model_type(folder);
  const Status unknown = type.ok() ? find_family(*type).status() : Status();
  return unknown.ok() ? config.status() : unknown.with_context(file);
}

Result<Description> parse_description(std::string_view text, const std::string& name) {
  Result<ModelConfig> config = parse_config(text, "", name + ": ");
  if (!config.ok()) return config.status();
  return describe(std::move(*config), name);
}

Result<std::unique_ptr<Family>> load_family(const Description& d, WeightReader& weights) {
  Result<std::unique_ptr<Family>> family = d.family->load(d.config, d.spec, weights);
  if (!family.ok()) return family;
  if (Status s = weights.finish(); !s.ok()) return s;
  return family;
}

Result<std::optional<AffineFormat>> affine_format(const RandomWeightsFormat& f) {
  if (f.bits == 0) return std::optional<AffineFormat>();
  const Codec codec = Codec::affine(f.bits, f.group);
  if (!codec.valid()) return codec.check(f.group);
  return std::optional(AffineFormat{f.bits, f.group});
}

}  // namespace

Result<ModelInfo> read_model_info(const std::string& folder) try {
  Result<Description> d = read_description(folder);
  if (!d.ok()) return d.status();
  return std::move(d->info);
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("{}: {}", folder, e.what()));
}

Result<ModelInfo> parse_model_info(std::string_view config, const std::string& name) try {
  Result<Description> d = parse_description(config, name);
  if (!d.ok()) return d.status();
  return std::move(d->info);
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("{}: {}", name, e.what()));
}

Result<StatePlan> plan_state(const ModelInfo& info, const KvChoice& kv, const Limits& limits) try {
  if (Status s = check_kv_choice(kv, info.layers); !s.ok()) return s;
  std::vector<AttentionGroup> groups;
  std::vector<RecurrentGroup> recurrent;
  std::vector<std::size_t> home(info.layers.size());  // of attention layers: index into groups
  for (std::size_t i = 0; i < info.layers.size(); i++) {
    const LayerShape& l = info.layers[i];
    const int layer = static_cast<int>(i);
    if (l.recurrent) {
      const auto same = std::find_if(recurrent.begin(), recurrent.end(),
                                     [&](const RecurrentGroup& g) { return g.shape == *l.recurrent; });
      if (same == recurrent.end()) {
        recurrent.push_back({{layer}, *l.recurrent});
      } else {
        same->layers.push_back(layer);
      }
      continue;
    }
    if (l.donor >= 0) {
      home[i] = home[static_cast<std::size_t>(l.donor)];
      groups[home[i]].sharers.push_back({layer, l.donor});
      continue;
    }
    const KvCodecs& codecs = kv.of(layer, l);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const AttentionGroup& g) {
      return LayerShape{g.window, g.kv_heads, g.head_dim} == l && KvCodecs{g.keys, g.values} == codecs;
    });
    home[i] = static_cast<std::size_t>(same - groups.begin());
    if (same == groups.end()) {
      groups.push_back({.layers = {},
                        .window = l.window,
                        .kv_heads = l.kv_heads,
                        .head_dim = l.head_dim,
                        .value_dim = 0,
                        .keys = codecs.keys,
                        .values = codecs.values});
    }
    groups[home[i]].layers.push_back(layer);
  }
  StatePlan::Builder builder(limits);
  for (AttentionGroup& g : groups) builder.attention(std::move(g));
  for (RecurrentGroup& g : recurrent) builder.recurrent(std::move(g));
  return builder.build();
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("state plan: {}", e.what()));
}

Model::Model(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<Model> Model::load(const std::string& folder, ThreadPool& pool, const LoadOptions& options) try {
  Result<Description> d = read_description(folder);
  if (!d.ok()) return d.status();
  Result<ModelTensors> tensors = ModelTensors::open(folder);
  if (!tensors.ok()) return tensors.status();
  Result<std::unique_ptr<FolderWeights>> source =
      FolderWeights::create(std::move(*tensors), d->config.quantization);
  if (!source.ok()) return source.status();
  WeightReader weights(**source, pool, options.compute, options.progress);
  Result<std::unique_ptr<Family>> family = load_family(*d, weights);
  if (!family.ok()) return family.status();
  return Model(
      std::make_shared<Impl>(Impl{std::move(d->info), weights.totals(), d->config.moe.experts,
                                  d->config.moe.experts_per_token, std::move(*source), std::move(*family)}));
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("{}: {}", folder, e.what()));
}

Result<Model> Model::random(std::string_view config, const std::string& name,
                            const RandomWeightsFormat& format, ThreadPool& pool,
                            const LoadOptions& options) try {
  const Result<std::optional<AffineFormat>> affine = affine_format(format);
  if (!affine.ok()) return affine.status().with_context(name);
  Result<Description> d = parse_description(config, name);
  if (!d.ok()) return d.status();
  const RandomWeights source(*affine, false, pool);  // what is kept owns its memory
  WeightReader weights(source, pool, options.compute, nullptr);
  Result<std::unique_ptr<Family>> family = load_family(*d, weights);
  if (!family.ok()) return family.status().with_context(name);
  return Model(std::make_shared<Impl>(Impl{std::move(d->info), weights.totals(), d->config.moe.experts,
                                           d->config.moe.experts_per_token, nullptr, std::move(*family)}));
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("{}: {}", name, e.what()));
}

Result<std::size_t> Model::random_bytes(std::string_view config, const std::string& name,
                                        const RandomWeightsFormat& format) try {
  const Result<std::optional<AffineFormat>> affine = affine_format(format);
  if (!affine.ok()) return affine.status().with_context(name);
  const Result<Description> d = parse_description(config, name);
  if (!d.ok()) return d.status();
  Result<ThreadPool> pool = ThreadPool::create(1);
  if (!pool.ok()) return pool.status();
  const RandomWeights source(*affine, true, *pool);
  WeightReader weights(source, *pool, Compute::kDefault, nullptr);
  const Result<std::unique_ptr<Family>> family = load_family(*d, weights);
  if (!family.ok()) return family.status().with_context(name);
  return weights.totals().matrix_bytes + weights.totals().table_bytes;
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("{}: {}", name, e.what()));
}

const ModelInfo& Model::info() const noexcept { return impl_->info; }
std::size_t Model::parameters() const noexcept { return impl_->totals.parameters; }
std::size_t Model::weight_bytes() const noexcept { return impl_->totals.matrix_bytes; }

std::size_t Model::multiplications() const noexcept {
  const WeightTotals& t = impl_->totals;
  if (impl_->experts == 0) return t.numbers;
  const auto count = static_cast<std::size_t>(impl_->experts);
  return t.numbers - t.expert_numbers +
         t.expert_numbers / count * static_cast<std::size_t>(impl_->experts_per_token);
}

std::size_t Model::weight_bytes_read(int rows) const noexcept {
  const WeightTotals& t = impl_->totals;
  if (impl_->experts == 0) return t.matrix_bytes;
  const double passed_over = 1.0 - static_cast<double>(impl_->experts_per_token) / impl_->experts;
  const double chosen = 1.0 - std::pow(passed_over, rows);
  return t.matrix_bytes - t.expert_bytes +
         static_cast<std::size_t>(chosen * static_cast<double>(t.expert_bytes));
}

Result<StatePlan> Model::plan(const KvChoice& kv, const Limits& limits) const {
  return plan_state(impl_->info, kv, limits);
}

}  // namespace windrow
