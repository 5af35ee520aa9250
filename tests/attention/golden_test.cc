// MLX's attention (tests/data/mlx/G4_attention): quantized and plain, causal, windowed, left-padded,
// with and without sinks; the reference and every kernel against it.
//
// f32 files are judged against MLX's own output, bf16 files against the f64 reference stored with
// them (MLX's CPU kernel sums in bf16). Masks "additive" are arbitrary numbers, no window: 16 steps in
// 8 files are left to explicit visibility (C12). Left-padded rows ("batch") are shorter rows here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "attention/fixture.h"
#include "attention/targets.h"
#include "base/float16.h"
#include "io/safetensors.h"

namespace windrow::testing {
namespace {

constexpr double kTolerance = 2e-5;  // of the largest |out|, see kernel_test.cc

class Golden {
 public:
  explicit Golden(const std::filesystem::path& json_path) {
    std::ifstream in(json_path);
    info = nlohmann::json::parse(in);
    std::filesystem::path data = json_path;
    Result<SafetensorsFile> opened = SafetensorsFile::open(data.replace_extension(".safetensors"));
    if (!opened.ok()) ADD_FAILURE() << opened.status().message();
    file.emplace(*std::move(opened));
    rows = info["B"], length = info["T"], q_heads = info["n_q"], kv_heads = info["n_kv"], dim = info["D"];
    type = info["dtype"] == "bfloat16" ? DType::kBF16 : DType::kF32;
  }

  const TensorView& tensor(const std::string& name) const {
    const TensorView* found = file->find(name);
    if (found == nullptr) throw std::runtime_error("no tensor " + name);
    return *found;
  }
  std::vector<float> floats(const std::string& name) const {
    const TensorView& t = tensor(name);
    std::vector<float> out(t.elements());
    for (std::size_t i = 0; i < out.size(); i++) {
      if (t.dtype == DType::kF32) std::memcpy(&out[i], t.bytes.data() + 4 * i, 4);
      std::uint16_t half;
      if (t.dtype == DType::kBF16) {
        std::memcpy(&half, t.bytes.data() + 2 * i, 2);
        out[i] = f32_from_bf16(half);
      }
    }
    return out;
  }
  // Element i of a tensor, raw, in a word.
  std::uint32_t raw(const TensorView& t, std::size_t i) const {
    std::uint32_t word = 0;
    std::memcpy(&word, t.bytes.data() + i * dtype_size(t.dtype), dtype_size(t.dtype));
    return word;
  }

  nlohmann::json info;
  std::optional<SafetensorsFile> file;
  int rows, length, q_heads, kv_heads, dim;
  DType type;
};

struct StepCase {
  const Golden& golden;
  std::string name, mask;
  int fresh = 1;
  bool sinks = false;
  Codec codec;
  std::string triple;  // "g64b4", or empty for plain
  int window = kFullWindow;

  StepCase(const Golden& g, const nlohmann::json& step)
      : golden(g),
        name(step["out"]),
        mask(step["mask"]),
        fresh(step["N"]),
        sinks(step.value("sinks", false)) {
    codec = g.type == DType::kF32 ? Codec::f32() : Codec::bf16();
    if (step.contains("bits")) {
      const int bits = step["bits"], group = step["group_size"];
      codec = Codec::affine(bits, group, g.type);
      triple = fmt::format("g{}b{}", group, bits);
    }
    if (mask == "window") window = g.info["window"];
  }

  // Positions of a row that padding hides: what a left-padded row's first query sees begins there, unless
  // its window does. Checks that the mask is the window from there on, exactly.
  int padding(int row) const {
    if (mask != "batch" && mask != "window") return 0;
    const TensorView& t = golden.tensor(fmt::format("mask.{}.N{}", mask, fresh));
    const std::size_t batch_row = mask == "batch" ? static_cast<std::size_t>(row) : 0;
    const auto visible = [&](int query, int position) {
      const std::size_t at = (batch_row * static_cast<std::size_t>(fresh) + static_cast<std::size_t>(query)) *
                                 static_cast<std::size_t>(golden.length) +
                             static_cast<std::size_t>(position);
      return t.bytes[at] != std::byte{0};
    };
    int pad = 0;
    while (!visible(0, pad)) pad++;
    if (pad == window_begin(golden.length - fresh, window)) pad = 0;
    for (int query = 0; query < fresh; query++) {
      const int self = golden.length - fresh + query;
      for (int p = 0; p < golden.length; p++) {
        EXPECT_EQ(visible(query, p), p >= std::max(pad, window_begin(self, window)) && p <= self);
      }
    }
    return pad;
  }

