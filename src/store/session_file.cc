// Session files, read: header, tokens, checks, rows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/out_of_memory.h"
#include "state/row_fill.h"
#include "store/session_walk.h"

namespace windrow {

using session::Opened;
using session::RowEntry;
using session::RowGroup;
using session::Tensor;

namespace {

// The header of `file`, whose XXH3 is right.
Result<std::string> read_header(const ReadableFile& file) {
  const auto corrupt = [&](const std::string& what) {
    return Status(StatusCode::kCorrupt, file.path() + ": " + what);
  };
  std::byte bytes[safetensors::kLengthBytes];
  const std::span<std::byte> known(bytes, std::min(file.size(), safetensors::kLengthBytes));
  if (Status s = file.read(0, known); !s.ok()) return s;
  const Result<std::size_t> length = safetensors::parse_length(known, file.size());
  if (!length.ok()) return length.status().with_context(file.path());
  std::string header(safetensors::kLengthBytes + *length, '\0');
  if (Status s = file.read(0, std::as_writable_bytes(std::span(header))); !s.ok()) return s;
  const std::optional<session::SealPlaces> places = session::seal_places(header);
  if (!places) return corrupt("is no session of windrow");
  const std::string sum = hex(session::header_xxh3(header, *places));
  if (header.compare(places->xxh3, kXxh3Digits, sum) == 0) return header;
  return corrupt(fmt::format("the header is damaged: its XXH3 is {}, not what it says", sum));
}

Result<Opened> open_session(const std::string& path, FileOps& ops) {
  Result<ReadableFile> file = ReadableFile::open(path, ops, ReadableFile::Links::kRefuse);
  if (!file.ok()) return file.status();
  Result<std::string> header = read_header(*file);
  if (!header.ok()) return header.status();
  Result<session::Parsed> parsed = session::parse(*header, file->size() - header->size(), path);
  if (!parsed.ok()) return parsed.status();
  const session::SealPlaces places = *session::seal_places(*header);
  return Opened{std::move(*file), std::move(*header), places, std::move(*parsed)};
}

// The ids of a token list, with their checksum right.
Result<std::vector<std::int32_t>> read_tokens(const Opened& opened, std::size_t list) {
  const Tensor& tensor = opened.parsed.tensors[list];  // lists come first
  std::vector<std::int32_t> ids(tensor.entry.shape[0]);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(ids));
  if (Status s = opened.file.read(opened.header.size() + tensor.entry.begin, bytes); !s.ok()) return s;
  const std::string what = opened.file.path() + ": tensor " + tensor.entry.name;
  if (xxh3(bytes) != opened.parsed.checksums[list]) return Status(StatusCode::kCorrupt, what + " is damaged");
  if (std::any_of(ids.begin(), ids.end(), [](std::int32_t id) { return id < 0; }))
    return Status(StatusCode::kCorrupt, what + " holds an id below 0");
  return ids;
}

// A row that refers to a piece, and the positions that it takes from there.
struct Use {
  std::size_t row = 0;
  int begin = 0;
  int end = 0;
};

// Rows that are being filled from a file's tensors.
class Filling {
 public:
  // All rows with their pages, or none.
  static Result<Filling> start(const session::Layout& layout,
                               const std::shared_ptr<StateStore::Impl>& store) {
    Filling filling(layout);
    for (const RowEntry& entry : layout.rows) {
      std::vector<Extent> extents;
      for (std::size_t g = 0; g < entry.groups.size(); g++) {
        const RowGroup& its = entry.groups[g];
        extents.push_back({its.converted ? kFinal : kEarly,
                           std::max(its.begin, store->retained(static_cast<int>(g), entry.length)),
                           entry.minimum_length});
      }
      Result<std::shared_ptr<Row::Impl>> row = make_filled_row(store, "restore", entry.length, extents);
      if (!row.ok()) return row.status();
      filling.rows_.push_back(std::move(*row));
      filling.note_uses(entry);
    }
    return filling;
  }

  void take(const Tensor& tensor, std::size_t offset, std::span<const std::byte> bytes) const {
    if (tensor.kind == Tensor::Kind::kPiece) take_piece(tensor, offset, bytes);
    if (tensor.kind == Tensor::Kind::kState || tensor.kind == Tensor::Kind::kTail)
      take_state(tensor, offset, bytes);
  }

  std::vector<Row> finish() && {
    std::vector<Row> rows;
    rows.reserve(rows_.size());
    for (std::shared_ptr<Row::Impl>& row : rows_) rows.push_back(StoreAccess::row(std::move(row)));
    return rows;
  }

