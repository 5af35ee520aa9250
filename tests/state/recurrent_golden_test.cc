// Recurrent layers against MLX (tests/data/mlx/G5_gated_delta): the delta rule by itself, and whole
// layers with convolution tail and state over several calls, with padding on either side, masks and
// dropped rows. Only valid positions are fed: storage knows no padding.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/float16.h"
#include "io/safetensors.h"
#include "support/simd_targets.h"
#include "windrow/causal_conv.h"
#include "windrow/gated_delta.h"

namespace windrow {
namespace {

using Json = nlohmann::json;

constexpr float kTolerance = 1e-5f;  // of f32 results: MLX's and ours are each within 1e-6 of exact

// Rounding to bf16, 8 significant bits: half a unit in the last place at most, relative.
constexpr float kBf16 = 0x1p-8f;

// MLX computes the logistic of bf16 in bf16 and so misses the rounded exact one by up to a unit in the last
// place.
constexpr float kBf16Beta = 2 * kBf16;

struct Tensor {
  std::vector<std::size_t> shape;
  std::vector<float> values;

  // [i], [i][j] of a packed tensor.
  const float* at(std::size_t i) const { return &values[i * (values.size() / shape[0])]; }
  const float* at(std::size_t i, std::size_t j) const {
    return at(i) + j * (values.size() / (shape[0] * shape[1]));
  }
};

class Case {
 public:
  explicit Case(const std::filesystem::path& path)
      : name(path.stem().string()), file_(SafetensorsFile::open(path.string()).value()) {
    std::ifstream in(std::filesystem::path(path).replace_extension(".json"));
    json = Json::parse(in);
  }

  bool has(const std::string& tensor) const { return file_.find(tensor) != nullptr; }
  Tensor get(const std::string& tensor) const {
    const TensorView* view = file_.find(tensor);
    if (view == nullptr) throw std::out_of_range(name + ": no tensor " + tensor);
    Tensor out = {view->shape, {}};
    for (std::size_t i = 0; i < view->elements(); i++) {
      const std::byte* p = view->bytes.data() + i * dtype_size(view->dtype);
      std::uint32_t word = 0;
      std::memcpy(&word, p, dtype_size(view->dtype));
      const auto half = static_cast<std::uint16_t>(word);
      switch (view->dtype) {
        case DType::kF32: out.values.push_back(std::bit_cast<float>(word)); break;
        case DType::kBF16: out.values.push_back(f32_from_bf16(half)); break;
        case DType::kBool: out.values.push_back(word != 0); break;
        default: throw std::out_of_range(name + ": dtype of " + tensor);
      }
    }
    return out;
  }

  bool bf16() const { return json["dtype"] == "bfloat16"; }
  GatedDeltaShape delta() const {
    return {json["Hk"], json["Hv"], json["Dk"], json["Dv"],
            json.value("gate", "scalar") == "vector" ? DecayGate::kVector : DecayGate::kScalar};
  }

  std::string name;
  Json json;

 private:
  SafetensorsFile file_;
};

std::vector<Case> cases(const std::string& prefix) {
  std::vector<Case> out;
  for (const auto& entry : std::filesystem::directory_iterator(WINDROW_TEST_DATA "/mlx/G5_gated_delta")) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() == ".safetensors" && path.stem().string().starts_with(prefix))
      out.emplace_back(path);
  }
  return out;
}

void expect_near(const float* got, const float* want, std::size_t n, float relative, float slack,
                 const std::string& what) {
  for (std::size_t i = 0; i < n; i++) {
    ASSERT_NEAR(got[i], want[i], kTolerance + slack + relative * std::abs(want[i])) << what << ' ' << i;
  }
}

// The tokens of row b at the valid positions of a [B, T, ...] call, packed.
struct Gathered {
  std::vector<float> q, k, v, g, beta;
  std::vector<std::size_t> positions;

  GatedDeltaTokens tokens() const {
    return {positions.size(), q.data(), k.data(), v.data(), g.data(), beta.data()};
  }
};

void add(std::vector<float>& out, const Tensor& from, std::size_t b, std::size_t t) {
  out.insert(out.end(), from.at(b, t), from.at(b, t + 1));
}

std::vector<std::size_t> valid_positions(const Case& c, const std::string& mask, std::size_t b,
                                         std::size_t t) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < t; i++) {
    if (!c.has(mask) || *c.get(mask).at(b, i) != 0) out.push_back(i);
  }
  return out;
}

