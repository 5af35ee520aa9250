// Sessions: rows on disk, in logical order, with the identity of what made them.
//
//   out:  Result<SessionWriter> writer = SessionWriter::create(plan, identity);
//         writer->add(row, tokens);                                   // one row or several
//         writer->save("chat.session");
//   in:   Result<SessionFile> file = SessionFile::open("chat.session");
//         Result<std::vector<Row>> rows = file->restore(store, identity);
//         file->row(0).tokens                                         // and the text so far
//
// A file holds each row whole: the positions of every layer that the row retains, sinks, recurrent states,
// token ids, its lowest length and on which side of delayed codecs it stands. Nothing in it depends on pages,
// ring phase, threads or the machine: a row goes on in any store of the same signature exactly as it would
// have gone on where it was. Rows that were forked from one another store equal ranges of positions once.
// The container is a safetensors file (docs/session-format.md), readable by any reader of those.
//
// Crash semantics: save() replaces the file at once (temporary file, fsync, rename, fsync of the folder, mode
// 0600). At every moment the old file stands there whole, or the new one.
//
// Damage: nothing of a file is used before it is checked. Any damage is kCorrupt, refuses the file whole and
// leaves the store as it was. A file of another model, tokenizer, plan, tenant, ... is kFailedPrecondition,
// naming every field that differs with both values.
//
// Thread safety: a SessionWriter belongs to one thread. A SessionFile is immutable; restores of different
// stores may run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "windrow/export.h"
#include "windrow/plan.h"
#include "windrow/records.h"
#include "windrow/status.h"
#include "windrow/store.h"
#include "windrow/threads.h"

namespace windrow {

class FileOps;  // internal: src/io/file.h

// What made the rows of a session. Texts that are compared whole; an empty one says "none" and equals only an
// empty one. Valid UTF-8.
struct SessionIdentity {
  std::string model;      // model_fingerprint()
  std::string tokenizer;  // file_fingerprint() of its tokenizer.json
  std::string rope;       // how positions are rotated: rope_parameters()
  std::string adapter;    // of the weights, where one is applied
  std::string numerics;   // the arithmetic that made the numbers: kNumericVersion and, say, a Compute mode
  std::string tenant;     // whose it is, as the caller authenticated them
  friend bool operator==(const SessionIdentity&, const SessionIdentity&) = default;
};

// Raised when the same tokens begin to give other numbers in the state (not by another instruction set,
// whose last bits differ: a session may move between machines).
inline constexpr const char* kNumericVersion = "1";

// SHA-256 of a model folder's config.json (as canonical JSON: keys sorted, no white space) and of all its
// tensors: names, types, shapes and every byte. Tensors are hashed in parallel, each on its own, and the
// digest is of their digests; that reads the weights once, at 1.5 to 2 GB/s a thread.
WINDROW_API Result<std::string> model_fingerprint(const std::string& folder, ThreadPool& pool);
// SHA-256 of a file's bytes.
WINDROW_API Result<std::string> file_fingerprint(const std::string& path);
// The members of config.json (and of its text_config) that say how positions are rotated, as canonical JSON.
WINDROW_API Result<std::string> rope_parameters(const std::string& folder);

// A row of a session but for its state.
struct SessionRow {
  int length = 0;  // positions in the state
  // Of the whole text: `length` ids that were fed, then those that are chosen but not fed yet.
  std::vector<std::int32_t> tokens;
  int minimum_length = 0;  // see Row::minimum_length
};

class WINDROW_API SessionWriter {
 public:
  // `plan`: of the rows' store. kInvalidArgument for an identity that is not UTF-8.
  static Result<SessionWriter> create(const StatePlan& plan, const SessionIdentity& identity);
  SessionWriter(SessionWriter&&) noexcept;
  SessionWriter& operator=(SessionWriter&&) noexcept;
  ~SessionWriter();

  // Copies what the row retains. `tokens` as in SessionRow: at least row.length() of them. An error adds
  // nothing: kFailedPrecondition for a row of another plan or in an open step, kInvalidArgument.
  Status add(const Row& row, std::span<const std::int32_t> tokens);
  // The same of a row that left its store (Row::extract, extract_retained). No cut below `minimum_length`.
  Status add(const RowRecords& records, std::span<const std::int32_t> tokens, int minimum_length);

  int rows() const noexcept;
  std::size_t bytes() const noexcept;  // of tensors that save() would write now

  // See the head of this file. The writer may be used on. kIo when the system refuses, leaving what stood at
  // `path`; a link there is refused, not followed and not replaced.
  Status save(const std::string& path) const;
  Status save(const std::string& path, FileOps& ops) const;  // internal: tests, other stores

 private:
  struct Impl;
  explicit SessionWriter(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

// What of a file is checked besides its structure. XXH3-64 of the header and of every tensor finds all
// accidents (a damage that stays hidden: 1 in 2^64). SHA-256 also tells a file that was made to look intact,
// at four times the time.
enum class SessionCheck { kXxh3, kAll };

class WINDROW_API SessionFile {
 public:
  // Reads and checks the header and the token ids. A link at `path` is refused.
  static Result<SessionFile> open(const std::string& path);
  static Result<SessionFile> open(const std::string& path, FileOps& ops);  // internal
  SessionFile(SessionFile&&) noexcept;
  SessionFile& operator=(SessionFile&&) noexcept;
  ~SessionFile();

  const SessionIdentity& identity() const noexcept;
  const std::string& signature() const noexcept;  // of the plan
  int rows() const noexcept;
  const SessionRow& row(int r) const noexcept;
  // The digest that stands for all the file holds.
  const std::string& sha256() const noexcept;

  // kOk when every byte is as it was written.
  Status verify(SessionCheck check = SessionCheck::kAll, ThreadPool* pool = nullptr) const;

  // kFailedPrecondition unless the file's rows come from `expected` and a plan of `signature`.
  Status check_identity(const SessionIdentity& expected, const std::string& signature) const;

  // All rows, in the file's order, in new rows of `store`; all or none. kFailedPrecondition for another
  // identity, kCorrupt for damage, kResourceExhausted where the plan has no room. `pool` may be null.
  Result<std::vector<Row>> restore(StateStore& store, const SessionIdentity& expected,
                                   SessionCheck check = SessionCheck::kAll, ThreadPool* pool = nullptr) const;

  // {"format": ..., "identity": {...}, "groups": [...], "rows": [...], "tensors": [...], ...}; nothing of the
  // tokens but their count unless `show_tokens`.
  std::string to_json(bool show_tokens) const;

 private:
  struct Impl;
  explicit SessionFile(std::unique_ptr<const Impl> impl) noexcept;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace windrow
