// convert_model: what becomes of each tensor, then one pass over them into files.
#include "windrow/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <span>

#include "base/json.h"
#include "codec/affine_rows.h"
#include "io/folder.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/convert_files.h"
#include "model/convert_rules.h"
#include "model/weights.h"
#include "windrow/model.h"

namespace windrow {
namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{4} << 20;  // as load_config
// Source bytes quantized at once: far beyond the cost of a write, far below any model.
constexpr std::size_t kPieceBytes = std::size_t{8} << 20;

// What a tokenizer or a chat needs beside the weights.
constexpr const char* kCopied[] = {"tokenizer.json",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "tokenizer.model",
                                   "vocab.json",
                                   "merges.txt",
                                   "chat_template.jinja",
                                   "chat_template.json",
                                   "generation_config.json"};

// mlx-lm stores other tensors than the original folder: experts stacked, gates and projections apart,
// norms with 1 added, convolutions turned.
constexpr std::string_view kOtherForm[] = {"gpt_oss", "qwen3_next"};

// One tensor of the source, and how it is written.
struct Item {
  const TensorView* source = nullptr;
  std::optional<AffineFormat> format;
  std::vector<TensorInfo> written;  // one, or codes, scales and biases

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const TensorInfo& t : written) {
      std::size_t size = dtype_size(t.dtype);
      for (const std::size_t dim : t.shape) size *= dim;  // at most the source's, which is in memory
      sum += size;
    }
    return sum;
  }
};

struct Job {
  ModelTensors tensors;
  std::vector<Item> items;
  Quantization quantization;
  Conversion result;
};

constexpr std::string_view kWeight = ".weight";

bool is_matrix(const TensorView& t) { return t.shape.size() == 2 && t.name.ends_with(kWeight); }

Status refuse(const ModelTensors& tensors, const TensorView& t, const std::string& what) {
  return Status(StatusCode::kUnsupported,
                fmt::format("{}: tensor {}: {}", tensors.source(), quote(t.name), what));
}

Item plan_item(const TensorView& t, const std::optional<AffineFormat>& format) {
  Item item{&t, format, {}};
  if (!format) {
    item.written = {{t.name, t.dtype, t.shape}};
    return item;
  }
  const std::string path = t.name.substr(0, t.name.size() - kWeight.size());
  const std::size_t rows = t.shape[0], cols = t.shape[1];
  const std::size_t groups = cols / static_cast<std::size_t>(format->group);
  item.written = {{t.name, DType::kU32, {rows, affine_code_bytes(*format, cols) / 4}},
                  {path + ".scales", t.dtype, {rows, groups}},
                  {path + ".biases", t.dtype, {rows, groups}}};
  return item;
}

// The format of a matrix, and the entry of its module where a rule gave it.
Result<std::optional<AffineFormat>> choose(const TensorView& t, const ConvertOptions& options, Job& job,
                                           std::vector<bool>& used) {
  const std::string path = t.name.substr(0, t.name.size() - kWeight.size());
  const std::size_t cols = t.shape[1];
  const auto divides = [&](int group) { return cols != 0 && cols % static_cast<std::size_t>(group) == 0; };
  const ConvertRule* rule = nullptr;
  for (std::size_t i = 0; i < options.rules.size(); i++) {
    if (!matches(options.rules[i].pattern, path)) continue;
    rule = &options.rules[i];
    used[i] = true;
  }
  if (rule == nullptr) {
    if (!divides(options.group)) return std::optional<AffineFormat>();
    return std::optional(AffineFormat{options.bits, options.group});
  }
  std::optional<AffineFormat>& format = job.quantization.modules[path];
  if (!rule->quantized) return format;
  if (!divides(rule->group)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: tensor {}: {} columns are no multiple of the group {} of rule {}",
                              job.tensors.source(), quote(t.name), cols, rule->group, quote(rule->pattern)));
  }
  format = AffineFormat{rule->bits, rule->group};
  return format;
}

