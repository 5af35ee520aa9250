// POSIX files: mapping, reading, atomic writing.
#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>
#include <system_error>

namespace windrow {
namespace {

Status io_error(const std::string& path, const std::string& what) {
  return Status(StatusCode::kIo, path + ": " + what);
}

// The text of `error`; std::strerror is not thread safe.
std::string system_text(int error) { return std::generic_category().message(error); }

Status check_path(const std::string& path) {
  if (path.empty()) return Status(StatusCode::kInvalidArgument, "the path of a file is empty");
  if (path.find('\0') != path.npos)
    return Status(StatusCode::kInvalidArgument, "the path of a file holds a NUL byte");
  return Status();
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no regular file";
}

// Closes a descriptor that was opened for reading: nothing can be lost.
class Descriptor {
 public:
  Descriptor(int fd, FileOps& ops) : fd_(fd), ops_(&ops) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)), ops_(other.ops_) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) (void)ops_->close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
  FileOps* ops_;
};

struct OpenFile {
  Descriptor fd;
  std::size_t size;
};

// A link is replaced by the new file. Not one that stands for an open stream or a device (/dev/stdout): who
// names it means what is behind it, and root would lose it.
Status check_link(const std::string& path) {
  char target[16];
  const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
  struct stat info = {};
  if (n < 0 || ::stat(path.c_str(), &info) != 0) return Status();  // no link, or one that leads nowhere
  if (!S_ISREG(info.st_mode))
    return io_error(path,
                    fmt::format("is a link to {}, expected a file or a free name", kind_of(info.st_mode)));
  if (!std::string_view(target, static_cast<std::size_t>(n)).starts_with("/proc/")) return Status();
  return io_error(path, "is a link to an open stream, expected a file or a free name");
}

Result<OpenFile> open_regular(const std::string& path, FileOps& ops, bool follow) {
  if (Status s = check_path(path); !s.ok()) return s;
  Descriptor fd(ops.open(path.c_str(), follow), ops);
  if (fd.get() < 0 && !follow && errno == ELOOP) {
    struct stat info = {};
    if (ops.path_status(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode))
      return io_error(path, "is a link, expected a file");
    errno = ELOOP;
  }
  if (fd.get() < 0) return system_error(path, "open");
  struct stat info = {};
  if (ops.status(fd.get(), &info) != 0) return system_error(path, "stat");
  if (!S_ISREG(info.st_mode))
    return io_error(path, fmt::format("is {}, expected a file", kind_of(info.st_mode)));
  if (info.st_size == 0) return Status(StatusCode::kCorrupt, path + ": the file is empty");
  return OpenFile{std::move(fd), static_cast<std::size_t>(info.st_size)};
}

Status write_all(FileOps& ops, int fd, std::span<const std::byte> bytes, const std::string& path) {
  // Linux writes at most 2^31 - 4096 bytes a call anyway; 1 GiB keeps a whole number of pages.
  constexpr std::size_t kMaxWrite = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t n = ops.write(fd, bytes.data(), std::min(bytes.size(), kMaxWrite));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path, "write");
    if (n == 0) return io_error(path, "cannot write: the system took no bytes");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return Status();
}

struct TemporaryFile {
  std::string path;
  int fd;
};

// Removes a temporary file whose writer is gone: nobody holds its lock.
bool remove_stale(const char* path, FileOps& ops) {
  const Descriptor fd(ops.open(path, false), ops);
  return fd.get() >= 0 && ops.lock(fd.get()) == 0 && ops.unlink(path) == 0;
}

// Creates `path` and locks it. -1 with errno EEXIST also where another writer took the new file for a stale
// one, before it was locked, and removes it.
int create_locked(const char* path, mode_t mode, FileOps& ops) {
  const int fd = ops.create(path, mode);
  if (fd < 0) return fd;
  struct stat info = {};
  // Where a file system knows no locks, nothing that is stale can be told either.
  const bool taken = ops.lock(fd) != 0 && errno == EWOULDBLOCK;
  const bool known = ops.status(fd, &info) == 0;
  if (!taken && known && info.st_nlink > 0) return fd;
  const int error = known ? EEXIST : errno;
  (void)ops.close(fd);
  if (!known) (void)ops.unlink(path);
  errno = error;
  return -1;
}

