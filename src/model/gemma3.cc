// Gemma 3 (text): sliding and full layers with their own RoPE, norms of queries and keys, norms
// before and after each block, a gated MLP with tanh-GELU, embeddings scaled by sqrt(hidden).
// Gemma Team, "Gemma 3 Technical Report", arXiv 2503.19786.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/json.h"
#include "model/family.h"
#include "model/layers.h"
#include "model/rope.h"

namespace windrow {
namespace {

struct Layer {
  PackedMatrix q, k, v, o, gate, up, down;
  std::vector<float> input_norm, post_attention_norm, pre_feedforward_norm, post_feedforward_norm;
  std::vector<float> q_norm, k_norm;
  bool sliding = false;
};

// Below this many tokens the elementwise work of a section (some microseconds) costs less than
// waking the pool for it.
constexpr std::size_t kParallelTokens = 16;

// The activations of one step, cut from the runner's scratch; all [tokens, width].
struct Activations {
  float *x, *h, *q, *k, *v, *attended, *gate, *up, *y;
  float *cosine[2], *sine[2];  // [tokens, head_dim / 2], full and sliding
};

class Gemma3 final : public Family {
 public:
  explicit Gemma3(const ModelConfig& c)
      : config_(c),
        hidden_(static_cast<std::size_t>(c.hidden_size)),
        inner_(static_cast<std::size_t>(c.intermediate_size)),
        head_dim_(static_cast<std::size_t>(c.head_dim)),
        heads_(static_cast<std::size_t>(c.num_heads)),
        kv_heads_(static_cast<std::size_t>(c.num_kv_heads)),
        vocab_(static_cast<std::size_t>(c.vocab_size)),
        eps_(static_cast<float>(c.rms_norm_eps)),
        embedding_scale_(static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size)))),
        rope_{RopeFrequencies(c.head_dim, c.rope_full), RopeFrequencies(c.head_dim, c.rope_sliding)} {}

  Status read(WeightReader& weights);
  std::size_t scratch_floats(std::size_t max_tokens) const override {
    return carve(nullptr, max_tokens, nullptr);
  }
  Status forward(const Pass& pass) const override;

 private:
  Status read_layer(WeightReader& weights, int index);
  std::size_t carve(float* base, std::size_t tokens, Activations* out) const;
  void embed(const Pass& pass, const Activations& a) const;
  Status attend(const Pass& pass, const Activations& a, int index, LapClock& clock) const;
  void feed_forward(const Pass& pass, const Activations& a, int index, std::size_t tokens,
                    LapClock& clock) const;

  ModelConfig config_;
  std::size_t hidden_, inner_, head_dim_, heads_, kv_heads_, vocab_;
  float eps_;
  float embedding_scale_;
  RopeFrequencies rope_[2];  // full, sliding
  RowTable embedding_;
  PackedMatrix head_;
  std::vector<Layer> layers_;
  std::vector<float> final_norm_;
};

// Runs body(token) for each token: here, or on the pool where there is enough to do.
template <class Body>
void each_token(ThreadPool& pool, std::size_t tokens, const Body& body) {
  if (tokens < kParallelTokens) {
    for (std::size_t t = 0; t < tokens; t++) body(t);
  } else {
    pool.parallel_for(tokens, [&](std::size_t t, int) { body(t); });
  }
}

// Keeps row wanted[i] as row i. In place: wanted ascends, so no row is overwritten before it is read.
void keep_rows(float* rows, std::size_t width, std::span<const std::int32_t> wanted) {
  for (std::size_t i = 0; i < wanted.size(); i++) {
    std::memmove(rows + i * width, rows + static_cast<std::size_t>(wanted[i]) * width, width * sizeof(float));
  }
}

template <class T>
Status put(Result<T> result, T& where) {
  if (!result.ok()) return result.status();
  where = std::move(*result);
  return {};
}

Status Gemma3::read_layer(WeightReader& weights, int index) {
  Layer& l = layers_[static_cast<std::size_t>(index)];
  l.sliding = config_.layer_types[static_cast<std::size_t>(index)] == LayerType::kSliding;
  const std::size_t q = heads_ * head_dim_, kv = kv_heads_ * head_dim_;
  const auto name = [&](const char* part) { return fmt::format("layers.{}.{}.weight", index, part); };
  const struct {
    const char* part;
    PackedMatrix* to;
    std::size_t rows, cols;
  } matrices[] = {{"self_attn.q_proj", &l.q, q, hidden_},      {"self_attn.k_proj", &l.k, kv, hidden_},
                  {"self_attn.v_proj", &l.v, kv, hidden_},     {"self_attn.o_proj", &l.o, hidden_, q},
                  {"mlp.gate_proj", &l.gate, inner_, hidden_}, {"mlp.up_proj", &l.up, inner_, hidden_},
                  {"mlp.down_proj", &l.down, hidden_, inner_}};
  for (const auto& m : matrices) {
    if (Status s = put(weights.matrix(name(m.part), m.rows, m.cols), *m.to); !s.ok()) return s;
  }
  const struct {
    const char* part;
    std::vector<float>* to;
    std::size_t size;
  } norms[] = {{"input_layernorm", &l.input_norm, hidden_},
               {"post_attention_layernorm", &l.post_attention_norm, hidden_},
               {"pre_feedforward_layernorm", &l.pre_feedforward_norm, hidden_},
               {"post_feedforward_layernorm", &l.post_feedforward_norm, hidden_},
               {"self_attn.q_norm", &l.q_norm, head_dim_},
               {"self_attn.k_norm", &l.k_norm, head_dim_}};
  for (const auto& n : norms) {
    if (Status s = put(weights.vector(name(n.part), n.size, 1.0f), *n.to); !s.ok()) return s;
  }
  return {};
}