 private:
  explicit Filling(const session::Layout& layout) : layout_(&layout), uses_(layout.pieces.size()) {}

  void note_uses(const RowEntry& entry) {
    for (const RowGroup& its : entry.groups) {
      session::Cuts cuts(its.sinks, its.begin, entry.length);
      for (const int piece : its.pieces) {
        const session::Cuts::Range cut = *cuts.next();
        uses_[static_cast<std::size_t>(piece)].push_back({rows_.size() - 1, cut.begin, cut.end});
      }
    }
  }

  // The bytes are vectors of [layers, kv_heads, positions]; each run of positions goes to every row of it.
  void take_piece(const Tensor& tensor, std::size_t offset, std::span<const std::byte> bytes) const {
    const session::Piece& piece = layout_->pieces[static_cast<std::size_t>(tensor.index)];
    const auto heads = static_cast<std::size_t>(layout_->plan.group(piece.group).kv_heads);
    const auto positions = static_cast<std::size_t>(piece.end - piece.begin);
    const std::size_t each = tensor.piece.bytes();
    for (std::size_t at = offset / each, end = at + bytes.size() / each; at < end;) {
      const std::size_t line = at / positions, first = at % positions;
      const std::size_t count = std::min(positions - first, end - at);
      const RowSide side{.group = piece.group,
                         .layer_slot = static_cast<int>(line / heads),
                         .head = static_cast<int>(line % heads),
                         .keys = tensor.piece.keys};
      const int begin = piece.begin + static_cast<int>(first), behind = begin + static_cast<int>(count);
      const std::byte* data = bytes.data() + (at * each - offset);
      for (const Use& use : uses_[static_cast<std::size_t>(tensor.index)]) {
        const int from = std::max(begin, use.begin), to = std::min(behind, use.end);
        if (from >= to) continue;
        put_part(*rows_[use.row], side, tensor.piece.part, from, to - from,
                 data + static_cast<std::size_t>(from - begin) * each);
      }
      at += count;
    }
  }

  // The bytes are of [layers, numbers of a layer].
  void take_state(const Tensor& tensor, std::size_t offset, std::span<const std::byte> bytes) const {
    const auto g = static_cast<std::size_t>(tensor.group);
    const std::size_t layer = (tensor.entry.end - tensor.entry.begin) / tensor.entry.shape[0];
    for (std::size_t r = 0; r < rows_.size(); r++) {
      const Row::Impl& row = *rows_[r];
      if (layout_->rows[r].states[g] != tensor.index || row.states[g] == kNoPage) continue;
      for (std::size_t done = 0; done < bytes.size();) {
        const std::size_t at = offset + done, in_layer = at % layer;
        const std::size_t count = std::min(layer - in_layer, bytes.size() - done);
        const int slot = static_cast<int>(at / layer);
        float* to = tensor.kind == Tensor::Kind::kState
                        ? row.store->layer_state(tensor.group, row.states[g], slot)
                        : row.store->layer_tail(tensor.group, row.states[g], slot);
        std::memcpy(reinterpret_cast<std::byte*>(to) + in_layer, bytes.data() + done, count);
        done += count;
      }
    }
  }

  const session::Layout* layout_;
  std::vector<std::shared_ptr<Row::Impl>> rows_;
  std::vector<std::vector<Use>> uses_;  // of each piece
};

std::string tensor_text(const Tensor& tensor, std::uint64_t checksum) {
  return fmt::format("{{\"name\":\"{}\",\"dtype\":\"{}\",\"shape\":[{}],\"bytes\":{},\"xxh3\":\"{}\"}}",
                     tensor.entry.name, dtype_name(tensor.entry.dtype), fmt::join(tensor.entry.shape, ","),
                     tensor.entry.end - tensor.entry.begin, hex(checksum));
}

std::string row_text(const RowEntry& entry, const SessionRow& row, bool show_tokens) {
  std::string groups;
  for (const RowGroup& g : entry.groups) {
    groups += fmt::format("{}{{\"converted\":{},\"sinks\":{},\"begin\":{}}}", groups.empty() ? "" : ",",
                          g.converted, g.sinks, g.begin);
  }
  return fmt::format("{{\"length\":{},\"minimum_length\":{},\"tokens\":{},{}\"groups\":[{}]}}", row.length,
                     row.minimum_length, row.tokens.size(),
                     show_tokens ? fmt::format("\"token_ids\":[{}],", fmt::join(row.tokens, ",")) : "",
                     groups);
}

}  // namespace