// The first free name; all names on the way, and behind it, that crashed writers left are removed.
Result<TemporaryFile> create_temporary(const std::string& path, mode_t mode, FileOps& ops) {
  constexpr int kAttempts = 100;  // writers of one path at a time
  const auto name = [&](int i) { return fmt::format("{}.tmp-{}", path, i); };
  for (int i = 0; i < kAttempts; i++) {
    std::string temporary = name(i);
    if (struct stat info = {}; ops.path_status(temporary.c_str(), &info) == 0) {
      if (!remove_stale(temporary.c_str(), ops)) continue;
    }
    for (int k = i + 1; k < kAttempts && remove_stale(name(k).c_str(), ops);) k++;
    const int fd = create_locked(temporary.c_str(), mode, ops);
    if (fd >= 0) return TemporaryFile{std::move(temporary), fd};
    if (errno != EEXIST) return system_error(path, "create a temporary file beside it");
  }
  return io_error(path,
                  fmt::format("cannot create a temporary file beside it: {} names are taken", kAttempts));
}

}  // namespace

Status system_error(const std::string& path, const char* call, int error) {
  return io_error(path, fmt::format("cannot {}: {}", call, system_text(error)));
}

Status sync_folder_of(const std::string& path, FileOps& ops) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  const int fd = ops.open_folder(folder.c_str());
  const bool ok = fd >= 0 && ops.sync(fd) == 0;
  const int error = errno;
  if (fd >= 0) (void)ops.close(fd);  // opened for reading: nothing can be lost
  if (ok) return Status();
  return io_error(path, fmt::format("is written, but its folder cannot be synced: {}", system_text(error)));
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  Result<OpenFile> file = open_regular(path, system_file_ops(), true);
  if (!file.ok()) return file.status();
  void* data = ::mmap(nullptr, file->size, PROT_READ, MAP_PRIVATE, file->fd.get(), 0);
  if (data == MAP_FAILED) return system_error(path, "map");
  MappedFile mapped;
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.size_ = file->size;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<ReadableFile> ReadableFile::open(const std::string& path, FileOps& ops, Links links) {
  Result<OpenFile> file = open_regular(path, ops, links == Links::kFollow);
  if (!file.ok()) return file.status();
  ReadableFile readable(path, file->fd.get(),
                        ops);  // copies the path: the descriptor has its owner till then
  readable.size_ = file->size;
  (void)file->fd.release();
  return readable;
}

ReadableFile::~ReadableFile() {
  if (fd_ >= 0) (void)ops_->close(fd_);
}

Status ReadableFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ops_->read_at(fd_, bytes.data() + done, bytes.size() - done, offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path_, "read");
    if (n == 0)
      return io_error(path_,
                      fmt::format("shrank from {} to {} bytes while it was read", size_, offset + done));
    done += static_cast<std::size_t>(n);
  }
  return Status();
}