class RecurrentGolden : public ::testing::Test {};

TEST_F(RecurrentGolden, DeltaRuleEqualsMlxInEveryCase) {
  std::size_t positions = 0, masked = 0, files = 0;
  const int targets = testing::on_every_target([&] {
    for (const Case& c : cases("gd_")) {
      SCOPED_TRACE(c.name);
      files++;
      const GatedDeltaShape shape = c.delta();
      ASSERT_TRUE(shape.check().ok());
      const Tensor q = c.get("q"), k = c.get("k"), v = c.get("v"), g = c.get("g"), beta = c.get("beta");
      const Tensor want_y = c.get("y"), want_state = c.get("state_out");
      const std::size_t rows = q.shape[0], length = q.shape[1];
      for (std::size_t b = 0; b < rows; b++) {
        Gathered in;
        in.positions = valid_positions(c, "mask", b, length);
        for (const std::size_t t : in.positions) {
          add(in.q, q, b, t), add(in.k, k, b, t), add(in.v, v, b, t), add(in.g, g, b, t),
              add(in.beta, beta, b, t);
        }
        std::vector<float> state(shape.state_floats()), y(in.v.size());
        if (c.has("state_in")) {
          const Tensor from = c.get("state_in");
          state.assign(from.at(b), from.at(b) + state.size());
        }
        gated_delta_advance(shape, in.tokens(), state.data(), state.data(), y.data());
        // bf16 cases: MLX too keeps state and sums in f32 and rounds y alone.
        expect_near(state.data(), want_state.at(b), state.size(), 0, 0, "state");
        for (std::size_t i = 0; i < in.positions.size(); i++) {
          expect_near(&y[i * shape.value_floats()], want_y.at(b, in.positions[i]), shape.value_floats(),
                      c.bf16() ? kBf16 : 0, 0, "y");
        }
        positions += in.positions.size();
        masked += length - in.positions.size();
      }
    }
  });
  const auto n = static_cast<std::size_t>(targets);
  EXPECT_EQ(files, 14 * n);
  EXPECT_EQ(positions, 92 * n);
  EXPECT_EQ(masked, 8 * n);
}

TEST_F(RecurrentGolden, GatesEqualMlx) {
  std::size_t decays = 0, betas = 0;
  for (const Case& c : cases("gd_")) {
    SCOPED_TRACE(c.name);
    const Tensor b = c.get("b"), beta = c.get("beta"), g = c.get("g");
    for (std::size_t i = 0; i < b.values.size(); i++, betas++) {
      ASSERT_NEAR(gated_delta_beta(b.values[i]), beta.values[i],
                  (c.bf16() ? kBf16Beta : 1e-6f) * beta.values[i])
          << i;
    }
    if (!c.has("a")) continue;  // vector gates come as they are
    const Tensor a = c.get("a"), a_log = c.get("A_log"), dt_bias = c.get("dt_bias");
    for (std::size_t i = 0; i < a.values.size(); i++, decays++) {
      const std::size_t h = i % a_log.values.size();
      ASSERT_NEAR(gated_delta_decay(a.values[i], a_log.values[h], dt_bias.values[h]), g.values[i], 1e-6f)
          << i;
    }
  }
  EXPECT_EQ(decays, 272u);
  EXPECT_EQ(betas, 324u);
}

// One row of a layer.
struct LayerRow {
  std::vector<float> tail, state;
  std::vector<float> slack;  // [value_heads * value_dim]: the norm by which a row of the matrices may be off
};

float norm(const float* x, std::size_t n) {
  float squares = 0;
  for (std::size_t i = 0; i < n; i++) squares += x[i] * x[i];
  return std::sqrt(squares);
}

// A head's vector over its root mean square, times `scale`: what Qwen3-Next does to q and k.
void rms_normalize(float* x, std::size_t n, float scale) {
  double squares = 0;
  for (std::size_t i = 0; i < n; i++) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double factor = static_cast<double>(scale) / std::sqrt(squares / static_cast<double>(n) + 1e-6);
  for (std::size_t i = 0; i < n; i++) x[i] = static_cast<float>(static_cast<double>(x[i]) * factor);
}