Status plan_items(const ModelConfig& config, const ConvertOptions& options, Job& job) {
  const Result<TextNames> names = find_text_model(job.tensors);
  if (!names.ok()) return names.status();
  std::vector<bool> used(options.rules.size());
  for (const TensorView& t : job.tensors.tensors()) {
    if (!names->ours(t.name) || (t.name == names->head && config.tie_word_embeddings)) {
      job.result.left_out++;
      continue;
    }
    if (!is_float(t.dtype)) {
      return refuse(job.tensors, t,
                    fmt::format("is {}, expected F32, F16 or BF16: quantized already?", dtype_name(t.dtype)));
    }
    if (t.shape.size() > 2 || t.name.find(".experts.") != t.name.npos) {
      return refuse(job.tensors, t, "experts and convolutions can't be converted");
    }
    std::optional<AffineFormat> format;
    if (is_matrix(t)) {
      const Result<std::optional<AffineFormat>> chosen = choose(t, options, job, used);
      if (!chosen.ok()) return chosen.status();
      format = *chosen;
    }
    job.items.push_back(plan_item(t, format));
    (format ? job.result.quantized : job.result.kept)++;
    job.result.parameters += t.elements();
    job.result.bytes_before += t.bytes.size();
    job.result.bytes_after += job.items.back().bytes();
  }
  for (std::size_t i = 0; i < used.size(); i++) {
    if (used[i]) continue;
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("rule {} matches no matrix of {}", quote(options.rules[i].pattern),
                              job.tensors.source()));
  }
  return {};
}

// The tensors of each file, cut as mlx-lm cuts them (a module's three may stand in two files).
std::vector<std::vector<TensorInfo>> cut_into_files(const Job& job, std::size_t limit) {
  std::vector<std::vector<TensorInfo>> files(1);
  std::size_t used = 0;
  for (const Item& item : job.items) {
    for (const TensorInfo& t : item.written) {
      const std::size_t bytes = Item{nullptr, {}, {t}}.bytes();
      if (used + bytes > limit && !files.back().empty()) {
        files.emplace_back();
        used = 0;
      }
      files.back().push_back(t);
      used += bytes;
    }
  }
  return files;
}

Status write_quantized(const Item& item, ConvertedFiles& files, ThreadPool& pool) {
  const TensorView& t = *item.source;
  const AffineFormat& format = *item.format;
  const std::size_t rows = t.shape[0], cols = t.shape[1], row_bytes = cols * dtype_size(t.dtype);
  const std::size_t code_bytes = affine_code_bytes(format, cols);
  const std::size_t param_bytes = affine_param_bytes(format, cols, t.dtype);
  const std::size_t piece = std::max<std::size_t>(1, kPieceBytes / row_bytes);
  std::vector<std::byte> codes(std::min(piece, rows) * code_bytes);
  std::vector<std::byte> scales(rows * param_bytes), biases(rows * param_bytes);
  if (Status s = files.next_tensor(); !s.ok()) return s;
  for (std::size_t row = 0; row < rows; row += piece) {
    const std::size_t n = std::min(piece, rows - row);
    const AffineArrays<std::byte> to{codes.data(), scales.data() + row * param_bytes,
                                     biases.data() + row * param_bytes};
    quantize_rows(format, t.dtype, t.bytes.data() + row * row_bytes, n, cols, to, pool);
    if (Status s = files.append(std::span(codes).first(n * code_bytes)); !s.ok()) return s;
  }
  for (const std::vector<std::byte>* params : {&scales, &biases}) {
    if (Status s = files.next_tensor(); !s.ok()) return s;
    if (Status s = files.append(*params); !s.ok()) return s;
  }
  return {};
}

Status write_plain(const Item& item, ConvertedFiles& files) {
  if (Status s = files.next_tensor(); !s.ok()) return s;
  const std::span<const std::byte> bytes = item.source->bytes;
  for (std::size_t done = 0; done < bytes.size(); done += kPieceBytes) {
    if (Status s = files.append(bytes.subspan(done, std::min(kPieceBytes, bytes.size() - done))); !s.ok())
      return s;
  }
  return {};
}