Status Gemma3::read(WeightReader& weights) {
  if (Status s = put(weights.row_table("embed_tokens.weight", vocab_, hidden_), embedding_); !s.ok())
    return s;
  layers_.resize(static_cast<std::size_t>(config_.num_layers));
  for (int i = 0; i < config_.num_layers; i++) {
    if (Status s = read_layer(weights, i); !s.ok()) return s;
  }
  if (Status s = put(weights.vector("norm.weight", hidden_, 1.0f), final_norm_); !s.ok()) return s;
  return put(config_.tie_word_embeddings ? weights.matrix("embed_tokens.weight", vocab_, hidden_)
                                         : weights.head(vocab_, hidden_),
             head_);
}

// Floats needed for `tokens`; sets the pointers of `out` if there is one.
std::size_t Gemma3::carve(float* base, std::size_t tokens, Activations* out) const {
  Activations none;
  Activations& a = out != nullptr ? *out : none;
  std::size_t used = 0;
  const auto cut = [&](float*& to, std::size_t width) {
    to = base == nullptr ? nullptr : base + used;
    used += round_up(tokens * width, 16);  // 64 bytes
  };
  cut(a.x, hidden_);
  cut(a.h, hidden_);
  cut(a.y, hidden_);
  cut(a.q, heads_ * head_dim_);
  cut(a.k, kv_heads_ * head_dim_);
  cut(a.v, kv_heads_ * head_dim_);
  cut(a.attended, heads_ * head_dim_);
  cut(a.gate, inner_);
  cut(a.up, inner_);
  for (int kind = 0; kind < 2; kind++) {
    cut(a.cosine[kind], head_dim_ / 2);
    cut(a.sine[kind], head_dim_ / 2);
  }
  return used;
}

// x = embedding * sqrt(hidden), h = the first layer's norm of it, and the step's rotations.
void Gemma3::embed(const Pass& pass, const Activations& a) const {
  const std::span<const std::int32_t> positions = pass.step.positions();
  const std::size_t half = head_dim_ / 2;
  each_token(pass.pool, pass.ids.size(), [&](std::size_t t) {
    embedding_.row(static_cast<std::size_t>(pass.ids[t]), embedding_scale_, a.x + t * hidden_);
    rms_norm(a.x + t * hidden_, layers_[0].input_norm.data(), hidden_, eps_, a.h + t * hidden_);
    for (int kind = 0; kind < 2; kind++) {
      rope_[kind].fill(positions[t], a.cosine[kind] + t * half, a.sine[kind] + t * half);
    }
  });
}

// attended = attention(h), and this layer's keys and values go into the step.
Status Gemma3::attend(const Pass& pass, const Activations& a, int index, LapClock& clock) const {
  const Layer& l = layers_[static_cast<std::size_t>(index)];
  const std::size_t tokens = pass.ids.size(), half = head_dim_ / 2;
  const std::size_t q = heads_ * head_dim_, kv = kv_heads_ * head_dim_;
  const ProductOutput qkv[] = {{&l.q, a.q, q}, {&l.k, a.k, kv}, {&l.v, a.v, kv}};
  products(qkv, a.h, hidden_, tokens, pass.pool);
  clock.lap(&ForwardProfile::products);

  const float* cosine = a.cosine[l.sliding ? 1 : 0];
  const float* sine = a.sine[l.sliding ? 1 : 0];
  each_token(pass.pool, tokens, [&](std::size_t t) {
    norm_rope(a.q + t * q, heads_, head_dim_, l.q_norm.data(), eps_, cosine + t * half, sine + t * half);
    norm_rope(a.k + t * kv, kv_heads_, head_dim_, l.k_norm.data(), eps_, cosine + t * half, sine + t * half);
    spread_nan(a.k + t * kv, kv_heads_, head_dim_);
    spread_nan(a.v + t * kv, kv_heads_, head_dim_);
  });
  clock.lap(&ForwardProfile::layers);

  if (Status s = pass.step.append(index, std::span<const float>(a.k, tokens * kv),
                                  std::span<const float>(a.v, tokens * kv));
      !s.ok()) {
    return s;
  }
  Result<KvRead> read = pass.step.read(index);
  if (!read.ok()) return read.status();
  clock.lap(&ForwardProfile::state);

  AttentionParams params;
  params.q_heads = config_.num_heads;
  params.scale = static_cast<float>(1.0 / std::sqrt(config_.query_pre_attn_scalar));
  params.softcap = static_cast<float>(config_.attn_logit_softcapping);
  Status s = pass.kernels.attend(*read, {a.q, tokens * q}, params, {a.attended, tokens * q}, &pass.pool);
  clock.lap(&ForwardProfile::attention);
  if (!s.ok()) return s;
  return pass.observe(
      {index, {a.q, tokens * q}, {a.k, tokens * kv}, {a.v, tokens * kv}, params, {a.attended, tokens * q}});
}

