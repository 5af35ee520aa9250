// Reads names, metadata and shapes of a prompt-cache file. The metadata map is a tree flattened by mlx's
// tree_flatten: "0.LAYER[.N]" the state of a class in words, "1.KEY" the user's, "2.LAYER" the class; in a
// CacheList "0.LAYER.0.I" the class and "0.LAYER.1.I[.N]" the state of its cache I. Tensors are
// "LAYER[.I].PART", parts as each class stores them.
#include "store/prompt_cache_file.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <limits>
#include <optional>

#include "base/json.h"

namespace windrow::prompt_cache {
namespace {

// More layers than any model has; the metadata of a file is bounded anyway.
constexpr int kMaxLayers = 4096;
// Positions, heads and dims beyond it do not fit what the state counts with.
constexpr std::size_t kMaxDim = std::size_t{1} << 30;

using Words = std::vector<std::string>;

class Reader {
 public:
  Reader(const SafetensorsFile& file, const std::string& name) : file_(file), name_(name) {}

  Result<Contents> read() {
    Contents contents;
    for (const auto& [key, value] : file_.metadata()) {
      if (key.starts_with("1.")) contents.metadata.emplace(key.substr(2), value);
    }
    for (int layer = 0; layer < kMaxLayers; layer++) {
      const std::string* type = word(fmt::format("2.{}", layer));
      if (type == nullptr) break;
      if (Status s = read_layer(layer, *type, contents.leaves); !s.ok()) return s;
    }
    if (contents.leaves.empty()) return corrupt("no cache: the metadata has no \"2.0\"");
    for (const Leaf& leaf : contents.leaves) {
      if (leaf.rows == contents.leaves[0].rows) continue;
      return corrupt(fmt::format("{} has {} rows, {} has {}", leaf.name, leaf.rows, contents.leaves[0].name,
                                 contents.leaves[0].rows));
    }
    return contents;
  }

 private:
  Status corrupt(const std::string& message) const {
    return {StatusCode::kCorrupt, fmt::format("{}: {}", name_, message)};
  }
  const std::string* word(const std::string& key) const {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? nullptr : &found->second;
  }
  // A state in words: one, or a list of them. The empty word is no state.
  Words words(const std::string& key) const {
    if (const std::string* one = word(key)) return one->empty() ? Words{} : Words{*one};
    Words list;
    while (const std::string* next = word(fmt::format("{}.{}", key, list.size()))) list.push_back(*next);
    return list;
  }

  Status read_layer(int layer, const std::string& type, std::vector<Leaf>& leaves) {
    if (type != "CacheList") {
      return read_leaf(fmt::format("cache {}", layer), type, words(fmt::format("0.{}", layer)),
                       fmt::format("{}", layer), leaves);
    }
    for (int i = 0; i < kMaxLayers; i++) {
      const std::string* inner = word(fmt::format("0.{}.0.{}", layer, i));
      if (inner == nullptr) {
        return i > 0 ? Status() : corrupt(fmt::format("cache {}: CacheList names no cache", layer));
      }
      Status s = read_leaf(fmt::format("cache {}.{}", layer, i), *inner,
                           words(fmt::format("0.{}.1.{}", layer, i)), fmt::format("{}.{}", layer, i), leaves);
      if (!s.ok()) return s;
    }
    return corrupt(fmt::format("cache {}: more than {} caches in a list", layer, kMaxLayers));
  }

