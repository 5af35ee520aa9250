// The safetensors reader of one file.
#include "io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>

#include "base/json.h"
#include "io/safetensors_format.h"
#include "io/tensor_index.h"

namespace windrow {

using namespace safetensors;  // NOLINT: the format's constants

namespace {

// Name -> entry -> shape.
constexpr int kMaxDepth = 3;

Status corrupt(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

Result<std::vector<std::size_t>> read_sizes(const Json& value, const char* key, std::size_t max_count) {
  if (!value.is_array()) return corrupt(fmt::format("\"{}\" is {}, expected an array", key, describe(value)));
  if (value.size() > max_count) {
    return corrupt(fmt::format("\"{}\" is {}, the limit is {}", key, describe(value), max_count));
  }
  std::vector<std::size_t> sizes;
  for (const Json& item : value) {
    const std::optional<std::uint64_t> size = json_uint(item);
    if (!size)
      return corrupt(fmt::format("\"{}\" holds {}, expected whole numbers from 0", key, describe(item)));
    sizes.push_back(*size);
  }
  return sizes;
}

// The members of one tensor's JSON object, each on its own checked; errors lack the tensor's name.
Result<Entry> read_members(const Json& json) {
  if (!json.is_object()) return corrupt(fmt::format("is {}, expected an object", describe(json)));
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!json.contains(key)) return corrupt(fmt::format("\"{}\" is missing", key));
  }
  for (const auto& [key, value] : json.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return corrupt("unknown key " + quote(key));
  }
  Entry entry;
  const Json& dtype = json["dtype"];
  if (!dtype.is_string()) return corrupt(fmt::format("\"dtype\" is {}, expected a string", describe(dtype)));
  const std::optional<DType> known = dtype_from_name(dtype.get_ref<const std::string&>());
  if (!known)
    return Status(StatusCode::kUnsupported, fmt::format("dtype {} is not supported", describe(dtype)));
  entry.dtype = *known;

  Result<std::vector<std::size_t>> shape = read_sizes(json["shape"], "shape", kMaxRank);
  if (!shape.ok()) return shape.status();
  entry.shape = std::move(*shape);