struct SessionFile::Impl {
  Opened opened;
  std::vector<SessionRow> rows;
  std::string sha256;

  const session::Layout& layout() const { return opened.parsed.layout; }
};

SessionFile::SessionFile(std::unique_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
SessionFile::SessionFile(SessionFile&&) noexcept = default;
SessionFile& SessionFile::operator=(SessionFile&&) noexcept = default;
SessionFile::~SessionFile() = default;

Result<SessionFile> SessionFile::open(const std::string& path) { return open(path, system_file_ops()); }

Result<SessionFile> SessionFile::open(const std::string& path, FileOps& ops) try {
  Result<Opened> opened = open_session(path, ops);
  if (!opened.ok()) return opened.status();
  std::vector<std::vector<std::int32_t>> lists;
  for (std::size_t i = 0; i < opened->parsed.layout.token_lists.size(); i++) {
    Result<std::vector<std::int32_t>> ids = read_tokens(*opened, i);
    if (!ids.ok()) return ids.status();
    lists.push_back(std::move(*ids));
  }
  std::vector<SessionRow> rows;
  for (const RowEntry& row : opened->parsed.layout.rows)
    rows.push_back({row.length, lists[static_cast<std::size_t>(row.tokens)], row.minimum_length});
  std::string sha256 = opened->header.substr(opened->places.sha256, kSha256Digits);
  return SessionFile(
      std::make_unique<const Impl>(Impl{std::move(*opened), std::move(rows), std::move(sha256)}));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

const SessionIdentity& SessionFile::identity() const noexcept { return impl_->layout().identity; }
const std::string& SessionFile::signature() const noexcept { return impl_->layout().plan.signature(); }
int SessionFile::rows() const noexcept { return static_cast<int>(impl_->rows.size()); }
const SessionRow& SessionFile::row(int r) const noexcept { return impl_->rows[static_cast<std::size_t>(r)]; }
const std::string& SessionFile::sha256() const noexcept { return impl_->sha256; }

Status SessionFile::verify(SessionCheck check, ThreadPool* pool) const try {
  return session::walk(impl_->opened, check, pool, {});
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status SessionFile::check_identity(const SessionIdentity& expected, const std::string& signature) const try {
  return session::compare_identities(identity(), this->signature(), expected, signature)
      .with_context(impl_->opened.file.path());
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<std::vector<Row>> SessionFile::restore(StateStore& store, const SessionIdentity& expected,
                                              SessionCheck check, ThreadPool* pool) const try {
  if (Status s = check_identity(expected, store.plan().signature()); !s.ok()) return s;
  const std::shared_ptr<StateStore::Impl>& impl = StoreAccess::impl(store);
  Result<Filling> filling = Filling::start(impl_->layout(), impl);
  if (!filling.ok()) return filling.status().with_context(impl_->opened.file.path());
  const Status walked =
      session::walk(impl_->opened, check, pool,
                    [&](const Tensor& tensor, std::size_t offset, std::span<const std::byte> bytes) {
                      filling->take(tensor, offset, bytes);
                    });
  if (!walked.ok()) return walked;
  std::vector<Row> rows = std::move(*filling).finish();
  if (Status s = impl->check_if_poison(); !s.ok()) return s;
  return rows;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

std::string SessionFile::to_json(bool show_tokens) const {
  const session::Layout& layout = impl_->layout();
  const session::Parsed& parsed = impl_->opened.parsed;
  std::vector<std::string> rows, tensors;
  for (std::size_t r = 0; r < impl_->rows.size(); r++)
    rows.push_back(row_text(layout.rows[r], impl_->rows[r], show_tokens));
  for (std::size_t i = 0; i < parsed.tensors.size(); i++)
    tensors.push_back(tensor_text(parsed.tensors[i], parsed.checksums[i]));
  return fmt::format(
      "{{\"format\":\"{}\",\"version\":\"{}\",\"bytes\":{},\"sha256\":\"{}\",\"signature\":\"{}\","
      "\"identity\":{},"
      "\"groups\":{},\"rows\":[{}],\"tensors\":[{}]}}",
      session::kFormat, session::kVersion, impl_->opened.file.size(), impl_->sha256, signature(),
      session::identity_text(layout.identity), session::groups_text(layout.plan), fmt::join(rows, ","),
      fmt::join(tensors, ","));
}

}  // namespace windrow
