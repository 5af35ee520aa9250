#include "model/weight_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/json.h"
#include "base/load_float.h"

namespace windrow {
namespace {

// The most specific first: "model." is a prefix of the third.
constexpr TextNames kNamings[] = {{"language_model.model.", "language_model.lm_head.weight"},
                                  {"model.language_model.", "lm_head.weight"},
                                  {"model.", "lm_head.weight"}};

constexpr std::string_view kWeight = ".weight";

// Buffers that old checkpoints saved although they follow from the config.
bool is_derived(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

Status corrupt(std::string message) { return {StatusCode::kCorrupt, std::move(message)}; }

}  // namespace

bool TextNames::ours(std::string_view name) const {
  const std::string_view module = module_of(head);
  const bool of_head = name.starts_with(module) && name.substr(module.size()).starts_with('.');
  return (name.starts_with(prefix) || of_head) && !is_derived(name);
}

Result<TextNames> find_text_model(const ModelTensors& tensors) {
  for (const TextNames& n : kNamings) {
    if (tensors.find(std::string(n.prefix) + "embed_tokens.weight") != nullptr) return n;
  }
  return corrupt(tensors.source() +
                 ": no tensor \"model.embed_tokens.weight\" (nor under \"language_model.model.\" or "
                 "\"model.language_model.\")");
}

std::string_view module_of(std::string_view tensor) {
  return tensor.ends_with(kWeight) ? tensor.substr(0, tensor.size() - kWeight.size()) : std::string_view();
}

std::size_t MatrixRows::row_bytes() const {
  return format ? affine_code_bytes(*format, cols) : cols * dtype_size(dtype);
}

MatrixRows MatrixRows::part(const RowRange& range) const {
  MatrixRows part = *this;
  part.rows = range.count;
  const auto move = [&](const std::byte*& at, std::size_t bytes) {
    if (at != nullptr) at += range.first * bytes;
  };
  move(part.data.codes, row_bytes());
  move(part.data.scales, param_bytes());
  move(part.data.biases, param_bytes());
  return part;
}

Result<MatrixRows> WeightSource::rows(const std::string& tensor, std::span<const std::size_t> shape,
                                      std::span<const RowRange> ranges) const {
  Result<MatrixRows> all = matrix(tensor, shape);
  if (!all.ok() || ranges.size() == 1) return all.ok() ? all->part(ranges[0]) : all;
  MatrixRows some = *all;
  some.rows = 0;
  for (const RowRange& r : ranges) some.rows += r.count;
  auto bytes = std::make_shared<std::vector<std::byte>>(some.bytes());
  std::byte* to = bytes->data();
  const auto gather = [&](const std::byte*& from, std::size_t row_bytes) {
    if (from == nullptr) return;
    const std::byte* source = std::exchange(from, to);
    for (const RowRange& r : ranges) {
      std::memcpy(to, source + r.first * row_bytes, r.count * row_bytes);
      to += r.count * row_bytes;
    }
  };
  gather(some.data.codes, some.row_bytes());
  gather(some.data.scales, some.param_bytes());
  gather(some.data.biases, some.param_bytes());
  some.owner = std::move(bytes);
  return some;
}

Result<std::unique_ptr<FolderWeights>> FolderWeights::create(ModelTensors tensors,
                                                             std::optional<Quantization> quantization) {
  const Result<TextNames> names = find_text_model(tensors);
  if (!names.ok()) return names.status();
  return std::unique_ptr<FolderWeights>(
      new FolderWeights(std::move(tensors), std::move(quantization), *names));
}

std::vector<std::size_t> FolderWeights::shape(std::string_view tensor) const {
  const TensorView* view = tensors_.find(tensor);
  return view == nullptr ? std::vector<std::size_t>() : view->shape;
}

// Is the tensor there, of the type (nullopt: any float) and shape that `why` asks for?
Status FolderWeights::expect(const std::string& tensor, const TensorView* view,
                             std::vector<std::size_t> shape, std::optional<DType> dtype,
                             const std::string& why) const {
  const std::string wanted =
      fmt::format("{} of shape {} ({})", dtype ? dtype_name(*dtype) : "F32, F16 or BF16", shape, why);
  const auto message = [&](const std::string& what) {
    return fmt::format("{}: tensor {} {}", name(), quote(tensor), what);
  };
  if (view == nullptr) return corrupt(message("is missing, expected " + wanted));
  const bool typed = dtype ? view->dtype == *dtype : is_float(view->dtype);
  if (typed && view->shape == shape) return {};
  return corrupt(
      message(fmt::format("is {} of shape {}, expected {}", dtype_name(view->dtype), view->shape, wanted)));
}

Result<MatrixRows> FolderWeights::affine(const std::string& tensor, const TensorView& scales,
                                         std::span<const std::size_t> shape) const {
  const std::string module(module_of(tensor));
  const auto refuse = [&](const std::string& what) {
    return corrupt(fmt::format("{}: tensor {}: {}", name(), quote(scales.name), what));
  };
  if (!quantization_) return refuse("config.json has no \"quantization\"");
  const std::optional<AffineFormat> format = quantization_->of(module);
  if (!format) return refuse("config.json says that the module is not quantized");
  const std::size_t cols = shape.back(), group = static_cast<std::size_t>(format->group);
  if (cols % group != 0)
    return refuse(fmt::format("{} columns are no multiple of the group {}", cols, format->group));

  const std::string why = fmt::format("{} bits, groups of {}", format->bits, format->group);
  std::vector<std::size_t> packed(shape.begin(), shape.end()), grouped = packed;
  packed.back() = affine_code_bytes(*format, cols) / 4;
  grouped.back() = cols / group;
  const std::string biases_name = module + ".biases";
  const TensorView *codes = tensors_.find(tensor), *biases = tensors_.find(biases_name);
  Status s = expect(tensor, codes, packed, DType::kU32, why);
  if (s.ok()) s = expect(scales.name, &scales, grouped, std::nullopt, why);
  if (s.ok()) s = expect(biases_name, biases, grouped, scales.dtype, why);
  if (!s.ok()) return s;

  MatrixRows m;
  m.cols = cols;
  m.rows = scales.elements() / grouped.back();
  m.dtype = scales.dtype;
  m.format = format;
  m.data = {codes->bytes.data(), scales.bytes.data(), biases->bytes.data()};
  return m;
}

Result<MatrixRows> FolderWeights::matrix(const std::string& tensor,
                                         std::span<const std::size_t> shape) const {
  if (const std::string module(module_of(tensor)); !module.empty()) {
    const TensorView* scales = tensors_.find(module + ".scales");
    if (scales != nullptr) return affine(tensor, *scales, shape);
    const TensorView* codes = tensors_.find(tensor);
    if (codes != nullptr && codes->dtype == DType::kU32) {
      return corrupt(fmt::format("{}: tensor {} is U32, but {} is missing", name(), quote(tensor),
                                 quote(module + ".scales")));
    }
  }
  Result<TensorView> view = tensors_.get_float(tensor, shape);
  if (!view.ok()) return view.status();
  MatrixRows m;
  m.cols = shape.back();
  m.rows = m.cols == 0 ? 0 : view->elements() / m.cols;
  m.dtype = view->dtype;
  m.data.codes = view->bytes.data();
  return m;
}

Result<std::vector<float>> FolderWeights::floats(const std::string& tensor,
                                                 std::span<const std::size_t> shape, float) const {
  const Result<TensorView> view = tensors_.get_float(tensor, shape);
  if (!view.ok()) return view.status();
  std::vector<float> values(view->elements());
  const std::size_t each = dtype_size(view->dtype);
  for (std::size_t i = 0; i < values.size(); i++)
    values[i] = load_float(view->dtype, view->bytes.data() + i * each);
  return values;
}

}  // namespace windrow
