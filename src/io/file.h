// Files behind one interface: a read-only mapping, a bounded read of a small text, and an atomic
// write whose system calls can be made to fail by a test.
//
// Messages are `PATH: REASON`, the reason being the system's text where it was the system that
// refused. A path with a NUL byte is refused; it would silently name another file.
//
// Thread safety: values and free functions; a FileOps of a test says its own.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "windrow/status.h"

namespace windrow {

class FileOps;

// A regular, non-empty file mapped for reading. Its size is taken at open. HAZARD: if another process
// truncates the file afterwards, touching the lost pages raises SIGBUS, as with every mapping;
// replacing the file by rename (what write_atomically does) is safe. A shorter or longer file at
// open time is an ordinary error of the format's reader.
class MappedFile {
 public:
  MappedFile() = default;
  static Result<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The whole of a regular, non-empty file of at most `max_bytes`, copied.
Result<std::string> read_file(const std::string& path, std::size_t max_bytes);

// `PATH: cannot CALL: REASON`, of the system's `error`.
Status system_error(const std::string& path, const char* call, int error = errno);
// Makes the names in the folder that `path` lies in survive a power cut.
Status sync_folder_of(const std::string& path, FileOps& ops);

// Whether a name stands there: a file, a folder or a link, dangling ones too.
bool path_exists(const std::string& path);

// The system calls of an atomic write. All return -1 and set errno when they fail, as the calls of
// the same name do. The default is the operating system; tests derive from it and fail some calls.
class FileOps {
 public:
  virtual ~FileOps() = default;
  virtual int create(const char* path);  // for writing, exclusively, never through a link
  virtual int open_folder(const char* path);
  virtual ssize_t write(int fd, const void* data, std::size_t size);
  virtual int sync(int fd);
  virtual int close(int fd);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);
  virtual int make_folder(const char* path);
  virtual int remove_folder(const char* path);  // an empty one
  // What stands at two names changes places, at once.
  virtual int exchange(const char* a, const char* b);
};

// The operating system.
FileOps& system_file_ops();

// A file written piece by piece into a temporary one in the folder of `path`; commit() syncs it,
// renames it to `path` and syncs the folder. Crash semantics: at every moment either the whole new file
// stands at `path` or what stood there before; after an ok commit the new file survives a power cut.
// Without a commit, or after an error, what stood at `path` is untouched and the temporary file is
// removed, with one exception that the message tells: the folder's sync failed, then the new file stands
// but may not survive a power cut. A crash may leave `PATH.tmp-PID-N` behind. An existing `path` must be
// a regular file or a link, which is replaced, not followed (a link to anything but a file is refused).
class AtomicFile {
 public:
  // `ops` must outlive the file.
  static Result<AtomicFile> create(const std::string& path, FileOps& ops = system_file_ops());
  AtomicFile(AtomicFile&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::move(other.temporary_)),
        fd_(std::exchange(other.fd_, -1)),
        ops_(other.ops_) {}
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile() { discard(); }

  // An error ends the file: nothing more can be appended or committed (kFailedPrecondition).
  Status append(std::span<const std::byte> bytes);
  Status commit();

 private:
  AtomicFile(std::string path, std::string temporary, int fd, FileOps& ops)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd), ops_(&ops) {}
  Status check_open() const;
  void discard() noexcept;

  std::string path_;
  std::string temporary_;
  int fd_;  // -1: committed, failed or moved from
  FileOps* ops_;
};

// An AtomicFile of all `parts`, one after another.
Status write_atomically(const std::string& path, std::span<const std::span<const std::byte>> parts,
                        FileOps& ops);

}  // namespace windrow