Result<std::string> read_file(const std::string& path, std::size_t max_bytes, FileOps& ops) {
  Result<ReadableFile> file = ReadableFile::open(path, ops);
  if (!file.ok()) return file.status();
  if (file->size() > max_bytes) {
    return Status(StatusCode::kCorrupt,
                  fmt::format("{}: {} bytes, the limit is {}", path, file->size(), max_bytes));
  }
  std::string text;
  try {
    text.resize(file->size());
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{}: no memory for its {} bytes", path, file->size()));
  }
  if (Status s = file->read(0, std::as_writable_bytes(std::span(text))); !s.ok()) return s;
  return text;
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat of_a {
  }, of_b{};
  if (a.empty() || b.empty()) return false;
  if (::stat(a.c_str(), &of_a) != 0 || ::stat(b.c_str(), &of_b) != 0) return a == b;
  return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

bool path_exists(const std::string& path, FileOps& ops) {
  struct stat info = {};
  return check_path(path).ok() && ops.path_status(path.c_str(), &info) == 0;
}

int FileOps::create(const char* path, mode_t mode) {
  return ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
}
int FileOps::open(const char* path, bool follow) {
  // O_NONBLOCK: opening a pipe must not wait for a writer; it has no effect on a regular file.
  return ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW));
}
int FileOps::open_folder(const char* path) { return ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }
int FileOps::status(int fd, struct stat* info) { return ::fstat(fd, info); }
int FileOps::path_status(const char* path, struct stat* info) { return ::lstat(path, info); }
ssize_t FileOps::read_at(int fd, void* data, std::size_t size, std::uint64_t offset) {
  return ::pread(fd, data, size, static_cast<off_t>(offset));
}
ssize_t FileOps::write(int fd, const void* data, std::size_t size) { return ::write(fd, data, size); }
int FileOps::lock(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB); }
int FileOps::sync(int fd) { return ::fsync(fd); }
int FileOps::close(int fd) { return ::close(fd); }
int FileOps::rename(const char* from, const char* to) { return ::rename(from, to); }
int FileOps::unlink(const char* path) { return ::unlink(path); }
int FileOps::make_folder(const char* path) { return ::mkdir(path, 0777); }
int FileOps::remove_folder(const char* path) { return ::rmdir(path); }
int FileOps::exchange(const char* a, const char* b) {
  return ::renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

FileOps& system_file_ops() {
  static FileOps ops;
  return ops;
}

Result<AtomicFile> AtomicFile::create(const std::string& path, FileOps& ops, mode_t mode) {
  if (Status s = check_path(path); !s.ok()) return s;
  struct stat info = {};
  if (ops.path_status(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode))
      return io_error(path, fmt::format("is {}, expected a file or a free name", kind_of(info.st_mode)));
    if (S_ISLNK(info.st_mode)) {
      if (Status s = check_link(path); !s.ok()) return s;
    }
  }
  std::string own_path = path;  // copied while there is nothing yet to lose
  Result<TemporaryFile> temporary = create_temporary(path, mode, ops);
  if (!temporary.ok()) return temporary.status();
  return AtomicFile(std::move(own_path), std::move(temporary->path), temporary->fd, ops);
}

Status AtomicFile::check_open() const {
  if (fd_ >= 0) return Status();
  return Status(StatusCode::kFailedPrecondition, path_ + ": writing it has ended");
}

void AtomicFile::discard() noexcept {
  if (fd_ < 0) return;
  (void)ops_->close(std::exchange(fd_, -1));
  (void)ops_->unlink(temporary_.c_str());  // the first error is the one to tell
}

Status AtomicFile::append(std::span<const std::byte> bytes) {
  if (Status s = check_open(); !s.ok()) return s;
  Status s = write_all(*ops_, fd_, bytes, path_);
  if (!s.ok()) discard();
  return s;
}

Status AtomicFile::commit() {
  Status status = check_open();
  if (!status.ok()) return status;
  if (ops_->sync(fd_) != 0) status = system_error(path_, "sync");
  if (ops_->close(std::exchange(fd_, -1)) != 0 && status.ok()) status = system_error(path_, "close");
  if (status.ok() && ops_->rename(temporary_.c_str(), path_.c_str()) != 0)
    status = system_error(path_, "rename");
  if (!status.ok()) {
    (void)ops_->unlink(temporary_.c_str());
    return status;
  }
  return sync_folder_of(path_, *ops_);
}

Status write_atomically(const std::string& path, std::span<const std::span<const std::byte>> parts,
                        FileOps& ops, mode_t mode) {
  Result<AtomicFile> file = AtomicFile::create(path, ops, mode);
  if (!file.ok()) return file.status();
  for (const std::span<const std::byte> part : parts) {
    if (Status s = file->append(part); !s.ok()) return s;
  }
  return file->commit();
}

}  // namespace windrow
