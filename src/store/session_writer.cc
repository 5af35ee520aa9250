// Rows into a session file.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/out_of_memory.h"
#include "base/utf8.h"
#include "io/file.h"
#include "state/layer_records.h"
#include "store/digest.h"
#include "store/session_pieces.h"

namespace windrow {

using session::Layout;
using session::PieceData;
using session::RowEntry;
using session::RowGroup;
using session::Tensor;

namespace {

// Owner only: a session holds what was said.
constexpr mode_t kMode = 0600;

Status invalid(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

// The states and tails of one recurrent group, all layers.
struct StateData {
  std::vector<float> state, tail;
  friend bool operator==(const StateData&, const StateData&) = default;
};
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {  // NaN equals itself, 0 not -0
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
}

}  // namespace

struct SessionWriter::Impl {
  explicit Impl(const StatePlan& plan, const SessionIdentity& identity)
      : layout{identity, plan, {}, std::vector<int>(static_cast<std::size_t>(plan.recurrent_count())),
               {},       {}},
        pieces(layout.plan),
        states(static_cast<std::size_t>(plan.recurrent_count())) {}

  Layout layout;  // but for pieces, states and token lists
  session::Pieces pieces;
  std::vector<std::vector<StateData>> states;  // of each recurrent group
  std::vector<std::vector<std::int32_t>> lists;