  const Result<std::vector<std::size_t>> offsets = read_sizes(json["data_offsets"], "data_offsets", 2);
  if (!offsets.ok()) return offsets.status();
  if (offsets->size() != 2) {
    return corrupt(fmt::format("\"data_offsets\" is {}, expected 2 numbers", describe(json["data_offsets"])));
  }
  entry.begin = (*offsets)[0];
  entry.end = (*offsets)[1];
  return entry;
}

Result<Entry> read_entry(const std::string& name, const Json& json, std::size_t data_bytes) {
  Result<Entry> entry = read_members(json);
  if (!entry.ok()) return entry.status();
  if (entry->begin > entry->end) {
    return corrupt(fmt::format("\"data_offsets\" [{}, {}] run backwards", entry->begin, entry->end));
  }
  if (entry->end > data_bytes) {
    return corrupt(fmt::format("\"data_offsets\" [{}, {}] end beyond the {} bytes of data", entry->begin,
                               entry->end, data_bytes));
  }
  const std::optional<std::size_t> expected = shape_bytes(entry->shape, entry->dtype);
  const std::string kind = fmt::format("shape {} of {}", entry->shape, dtype_name(entry->dtype));
  if (!expected) return corrupt(kind + " overflows");
  if (*expected != entry->end - entry->begin) {
    return corrupt(fmt::format("{} bytes for {}, expected {}", entry->end - entry->begin, kind, *expected));
  }
  entry->name = name;
  return entry;
}

// REQUIRES: entries sorted by (begin, end), each inside the data.
Status check_tiling(const std::vector<Entry>& entries, std::size_t data_size) {
  std::size_t covered = 0;
  const Entry* last = nullptr;
  const auto hole = [](std::size_t begin, std::size_t end) {
    return corrupt(fmt::format("bytes {} to {} of the data belong to no tensor", begin, end));
  };
  for (const Entry& entry : entries) {
    if (entry.begin > covered) return hole(covered, entry.begin);
    if (entry.begin < covered) {
      return corrupt(fmt::format("tensor {} at bytes {} to {} overlaps tensor {} at bytes {} to {}",
                                 quote(entry.name), entry.begin, entry.end, quote(last->name), last->begin,
                                 last->end));
    }
    covered = entry.end;
    last = &entry;
  }
  return covered < data_size ? hole(covered, data_size) : Status();
}

Result<std::map<std::string, std::string>> read_metadata(const Json& json) {
  std::map<std::string, std::string> metadata;
  if (json.is_null()) return metadata;
  if (!json.is_object()) {
    return corrupt(fmt::format("\"{}\" is {}, expected an object or null", kMetadataKey, describe(json)));
  }
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return corrupt(
          fmt::format("\"{}\" maps {} to {}, expected a string", kMetadataKey, quote(key), describe(value)));
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

}  // namespace

Result<std::size_t> safetensors::parse_length(std::span<const std::byte> bytes, std::size_t file_bytes) {
  if (file_bytes < kLengthBytes || bytes.size() < kLengthBytes) {
    return corrupt(fmt::format("{} bytes, a safetensors file has at least {}", file_bytes, kLengthBytes));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; i++) {
    length |= std::uint64_t{std::to_integer<std::uint8_t>(bytes[i])} << (8 * i);
  }
  const std::size_t rest = file_bytes - kLengthBytes;
  if (length > kMaxHeaderBytes) {
    return corrupt(fmt::format("a header of {} bytes, the limit is {}", length, kMaxHeaderBytes));
  }
  if (length > rest) return corrupt(fmt::format("a header of {} bytes, but only {} follow", length, rest));
  return std::size_t{length};
}

Result<Header> safetensors::parse_header(std::string_view text, std::size_t data_bytes,
                                         const std::string& name) {
  if (text.empty() || text[0] != '{') return corrupt("the header does not start with '{'").with_context(name);
  const Result<Json> json = parse_json(text, name, {.max_bytes = kMaxHeaderBytes, .max_depth = kMaxDepth});
  if (!json.ok()) return json.status();
  if (json->size() > kMaxTensors) {
    return corrupt(fmt::format("{}: {} tensors, the limit is {}", name, json->size(), kMaxTensors));
  }
  Header header;
  header.tensors.reserve(json->size());
  for (const auto& [key, value] : json->items()) {
    if (key == kMetadataKey) {
      Result<std::map<std::string, std::string>> metadata = read_metadata(value);
      if (!metadata.ok()) return metadata.status().with_context(name);
      header.metadata = std::move(*metadata);
      continue;
    }
    Result<Entry> entry = read_entry(key, value, data_bytes);
    if (!entry.ok()) return entry.status().with_context(fmt::format("{}: tensor {}", name, quote(key)));
    header.tensors.push_back(std::move(*entry));
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  if (const Status s = check_tiling(header.tensors, data_bytes); !s.ok()) return s.with_context(name);
  return header;
}

struct SafetensorsFile::Impl {
  MappedFile file;  // empty for parse()
  std::vector<TensorView> tensors;
  TensorIndex index;
  std::map<std::string, std::string> metadata;
};

SafetensorsFile::SafetensorsFile(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Result<SafetensorsFile> SafetensorsFile::build(std::shared_ptr<Impl> impl, std::span<const std::byte> bytes,
                                               const std::string& name) {
  const Result<std::size_t> length = parse_length(bytes, bytes.size());
  if (!length.ok()) return length.status().with_context(name);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, *length);
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + *length);
  Result<Header> header = parse_header(text, data.size(), name);
  if (!header.ok()) return header.status();
  impl->metadata = std::move(header->metadata);
  impl->tensors.reserve(header->tensors.size());
  for (Entry& entry : header->tensors) {
    impl->tensors.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape),
                             data.subspan(entry.begin, entry.end - entry.begin)});
  }
  impl->index = TensorIndex(impl->tensors);
  return SafetensorsFile(std::move(impl));
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) return file.status();
  try {
    auto impl = std::make_shared<Impl>();
    impl->file = std::move(*file);
    const std::span<const std::byte> bytes = impl->file.bytes();
    return build(std::move(impl), bytes, path);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, path + ": out of memory while reading the header");
  }
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, const std::string& name) {
  try {
    return build(std::make_shared<Impl>(), bytes, name);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, name + ": out of memory while reading the header");
  }
}

const std::vector<TensorView>& SafetensorsFile::tensors() const noexcept { return impl_->tensors; }
const TensorView* SafetensorsFile::find(std::string_view name) const noexcept {
  return impl_->index.find(name);
}
const std::map<std::string, std::string>& SafetensorsFile::metadata() const noexcept {
  return impl_->metadata;
}

}  // namespace windrow
