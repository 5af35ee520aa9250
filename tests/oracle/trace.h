// The golden traces of tests/data/mlx: NAME.json (steps) beside NAME.safetensors (tensors).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/float16.h"
#include "io/safetensors.h"
#include "oracle/batch_kv.h"

namespace windrow::oracle {

class Trace {
 public:
  Trace(const std::string& folder, const std::string& name)
      : name_(name), tensors_(open(folder + "/" + name + ".safetensors")) {
    std::ifstream in(folder + "/" + name + ".json");
    json_ = nlohmann::json::parse(in);
  }
  // Names of the cases of a group, sorted.
  static std::vector<std::string> names(const std::string& group) {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder(group))) {
      if (entry.path().extension() == ".json") out.push_back(entry.path().stem().string());
    }
    std::ranges::sort(out);
    return out;
  }
  static std::string folder(const std::string& group) { return WINDROW_TEST_DATA "/mlx/" + group; }
  static Trace load(const std::string& group, const std::string& name) { return Trace(folder(group), name); }

  const std::string& name() const { return name_; }
  const nlohmann::json& json() const { return json_; }
  const nlohmann::json& steps() const { return json_.at("steps"); }

  const TensorView& view(const std::string& name) const {
    const TensorView* t = tensors_.find(name);
    if (t == nullptr) throw std::runtime_error(name_ + ": no tensor " + name);
    return *t;
  }
  Kv kv(const std::string& prefix) const { return {tensor(prefix + ".k"), tensor(prefix + ".v")}; }
  Kv kv(const std::string& what, int step) const { return kv(what + "." + std::to_string(step)); }
  // [batch][1][queries][columns], [queries][columns] or [columns].
  Mask mask(const std::string& name) const {
    const TensorView& t = view(name);
    const std::size_t n = t.shape.size();
    const auto dim = [&](std::size_t from_end) {
      return n < from_end ? 1 : static_cast<int>(t.shape[n - from_end]);
    };
    Mask m{n == 4 ? dim(4) : 1, dim(2), dim(1), {}};
    for (const std::byte b : t.bytes) m.seen.push_back(static_cast<std::uint8_t>(b));
    return m;
  }

  // Widened to f32, which loses nothing.
  std::vector<float> numbers(const std::string& name) const {
    const TensorView& t = view(name);
    std::vector<float> out(t.elements());
    for (std::size_t i = 0; i < out.size(); i++) {
      std::uint16_t half = 0;
      if (t.dtype == DType::kF32) {
        std::memcpy(&out[i], t.bytes.data() + 4 * i, 4);
      } else {
        std::memcpy(&half, t.bytes.data() + 2 * i, 2);
        out[i] = t.dtype == DType::kF16 ? f32_from_f16(half) : f32_from_bf16(half);
      }
    }
    return out;
  }
  Tensor tensor(const std::string& name) const {
    const auto dim = [&](std::size_t i) { return static_cast<int>(view(name).shape.at(i)); };
    Tensor out(dim(0), dim(1), dim(2), dim(3));
    out.values = numbers(name);
    return out;
  }

 private:
  static SafetensorsFile open(const std::string& path) {
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file.ok()) throw std::runtime_error(std::string(file.status().message()));
    return std::move(*file);
  }
  std::string name_;
  SafetensorsFile tensors_;
  nlohmann::json json_;
};

inline void expect_bits(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.batch, want.batch);
  ASSERT_EQ(got.heads, want.heads);
  ASSERT_EQ(got.columns, want.columns);
  ASSERT_EQ(got.dim, want.dim);
  ASSERT_TRUE(same_bits(got, want));
}
inline void expect_bits(const Kv& got, const Kv& want) {
  expect_bits(got.k, want.k);
  expect_bits(got.v, want.v);
}

// What the trace fed so far, by token number, and the check of its `slot_tokens` against tensors.
class Tokens {
 public:
  void feed(int token, const Kv& fresh, int row, int column) {
    fed_[token] = fresh.take_rows({row}).cut(column, column + 1);
  }

  // slots[b][t] is the token in column t of row b; -1: zeros.
  void expect_slots(const Kv& columns, const std::vector<Ints>& slots) const {
    ASSERT_EQ(static_cast<std::size_t>(columns.batch()), slots.size());
    for (int b = 0; b < columns.batch(); b++) {
      ASSERT_EQ(static_cast<std::size_t>(columns.columns()), slots[b].size());
      for (int t = 0; t < columns.columns(); t++) {
        const Kv one = columns.take_rows({b}).cut(t, t + 1);
        expect_bits(one, slots[b][t] < 0 ? one.zeros(1, 1) : fed_.at(slots[b][t]));
      }
    }
  }

 private:
  std::map<int, Kv> fed_;
};

}  // namespace windrow::oracle
