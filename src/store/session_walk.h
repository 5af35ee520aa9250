// Reads the tensors of a session file once, checks them, and shows their bytes to whoever wants them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "store/session_layout.h"
#include "windrow/session.h"
#include "windrow/threads.h"

namespace windrow::session {

// An open file whose header was read.
struct Opened {
  ReadableFile file;
  std::string header;  // with its length
  SealPlaces places;
  Parsed parsed;
};

// Bytes [offset, offset + bytes.size()) of a tensor, whole numbers of its last dimension. Called from several
// threads at a time, for each tensor in order by one. Must not throw.
using Take = std::function<void(const Tensor& tensor, std::size_t offset, std::span<const std::byte> bytes)>;

// kOk when all tensors (and, with kAll, the file) have their digests. The bytes that `take` was shown before
// are of use only then. Each byte is read from the file once, into a buffer that stays in the cache between
// being read, hashed and taken. Throws bad_alloc. `pool` may be null.
Status walk(const Opened& opened, SessionCheck check, ThreadPool* pool, const Take& take);

}  // namespace windrow::session