  Status read_leaf(std::string name, const std::string& type, const Words& state, const std::string& prefix,
                   std::vector<Leaf>& leaves) {
    Leaf leaf;
    leaf.name = std::move(name);
    leaf.class_name = type;
    const struct {
      const char* type;
      Status (Reader::*read)(Leaf&, const Words&, const std::string&);
    } classes[] = {{"KVCache", &Reader::read_plain},
                   {"ConcatenateKVCache", &Reader::read_plain},
                   {"RotatingKVCache", &Reader::read_rotating},
                   {"QuantizedKVCache", &Reader::read_quantized},
                   {"BatchKVCache", &Reader::read_batch},
                   {"BatchRotatingKVCache", &Reader::read_batch_rotating},
                   {"ArraysCache", &Reader::read_arrays},
                   {"MambaCache", &Reader::read_mamba}};
    std::string known;
    for (const auto& c : classes) {
      if (type == c.type) {
        if (Status s = (this->*c.read)(leaf, state, prefix); !s.ok()) return s;
        leaves.push_back(std::move(leaf));
        return {};
      }
      known += fmt::format("{}{}", known.empty() ? "" : ", ", c.type);
    }
    return {StatusCode::kUnsupported,
            fmt::format("{}: {} is a {}, which is not supported (supported: {}, CacheList)", name_, leaf.name,
                        quote(type), known)};
  }

  // `count` numbers, the words from `first` on.
  Status numbers(const Leaf& leaf, const Words& state, std::size_t first, std::span<int> to) const {
    for (std::size_t i = 0; i < to.size(); i++) {
      const std::string& text = state[first + i];
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to[i]);
      if (error == std::errc() && end == text.data() + text.size() && to[i] >= 0) continue;
      return corrupt(
          fmt::format("{}: state {} is {}, expected a number from 0 on", leaf.name, first + i, quote(text)));
    }
    return {};
  }
  Status state_size(const Leaf& leaf, const Words& state, std::initializer_list<std::size_t> allowed) const {
    for (const std::size_t n : allowed) {
      if (state.size() == n) return {};
    }
    return corrupt(fmt::format("{}: {} with a state of {} words", leaf.name, leaf.class_name, state.size()));
  }

  Result<TensorView> tensor(const std::string& name, std::size_t rank) const {
    const TensorView* view = file_.find(name);
    if (view == nullptr) return corrupt(fmt::format("no tensor {}", quote(name)));
    if (view->shape.size() != rank) {
      return corrupt(
          fmt::format("tensor {} has {} dimensions, expected {}", quote(name), view->shape.size(), rank));
    }
    for (const std::size_t n : view->shape) {
      if (n > kMaxDim) return corrupt(fmt::format("tensor {} has a dimension of {}", quote(name), n));
    }
    return *view;
  }

  // An array [rows, heads, slots, dim] of a float type, or a triple of codes, scales and biases.
  struct Array {
    MlxArray array;
    int rows = 0, heads = 0, slots = 0, dim = 0;
  };
  Result<Array> plain(const std::string& name) const {
    Result<TensorView> view = tensor(name, 4);
    if (!view.ok()) return view.status();
    Array a;
    if (view->dtype == DType::kF32)
      a.array.codec = Codec::f32();
    else if (view->dtype == DType::kF16)
      a.array.codec = Codec::f16();
    else if (view->dtype == DType::kBF16)
      a.array.codec = Codec::bf16();
    else
      return corrupt(fmt::format("tensor {} is {}, expected floats", quote(name), dtype_name(view->dtype)));
    a.array.data = view->bytes;
    set_shape(a, *view, view->shape[3]);
    return a;
  }
  Result<Array> triple(const std::string& name, int bits, int group) const {
    Result<TensorView> codes = tensor(name + ".0", 4), scales = tensor(name + ".1", 4),
                       biases = tensor(name + ".2", 4);
    for (const Result<TensorView>* r : {&codes, &scales, &biases}) {
      if (!r->ok()) return r->status();
    }
    Array a;
    a.array.codec = Codec::affine(bits, group, scales->dtype);
    if (codes->dtype != DType::kU32 || scales->dtype != biases->dtype || !a.array.codec.valid()) {
      return corrupt(fmt::format("tensors {}.0 to .2 are {}, {} and {}: no codes of {} bits in groups of {}",
                                 quote(name), dtype_name(codes->dtype), dtype_name(scales->dtype),
                                 dtype_name(biases->dtype), bits, group));
    }
    a.array.data = codes->bytes;
    a.array.scales = scales->bytes;
    a.array.biases = biases->bytes;
    set_shape(a, *codes, codes->shape[3] * 32 / static_cast<std::size_t>(bits));
    const std::size_t groups = static_cast<std::size_t>(a.dim) / static_cast<std::size_t>(group);
    std::vector<std::size_t> expected(codes->shape.begin(), codes->shape.end() - 1);
    expected.push_back(groups);
    if (scales->shape != expected || biases->shape != expected ||
        groups * static_cast<std::size_t>(group) != static_cast<std::size_t>(a.dim)) {
      return corrupt(fmt::format("tensors {}.0 to .2: shapes [{}], [{}] and [{}] do not agree", quote(name),
                                 fmt::join(codes->shape, ", "), fmt::join(scales->shape, ", "),
                                 fmt::join(biases->shape, ", ")));
    }
    return a;
  }
  static void set_shape(Array& a, const TensorView& view, std::size_t dim) {
    a.rows = static_cast<int>(view.shape[0]);
    a.heads = static_cast<int>(view.shape[1]);
    a.slots = static_cast<int>(view.shape[2]);
    a.dim = static_cast<int>(dim);
  }