// A recorded layer, driven call by call.
class LayerDriver {
 public:
  explicit LayerDriver(const Case& c)
      : c_(c), shape_(c.delta()), a_log_(c.get("w.A_log")), dt_bias_(c.get("w.dt_bias")) {
    const Tensor weights = c.get("w.conv1d.weight");
    conv_ = {static_cast<int>(weights.shape[0]), static_cast<int>(weights.shape[1])};
    weights_ = conv_weights_by_tap(conv_, weights.values.data());
  }

  std::size_t positions = 0, padded = 0, calls = 0, idle_rows = 0, filters = 0;

  void run() {
    for (const Json& step : c_.json["steps"]) {
      if (step["op"] == "filter") filter(step["keep"]);
      if (step["op"] == "forward") forward("s" + std::to_string(step["i"].get<int>()) + ".");
    }
  }

 private:
  void filter(const std::vector<std::size_t>& keep) {
    std::vector<LayerRow> rows;
    for (const std::size_t r : keep) rows.push_back(rows_.at(r));
    rows_ = rows;
    filters++;
  }

  void forward(const std::string& s) {
    SCOPED_TRACE(s);
    const Tensor mixed = c_.get(s + "mixed_qkv_masked"), tails = c_.get(s + "conv_state"),
                 states = c_.get(s + "rec_state");
    const std::size_t rows = mixed.shape[0], length = mixed.shape[1];
    if (rows_.empty()) {
      rows_.assign(rows, {std::vector<float>(conv_.tail_floats()), std::vector<float>(shape_.state_floats()),
                          std::vector<float>(shape_.value_floats())});
    }
    ASSERT_EQ(rows_.size(), rows);
    for (std::size_t b = 0; b < rows; b++) {
      const std::vector<std::size_t> valid = valid_positions(c_, s + "mask", b, length);
      LayerRow& row = rows_[b];
      std::vector<float> x;
      for (const std::size_t t : valid) add(x, mixed, b, t);
      Gathered in;
      in.positions = valid;
      convolve(s, b, row, x, in);
      advance_conv_tail(conv_, row.tail.data(), x.data(), valid.size(), row.tail.data());
      if (c_.bf16()) add_slack(row, in);
      std::vector<float> y(in.v.size());
      gated_delta_advance(shape_, in.tokens(), row.state.data(), row.state.data(), y.data());

      ASSERT_EQ(row.tail, std::vector<float>(tails.at(b), tails.at(b) + row.tail.size()));
      const std::size_t dim = static_cast<std::size_t>(shape_.key_dim);
      for (std::size_t i = 0; i < row.slack.size(); i++) {
        expect_near(&row.state[i * dim], states.at(b) + i * dim, dim, 0, row.slack[i], "state");
      }
      const Tensor want = c_.get(s + "delta_y");
      for (std::size_t i = 0; i < y.size(); i++) {
        const std::size_t at = i % shape_.value_floats(), t = i / shape_.value_floats();
        // |q| = key_dim^-1/2, so a state off by a row of norm e moves y by no more than that times e.
        expect_near(&y[i], want.at(b, valid[t]) + at, 1, c_.bf16() ? kBf16 : 0,
                    row.slack[at] / std::sqrt(static_cast<float>(dim)), "y");
      }
      positions += valid.size();
      padded += length - valid.size();
      idle_rows += valid.empty();
    }
    calls++;
  }

  // What the doubt about beta does to the state: each write delta k^T may be off by kBf16Beta of itself, and
  // what a row of the matrix is off by is only shrunk by later tokens: by g <= 1 and, as |k| is 1 and
  // beta within 0 .. 1, by I - beta k k^T.
  void add_slack(LayerRow& row, const Gathered& in) const {
    const std::size_t dim = static_cast<std::size_t>(shape_.key_dim), rows = row.slack.size();
    std::vector<float> before = row.state, after = row.state;
    for (std::size_t t = 0; t < in.positions.size(); t++) {
      const float* g = &in.g[t * shape_.decay_floats()];
      const GatedDeltaTokens token = {1,
                                      nullptr,
                                      &in.k[t * shape_.key_floats()],
                                      &in.v[t * shape_.value_floats()],
                                      g,
                                      &in.beta[t * shape_.beta_floats()]};
      gated_delta_advance(shape_, token, before.data(), after.data(), nullptr);
      for (std::size_t i = 0; i < rows * dim; i++) {
        before[i] = after[i] - before[i] * g[i / (rows / shape_.beta_floats() * dim)];  // the write
      }
      for (std::size_t i = 0; i < rows; i++) row.slack[i] += kBf16Beta * norm(&before[i * dim], dim);
      before = after;
    }
  }