// x += attention's and the MLP's parts; h = the next norm of x (the next layer's, or the final one).
void Gemma3::feed_forward(const Pass& pass, const Activations& a, int index, std::size_t tokens,
                          LapClock& clock) const {
  const Layer& l = layers_[static_cast<std::size_t>(index)];
  const std::size_t next = static_cast<std::size_t>(index) + 1;
  const std::vector<float>& next_norm = next < layers_.size() ? layers_[next].input_norm : final_norm_;

  const ProductOutput o[] = {{&l.o, a.y, hidden_}};
  products(o, a.attended, heads_ * head_dim_, tokens, pass.pool);
  clock.lap(&ForwardProfile::products);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    float* x = a.x + t * hidden_;
    add_rms_norm(a.y + t * hidden_, l.post_attention_norm.data(), hidden_, eps_, x);
    rms_norm(x, l.pre_feedforward_norm.data(), hidden_, eps_, a.h + t * hidden_);
  });
  clock.lap(&ForwardProfile::layers);

  const ProductOutput gate_up[] = {{&l.gate, a.gate, inner_}, {&l.up, a.up, inner_}};
  products(gate_up, a.h, hidden_, tokens, pass.pool);
  clock.lap(&ForwardProfile::products);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    gelu_tanh_mul(a.gate + t * inner_, a.up + t * inner_, inner_, a.gate + t * inner_);
  });
  clock.lap(&ForwardProfile::layers);

  const ProductOutput down[] = {{&l.down, a.y, hidden_}};
  products(down, a.gate, inner_, tokens, pass.pool);
  clock.lap(&ForwardProfile::products);
  each_token(pass.pool, tokens, [&](std::size_t t) {
    float* x = a.x + t * hidden_;
    add_rms_norm(a.y + t * hidden_, l.post_feedforward_norm.data(), hidden_, eps_, x);
    rms_norm(x, next_norm.data(), hidden_, eps_, a.h + t * hidden_);
  });
  clock.lap(&ForwardProfile::layers);
}

Status Gemma3::forward(const Pass& pass) const {
  LapClock clock(pass.profile);
  Activations a;
  carve(pass.scratch.data(), pass.max_tokens, &a);
  embed(pass, a);
  clock.lap(&ForwardProfile::layers);

  std::size_t tokens = pass.ids.size();
  const int last = config_.num_layers - 1;
  for (int i = 0; i <= last; i++) {
    if (Status s = attend(pass, a, i, clock); !s.ok()) return s;
    if (i == last) {  // what follows serves the logits only
      keep_rows(a.x, hidden_, pass.wanted);
      keep_rows(a.attended, heads_ * head_dim_, pass.wanted);
      tokens = pass.wanted.size();
    }
    feed_forward(pass, a, i, tokens, clock);
  }

  const ProductOutput logits[] = {{&head_, pass.logits.data(), vocab_}};
  products(logits, a.h, hidden_, tokens, pass.pool);
  clock.lap(&ForwardProfile::products);
  if (const float cap = static_cast<float>(config_.final_logit_softcapping); cap > 0) {
    each_token(pass.pool, tokens,
               [&](std::size_t t) { softcap(pass.logits.data() + t * vocab_, vocab_, cap); });
    clock.lap(&ForwardProfile::layers);
  }
  return {};
}

}  // namespace

Result<std::vector<LayerShape>> gemma3_layers(const ModelConfig& config) {
  if (config.hidden_activation != "gelu_pytorch_tanh") {
    return Status(StatusCode::kUnsupported,
                  fmt::format("hidden_activation {}: gemma3 uses \"gelu_pytorch_tanh\"",
                              quote(config.hidden_activation)));
  }
  std::vector<LayerShape> layers;
  for (const LayerType type : config.layer_types) {
    const int window = type == LayerType::kSliding ? config.sliding_window : kFullWindow;
    layers.push_back({window, config.num_kv_heads, config.head_dim});
  }
  return layers;
}

Result<std::unique_ptr<Family>> load_gemma3(const ModelConfig& config, WeightReader& weights) {
  auto model = std::make_unique<Gemma3>(config);
  if (Status s = model->read(weights); !s.ok()) return s;
  return std::unique_ptr<Family>(std::move(model));
}

}  // namespace windrow