  Status put_arrays(Leaf& leaf, const Result<Array>& keys, const Result<Array>& values) const {
    if (!keys.ok()) return keys.status();
    if (!values.ok()) return values.status();
    if (keys->rows != values->rows || keys->heads != values->heads || keys->slots != values->slots) {
      return corrupt(fmt::format("{}: keys of {} rows, {} heads, {} positions, values of {}, {}, {}",
                                 leaf.name, keys->rows, keys->heads, keys->slots, values->rows, values->heads,
                                 values->slots));
    }
    if (keys->rows == 0 || keys->heads == 0 || keys->dim == 0 || values->dim == 0) {
      return corrupt(fmt::format("{}: an array of {} rows, {} heads and dims {} and {}", leaf.name,
                                 keys->rows, keys->heads, keys->dim, values->dim));
    }
    leaf.keys = keys->array;
    leaf.values = values->array;
    leaf.rows = keys->rows;
    leaf.heads = keys->heads;
    leaf.slots = keys->slots;
    leaf.key_dim = keys->dim;
    leaf.value_dim = values->dim;
    return {};
  }

  Status read_plain(Leaf& leaf, const Words& state, const std::string& prefix) {
    if (Status s = state_size(leaf, state, {0}); !s.ok()) return s;
    if (Status s = put_arrays(leaf, plain(prefix + ".0"), plain(prefix + ".1")); !s.ok()) return s;
    leaf.offset = leaf.idx = leaf.slots;  // stored cut to offset
    return {};
  }

  // keep, max_size, [the growth step of older versions,] offset, _idx.
  Status read_rotating(Leaf& leaf, const Words& state, const std::string& prefix) {
    int first[2], last[2];
    Status s = state_size(leaf, state, {4, 5});
    if (s.ok()) s = numbers(leaf, state, 0, first);
    if (s.ok()) s = numbers(leaf, state, state.size() - 2, last);
    if (s.ok()) s = put_arrays(leaf, plain(prefix + ".0"), plain(prefix + ".1"));
    if (!s.ok()) return s;
    leaf.keep = first[0];
    leaf.max_size = first[1];
    leaf.offset = last[0];
    leaf.idx = last[1];
    if (leaf.keep < leaf.max_size && leaf.max_size < kFullWindow) return {};
    return corrupt(fmt::format("{}: keep {} of a max_size of {}", leaf.name, leaf.keep, leaf.max_size));
  }

  // [the growth step of older versions,] offset, group_size, bits.
  Status read_quantized(Leaf& leaf, const Words& state, const std::string& prefix) {
    int n[3];
    Status s = state_size(leaf, state, {3, 4});
    if (s.ok()) s = numbers(leaf, state, state.size() - 3, n);
    if (!s.ok()) return s;
    if (!Codec::affine(n[2], n[1]).valid()) {
      return corrupt(fmt::format("{}: {} bits in groups of {}", leaf.name, n[2], n[1]));
    }
    s = put_arrays(leaf, triple(prefix + ".0", n[2], n[1]), triple(prefix + ".1", n[2], n[1]));
    if (!s.ok()) return s;
    leaf.offset = leaf.idx = n[0];
    return {};
  }