  // The convolution of one row's inputs, and from it q, k and v; a bf16 layer rounds between the steps, so
  // there the state is fed with the recorded ones.
  void convolve(const std::string& s, std::size_t b, const LayerRow& row, const std::vector<float>& x,
                Gathered& in) {
    const std::size_t channels = conv_.input_floats(), keys = shape_.key_floats();
    const std::size_t dim = static_cast<std::size_t>(shape_.key_dim), count = in.positions.size();
    std::vector<float> sums(x.size()), out(x.size());
    causal_conv(conv_, row.tail.data(), x.data(), count, weights_.data(), Activation::kNone, sums.data());
    causal_conv(conv_, row.tail.data(), x.data(), count, weights_.data(), Activation::kSilu, out.data());
    const Tensor want = c_.get(s + "conv_out_silu"), q = c_.get(s + "q_norm"), k = c_.get(s + "k_norm"),
                 v = c_.get(s + "v"), a = c_.get(s + "a"), strength = c_.get(s + "b");
    for (std::size_t i = 0; i < count; i++) {
      const std::size_t t = in.positions[i];
      float* token = &out[i * channels];
      for (std::size_t c = 0; c < channels; c++) {
        // bf16: the sum, its logistic and their product are each rounded; the slope of silu is below 1.1.
        const float sum = std::abs(sums[i * channels + c]), silu = std::abs(token[c]);
        ASSERT_NEAR(token[c], want.at(b, t)[c],
                    kTolerance + (c_.bf16() ? kBf16 * (1.1f * sum + 2 * silu) : 0))
            << c;
      }
      if (c_.bf16()) {
        add(in.q, q, b, t), add(in.k, k, b, t), add(in.v, v, b, t);
      } else {
        for (std::size_t h = 0; h < keys; h += dim) {
          rms_normalize(token + h, dim, 1.0f / static_cast<float>(dim));
          rms_normalize(token + keys + h, dim, 1.0f / std::sqrt(static_cast<float>(dim)));
        }
        expect_near(token, q.at(b, t), keys, 0, 0, "q");
        expect_near(token + keys, k.at(b, t), keys, 0, 0, "k");
        in.q.insert(in.q.end(), token, token + keys);
        in.k.insert(in.k.end(), token + keys, token + 2 * keys);
        in.v.insert(in.v.end(), token + 2 * keys, token + channels);
      }
      for (std::size_t h = 0; h < shape_.beta_floats(); h++) {
        in.g.push_back(gated_delta_decay(a.at(b, t)[h], a_log_.values[h], dt_bias_.values[h]));
        in.beta.push_back(
            round_to(c_.bf16() ? DType::kBF16 : DType::kF32, gated_delta_beta(strength.at(b, t)[h])));
      }
    }
    ASSERT_EQ(in.v.size(), count * shape_.value_floats());
  }

  const Case& c_;
  GatedDeltaShape shape_;
  CausalConvShape conv_;
  Tensor a_log_, dt_bias_;
  std::vector<float> weights_;
  std::vector<LayerRow> rows_;
};

TEST_F(RecurrentGolden, LayersEqualMlxOverCallsPaddingMasksAndDroppedRows) {
  std::size_t files = 0, positions = 0, padded = 0, calls = 0, idle_rows = 0, filters = 0;
  const int targets = testing::on_every_target([&] {
    for (const Case& c : cases("gdn_")) {
      SCOPED_TRACE(c.name);
      LayerDriver driver(c);
      driver.run();
      files++;
      positions += driver.positions;
      padded += driver.padded;
      calls += driver.calls;
      idle_rows += driver.idle_rows;
      filters += driver.filters;
    }
  });
  const auto n = static_cast<std::size_t>(targets);
  EXPECT_EQ(files, 6 * n);
  EXPECT_EQ(calls, 25 * n);
  EXPECT_EQ(positions, 71 * n);
  EXPECT_EQ(padded, 12 * n);
  EXPECT_EQ(idle_rows, 2 * n);
  EXPECT_EQ(filters, 1 * n);
}

}  // namespace
}  // namespace windrow
