// POSIX files: mapping, bounded reading, atomic writing.
#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
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

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
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

Result<OpenFile> open_regular(const std::string& path) {
  if (Status s = check_path(path); !s.ok()) return s;
  // O_NONBLOCK: opening a pipe must not wait for a writer; it has no effect on a regular file.
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return system_error(path, "open");
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return system_error(path, "stat");
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

Result<TemporaryFile> create_temporary(const std::string& path, FileOps& ops) {
  // A crashed process of the same id may have left names behind; step over a few of them.
  constexpr int kAttempts = 100;
  for (int i = 0; i < kAttempts; i++) {
    std::string temporary = fmt::format("{}.tmp-{}-{}", path, ::getpid(), i);
    const int fd = ops.create(temporary.c_str());
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
  Result<OpenFile> file = open_regular(path);
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

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  Result<OpenFile> file = open_regular(path);
  if (!file.ok()) return file.status();
  if (file->size > max_bytes) {
    return Status(StatusCode::kCorrupt,
                  fmt::format("{}: {} bytes, the limit is {}", path, file->size, max_bytes));
  }
  std::string text;
  try {
    text.resize(file->size);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{}: no memory for its {} bytes", path, file->size));
  }
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(file->fd.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path, "read");
    if (n == 0)
      return io_error(path, fmt::format("shrank from {} to {} bytes while it was read", text.size(), done));
    done += static_cast<std::size_t>(n);
  }
  return text;
}

bool path_exists(const std::string& path) {
  struct stat info = {};
  return check_path(path).ok() && ::lstat(path.c_str(), &info) == 0;
}

int FileOps::create(const char* path) {
  return ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
}
int FileOps::open_folder(const char* path) { return ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }
ssize_t FileOps::write(int fd, const void* data, std::size_t size) { return ::write(fd, data, size); }
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

Result<AtomicFile> AtomicFile::create(const std::string& path, FileOps& ops) {
  if (Status s = check_path(path); !s.ok()) return s;
  struct stat info = {};
  if (::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode)) {
    return io_error(path, fmt::format("is {}, expected a file or a free name", kind_of(info.st_mode)));
  }
  if (Status s = check_link(path); !s.ok()) return s;
  Result<TemporaryFile> temporary = create_temporary(path, ops);
  if (!temporary.ok()) return temporary.status();
  return AtomicFile(path, std::move(temporary->path), temporary->fd, ops);
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
                        FileOps& ops) {
  Result<AtomicFile> file = AtomicFile::create(path, ops);
  if (!file.ok()) return file.status();
  for (const std::span<const std::byte> part : parts) {
    if (Status s = file->append(part); !s.ok()) return s;
  }
  return file->commit();
}

}  // namespace windrow