  Result<std::vector<int>> integers(const Leaf& leaf, const std::string& name) const {
    Result<TensorView> view = tensor(name, 1);
    if (!view.ok()) return view.status();
    if (view->dtype != DType::kI32 || view->shape[0] != static_cast<std::size_t>(leaf.rows)) {
      return corrupt(fmt::format("tensor {} is {} [{}], expected I32 [{}]", quote(name),
                                 dtype_name(view->dtype), view->shape[0], leaf.rows));
    }
    std::vector<int> values(view->shape[0]);
    std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
    return values;
  }

  Status read_batch_arrays(Leaf& leaf, const std::string& prefix) {
    if (Status s = put_arrays(leaf, plain(prefix + ".0"), plain(prefix + ".1")); !s.ok()) return s;
    Result<std::vector<int>> offsets = integers(leaf, prefix + ".2"), padding = integers(leaf, prefix + ".3");
    if (!offsets.ok()) return offsets.status();
    if (!padding.ok()) return padding.status();
    leaf.batched = true;
    leaf.offsets = std::move(*offsets);
    leaf.left_padding = std::move(*padding);
    leaf.idx = leaf.slots;
    return {};
  }
  Status read_batch(Leaf& leaf, const Words& state, const std::string& prefix) {
    if (Status s = state_size(leaf, state, {0}); !s.ok()) return s;
    return read_batch_arrays(leaf, prefix);
  }
  // max_size, _offset, _idx, rotated.
  Status read_batch_rotating(Leaf& leaf, const Words& state, const std::string& prefix) {
    int n[3];
    Status s = state_size(leaf, state, {4});
    if (s.ok()) s = numbers(leaf, state, 0, n);
    if (s.ok()) s = read_batch_arrays(leaf, prefix);
    if (!s.ok()) return s;
    leaf.max_size = n[0];
    leaf.offset = n[1];
    leaf.idx = n[2];
    leaf.rotated = state[3] == "True";
    if (leaf.max_size >= 1 && leaf.max_size < kFullWindow && (leaf.rotated || state[3] == "False")) return {};
    return corrupt(fmt::format("{}: max_size {}, rotated {}", leaf.name, leaf.max_size, quote(state[3])));
  }

  Status read_states(Leaf& leaf, const std::string& tail, const std::string& state) {
    Result<TensorView> t = tensor(tail, 3), s = tensor(state, 4);
    if (!t.ok()) return t.status();
    if (!s.ok()) return s.status();
    if (!is_float(t->dtype) || s->dtype != DType::kF32 || t->shape[0] != s->shape[0] || t->shape[0] == 0) {
      return corrupt(
          fmt::format("{}: tensors {} and {} are no convolution's tail and f32 state of equally many rows",
                      leaf.name, quote(tail), quote(state)));
    }
    leaf.recurrent = true;
    leaf.rows = static_cast<int>(t->shape[0]);
    leaf.tail = *t;
    leaf.state = *s;
    return {};
  }
  // left_padding (".1") and lengths (".2") are about tokens to come, and are nothing that a row remembers.
  Status read_arrays(Leaf& leaf, const Words& state, const std::string& prefix) {
    if (Status s = state_size(leaf, state, {0}); !s.ok()) return s;
    if (file_.find(prefix + ".0.2") != nullptr) {
      return {
          StatusCode::kUnsupported,
          fmt::format("{}: {}: an ArraysCache of more than two arrays is not supported", name_, leaf.name)};
    }
    return read_states(leaf, prefix + ".0.0", prefix + ".0.1");
  }
  Status read_mamba(Leaf& leaf, const Words& state, const std::string& prefix) {
    if (Status s = state_size(leaf, state, {0}); !s.ok()) return s;
    return read_states(leaf, prefix + ".0", prefix + ".1");
  }

  const SafetensorsFile& file_;
  const std::string& name_;
};

}  // namespace

Result<Contents> read(const SafetensorsFile& file, const std::string& name) {
  return Reader(file, name).read();
}

}  // namespace windrow::prompt_cache