  ReadFixture fixture() const {
    std::vector<RowSpec> rows;
    std::vector<int> pads;
    for (int r = 0; r < golden.rows; r++) {
      pads.push_back(padding(r));
      rows.push_back({.content = r, .history = golden.length - fresh - pads.back(), .fresh = fresh});
    }
    ReadFixture fixture({.keys = codec,
                         .values = codec,
                         .kv_heads = golden.kv_heads,
                         .q_heads = golden.q_heads,
                         .head_dim = golden.dim,
                         .value_dim = golden.dim,
                         .page_tokens = 16,
                         .window = window},
                        rows, 5);
    for (int r = 0; r < golden.rows; r++) {
      const int length = golden.length - pads[static_cast<std::size_t>(r)];
      for (int p = window_begin(length - fresh, window); p < length; p++) {
        for (int h = 0; h < golden.kv_heads; h++) {
          put(fixture, r, p, h, true, pads[static_cast<std::size_t>(r)]);
          put(fixture, r, p, h, false, pads[static_cast<std::size_t>(r)]);
        }
      }
    }
    return fixture;
  }

  // [B, heads, N, D] -> [B, N, heads, D]
  std::vector<float> by_token(const std::vector<float>& in) const {
    std::vector<float> out;
    const int heads = golden.q_heads, dim = golden.dim;
    for (int r = 0; r < golden.rows; r++) {
      for (int n = 0; n < fresh; n++) {
        for (int h = 0; h < heads; h++) {
          const auto begin = in.begin() + ((r * heads + h) * fresh + n) * dim;
          out.insert(out.end(), begin, begin + dim);
        }
      }
    }
    return out;
  }

 private:
  void put(ReadFixture& fixture, int row, int position, int head, bool key, int pad) const {
    const std::string side = key ? "k" : "v";
    const std::size_t vector = (static_cast<std::size_t>(row) * static_cast<std::size_t>(golden.kv_heads) +
                                static_cast<std::size_t>(head)) *
                                   static_cast<std::size_t>(golden.length) +
                               static_cast<std::size_t>(position + pad);
    const auto dim = static_cast<std::size_t>(golden.dim);
    if (triple.empty()) {
      const std::vector<float> all = golden.floats(side);
      return fixture.put_vector(row, position, head, key, std::span(all).subspan(vector * dim, dim));
    }
    const TensorView& packed = golden.tensor(triple + "." + side + ".packed");
    const TensorView& scales = golden.tensor(triple + "." + side + ".scales");
    const TensorView& biases = golden.tensor(triple + "." + side + ".biases");
    std::vector<std::uint32_t> words, params;
    const auto count = static_cast<std::size_t>(codec.record_words(golden.dim));
    for (std::size_t i = 0; i < count; i++) words.push_back(golden.raw(packed, vector * count + i));
    const std::size_t groups = dim / static_cast<std::size_t>(codec.group());
    for (std::size_t g = 0; g < groups; g++) {
      const std::uint32_t scale = golden.raw(scales, vector * groups + g),
                          bias = golden.raw(biases, vector * groups + g);
      if (golden.type == DType::kF32) {
        params.push_back(scale);
        params.push_back(bias);
      } else {
        params.push_back(scale | bias << 16);
      }
    }
    fixture.put_record(row, position, head, key, words, params);
  }
};

TEST(AttentionGolden, EveryWindowedStepOfMlxIsReproduced) {
  std::map<std::string, int> done;
  for (const auto& entry : std::filesystem::directory_iterator(WINDROW_TEST_DATA "/mlx/G4_attention")) {
    if (entry.path().extension() != ".json") continue;
    const Golden golden(entry.path());
    for (const nlohmann::json& step : golden.info["steps"]) {
      const StepCase test(golden, step);
      SCOPED_TRACE(entry.path().stem().string() + " " + test.name);
      done[test.mask]++;
      if (test.mask == "additive") continue;
      const ReadFixture fixture = test.fixture();
      const std::vector<float> q = test.by_token(golden.floats(fmt::format("q{}", test.fresh)));
      std::string answer = test.name;
      if (golden.type == DType::kBF16) answer.replace(0, 3, "ref");
      const std::vector<float> expected = test.by_token(golden.floats(answer));
      const std::vector<float> sinks = test.sinks ? golden.floats("sinks") : std::vector<float>();
      const AttentionParams params{
          .q_heads = golden.q_heads, .scale = golden.info["scale"].get<float>(), .sinks = sinks};
      std::vector<float> out(expected.size());
      const Status status = attend_reference(fixture.read(), q, params, out);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_LE(relative_error(out, expected), kTolerance);
      for_each_target([&](const internal::Kernels& kernels) {
        ASSERT_TRUE(internal::attend_with(kernels, fixture.read(), q, params, out, nullptr).ok());
        EXPECT_LE(relative_error(out, expected), kTolerance);
      });
    }
  }
  const std::map<std::string, int> all = {
      {"none", 34}, {"causal", 30}, {"window", 64}, {"batch", 16}, {"additive", 16}};
  EXPECT_EQ(done, all);
}

}  // namespace
}  // namespace windrow::testing