Status write_config(const std::string& folder, const Job& job, const ConvertedFiles& files) {
  const Result<std::string> text = read_file(folder + "/config.json", kMaxConfigBytes);
  if (!text.ok()) return text.status();
  Result<Json> config = parse_json(*text, folder + "/config.json", {.max_bytes = kMaxConfigBytes});
  if (!config.ok()) return config.status();
  config->erase("_name_or_path");  // as mlx-lm
  config->erase("vision_config");
  (*config)["quantization"] = (*config)["quantization_config"] = quantization_json(job.quantization);
  return files.write_text("config.json", config->dump(4));
}

Status copy_files(const std::string& folder, const std::string& to) {
  for (const char* name : kCopied) {
    const std::string path = folder + "/" + name;
    if (!path_exists(path)) continue;
    const Result<MappedFile> file = MappedFile::open(path);
    if (!file.ok()) return file.status();
    const std::span<const std::byte> part = file->bytes();
    if (Status s = write_atomically(to + "/" + name, {&part, 1}, system_file_ops()); !s.ok()) return s;
  }
  return {};
}

Status check_formats(const ConvertOptions& options) {
  const auto check = [](int bits, int group) {
    return Codec::affine(bits, group).valid() ? Status() : Codec::affine(bits, group).check(group);
  };
  if (Status s = check(options.bits, options.group); !s.ok()) return s;
  for (const ConvertRule& r : options.rules) {
    if (!r.quantized) continue;
    if (Status s = check(r.bits, r.group); !s.ok()) return s.with_context("rule " + quote(r.pattern));
  }
  return {};
}

Status check_config(const ModelConfig& config, const std::string& folder) {
  const std::string file = folder + "/config.json";
  if (config.quantization) {
    return Status(StatusCode::kUnsupported,
                  file + ": \"quantization\" is present, the folder is quantized already");
  }
  for (const std::string_view family : kOtherForm) {
    if (config.model_type.starts_with(family)) {
      return Status(StatusCode::kUnsupported,
                    fmt::format("{}: model_type {} can't be converted: mlx-lm stores its tensors in another "
                                "form",
                                file, quote(config.model_type)));
    }
  }
  return read_model_info(folder).status();
}

Result<Conversion> convert(const std::string& folder, const std::string& out, const ConvertOptions& options,
                           ThreadPool& pool) {
  if (Status s = check_formats(options); !s.ok()) return s;
  const Result<ModelConfig> config = load_config(folder);
  if (!config.ok()) return config.status();
  if (Status s = check_config(*config, folder); !s.ok()) return s;
  std::error_code none;
  if (std::filesystem::equivalent(folder, out, none))
    return Status(StatusCode::kInvalidArgument, out + ": is the folder that is converted");
  Result<ModelTensors> tensors = ModelTensors::open(folder);
  if (!tensors.ok()) return tensors.status();
  Job job{std::move(*tensors), {}, {{options.bits, options.group}, {}}, {}};
  if (Status s = plan_items(*config, options, job); !s.ok()) return s;

  using Existing = AtomicFolder::Existing;
  Result<AtomicFolder> target =
      AtomicFolder::create(out, options.replace ? Existing::kReplace : Existing::kRefuse);
  if (!target.ok()) return target.status();
  std::vector<std::vector<TensorInfo>> cut = cut_into_files(job, options.shard_bytes);
  job.result.files = cut.size();
  ConvertedFiles files(target->place(), std::move(cut), job.result.bytes_after, options);
  for (const Item& item : job.items) {
    Status s = item.format ? write_quantized(item, files, pool) : write_plain(item, files);
    if (!s.ok()) return s;
  }
  if (Status s = files.finish(job.result.parameters); !s.ok()) return s;
  if (Status s = write_config(folder, job, files); !s.ok()) return s;
  if (Status s = copy_files(folder, target->place()); !s.ok()) return s;
  if (Status s = target->commit(); !s.ok()) return s;
  return job.result;
}

}  // namespace

Result<Conversion> convert_model(const std::string& folder, const std::string& out,
                                 const ConvertOptions& options, ThreadPool& pool) try {
  return convert(folder, out, options, pool);
} catch (const std::exception& e) {
  return Status(StatusCode::kResourceExhausted, fmt::format("{}: {}", out, e.what()));
}

}  // namespace windrow