  RowEntry add_row(const RowRecords& records, std::span<const std::int32_t> tokens, int minimum_length);
  Layout finished() const;
  std::span<const std::byte> bytes_of(const Tensor& tensor) const;
};

SessionWriter::SessionWriter(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
SessionWriter::SessionWriter(SessionWriter&&) noexcept = default;
SessionWriter& SessionWriter::operator=(SessionWriter&&) noexcept = default;
SessionWriter::~SessionWriter() = default;

Result<SessionWriter> SessionWriter::create(const StatePlan& plan, const SessionIdentity& identity) try {
  for (const std::string* text : {&identity.model, &identity.tokenizer, &identity.rope, &identity.adapter,
                                  &identity.numerics, &identity.tenant}) {
    if (find_invalid_utf8(*text) != std::string_view::npos)
      return invalid("session: the identity is not valid UTF-8");
  }
  return SessionWriter(std::make_unique<Impl>(plan, identity));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

// The place of `item` in `list`, where it is put if it is new.
template <typename T, typename Equal>
int place_of(std::vector<T>& list, T item, const Equal& equal) {
  for (std::size_t i = 0; i < list.size(); i++) {
    if (equal(list[i], item)) return static_cast<int>(i);
  }
  list.push_back(std::move(item));
  return static_cast<int>(list.size() - 1);
}

RowEntry SessionWriter::Impl::add_row(const RowRecords& records, std::span<const std::int32_t> tokens,
                                      int minimum_length) {
  RowEntry row{
      .length = records.length, .minimum_length = minimum_length, .tokens = 0, .groups = {}, .states = {}};
  std::span<const LayerRecords> rest(records.layers);
  for (int g = 0; g < layout.plan.group_count(); g++) {
    const std::span<const LayerRecords> layers = rest.first(layout.plan.group(g).layers.size());
    rest = rest.subspan(layers.size());
    RowGroup& its =
        row.groups.emplace_back(RowGroup{layers[0].converted, layers[0].sinks, layers[0].begin, {}});
    session::Cuts cuts(its.sinks, its.begin, row.length);
    while (const auto cut = cuts.next())
      its.pieces.push_back(pieces.add({g, its.converted, cut->begin, cut->end}, layers));
  }
  std::size_t at = 0;
  for (int g = 0; g < layout.plan.recurrent_count(); g++) {
    StateData data;
    for (std::size_t slot = 0; slot < layout.plan.recurrent(g).layers.size(); slot++, at++) {
      const RecurrentRecords& its = records.recurrent[at];
      data.state.insert(data.state.end(), its.state.begin(), its.state.end());
      data.tail.insert(data.tail.end(), its.tail.begin(), its.tail.end());
    }
    row.states.push_back(place_of(states[static_cast<std::size_t>(g)], std::move(data),
                                  [](const StateData& a, const StateData& b) {
                                    return same_bits(a.state, b.state) && same_bits(a.tail, b.tail);
                                  }));
  }
  row.tokens = place_of(lists, std::vector<std::int32_t>(tokens.begin(), tokens.end()), std::equal_to<>());
  return row;
}

Status SessionWriter::add(const RowRecords& records, std::span<const std::int32_t> tokens,
                          int minimum_length) try {
  Impl& impl = *impl_;
  if (Status s = check_row_records("session", impl.layout.plan, records); !s.ok()) return s;
  if (tokens.size() < static_cast<std::size_t>(records.length) || tokens.size() >= kFullWindow) {
    return invalid(
        fmt::format("session: {} tokens for a row of {} positions", tokens.size(), records.length));
  }
  if (std::any_of(tokens.begin(), tokens.end(), [](std::int32_t id) { return id < 0; }))
    return invalid("session: a token is below 0");
  if (minimum_length < 0 || minimum_length > records.length) {
    return invalid(fmt::format("session: a lowest length of {}, the row has {} positions", minimum_length,
                               records.length));
  }
  if (impl.layout.rows.size() >= session::kMaxRows)
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("session: more than {} rows", session::kMaxRows));
  const std::size_t lists = impl.lists.size();
  std::vector<std::size_t> states;
  for (const auto& group : impl.states) states.push_back(group.size());
  impl.layout.rows.reserve(impl.layout.rows.size() + 1);
  try {
    impl.layout.rows.push_back(impl.add_row(records, tokens, minimum_length));
  } catch (const std::bad_alloc&) {
    impl.pieces.rollback();
    impl.lists.erase(impl.lists.begin() + static_cast<std::ptrdiff_t>(lists), impl.lists.end());
    for (std::size_t g = 0; g < states.size(); g++) {
      std::vector<StateData>& group = impl.states[g];
      group.erase(group.begin() + static_cast<std::ptrdiff_t>(states[g]), group.end());
    }
    return out_of_memory();
  }
  impl.pieces.commit();
  return Status();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status SessionWriter::add(const Row& row, std::span<const std::int32_t> tokens) {
  const Result<RowRecords> records = row.extract_retained();
  if (!records.ok()) return records.status();
  return add(*records, tokens, row.minimum_length());
}

int SessionWriter::rows() const noexcept { return static_cast<int>(impl_->layout.rows.size()); }

std::size_t SessionWriter::bytes() const noexcept {
  std::size_t sum = 0;
  for (const PieceData& piece : impl_->pieces.all()) {
    for (const auto& tensor : piece.tensors) sum += tensor.size();
  }
  for (const auto& group : impl_->states) {
    for (const StateData& its : group) sum += (its.state.size() + its.tail.size()) * sizeof(float);
  }
  for (const auto& list : impl_->lists) sum += list.size() * sizeof(std::int32_t);
  return sum;
}

Layout SessionWriter::Impl::finished() const {
  Layout out = layout;
  for (const PieceData& piece : pieces.all()) out.pieces.push_back(piece.place);
  for (std::size_t g = 0; g < states.size(); g++) out.states[g] = static_cast<int>(states[g].size());
  for (const auto& list : lists) out.token_lists.push_back(static_cast<int>(list.size()));
  return out;
}

std::span<const std::byte> SessionWriter::Impl::bytes_of(const Tensor& tensor) const {
  const auto index = static_cast<std::size_t>(tensor.index), group = static_cast<std::size_t>(tensor.group);
  switch (tensor.kind) {
    case Tensor::Kind::kTokens: return std::as_bytes(std::span(lists[index]));
    case Tensor::Kind::kState: return std::as_bytes(std::span(states[group][index].state));
    case Tensor::Kind::kTail: return std::as_bytes(std::span(states[group][index].tail));
    case Tensor::Kind::kPiece: break;
  }
  const PieceData& piece = pieces.all()[index];
  return piece.tensors[static_cast<std::size_t>(tensor.part)];
}

Status SessionWriter::save(const std::string& path) const { return save(path, system_file_ops()); }

Status SessionWriter::save(const std::string& path, FileOps& ops) const try {
  const Layout layout = impl_->finished();
  const std::optional<std::vector<Tensor>> tensors = session::tensors_of(layout);
  if (!tensors)
    return Status(StatusCode::kUnsupported, path + ": the rows need more tensors than a file can have");
  std::vector<std::uint64_t> checksums;
  std::vector<TensorInfo> infos;
  for (const Tensor& tensor : *tensors) {
    checksums.push_back(xxh3(impl_->bytes_of(tensor)));
    infos.push_back({tensor.entry.name, tensor.entry.dtype, tensor.entry.shape});
  }
  Result<safetensors::FileHead> head = safetensors::file_head(infos, session::metadata_of(layout, checksums));
  if (!head.ok()) return head.status().with_context(path);
  std::string& header = head->text;
  Result<Sha256> sha = Sha256::create();
  Result<Sha256> leaf = Sha256::create();
  if (!sha.ok() || !leaf.ok()) return out_of_memory();
  sha->update(std::string_view(header));  // its digests are zeros
  for (const Tensor& tensor : *tensors) {
    leaf->reset();
    leaf->update(impl_->bytes_of(tensor));
    sha->update(std::span<const std::byte>(leaf->finish()));
  }
  session::seal(header, sha->finish());

  struct stat info = {};
  if (ops.path_status(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode))
    return Status(StatusCode::kIo, path + ": is a link, expected a file or a free name");
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(std::as_const(header)))};
  for (const Tensor& tensor : *tensors) parts.push_back(impl_->bytes_of(tensor));
  return write_atomically(path, parts, ops, kMode);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
