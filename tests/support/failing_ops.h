// File operations of which the n-th fails, or every one from the n-th on.
#pragma once

#include <algorithm>
#include <cerrno>
#include <string>

#include "io/file.h"

namespace windrow::testing {

class FailingOps : public FileOps {
 public:
  enum class Kind { kOnce, kPersistent };
  // What fails: the n-th (from 0) of the calls whose name begins with `call` ("" for all).
  struct Fault {
    std::string call;
    int error = EIO;
    Kind kind = Kind::kOnce;
    bool is_short = false;  // of write and read_at: half of what was asked for, not an error
  };
  FailingOps(FileOps& base, Fault fault, int n) : base_(base), fault_(std::move(fault)), n_(n) {}

  bool hit() const { return hit_; }  // whether a call failed

  int create(const char* path, mode_t mode) override {
    return fails("create") ? -1 : base_.create(path, mode);
  }
  int open(const char* path, bool follow) override { return fails("open") ? -1 : base_.open(path, follow); }
  int open_folder(const char* path) override { return fails("open_folder") ? -1 : base_.open_folder(path); }
  int status(int fd, struct stat* info) override { return fails("status") ? -1 : base_.status(fd, info); }
  int path_status(const char* path, struct stat* info) override {
    return fails("path_status") ? -1 : base_.path_status(path, info);
  }
  ssize_t read_at(int fd, void* data, std::size_t size, std::uint64_t offset) override {
    if (!fails("read_at")) return base_.read_at(fd, data, size, offset);
    return fault_.is_short ? base_.read_at(fd, data, std::max<std::size_t>(1, size / 2), offset) : -1;
  }
  ssize_t write(int fd, const void* data, std::size_t size) override {
    if (!fails("write")) return base_.write(fd, data, size);
    return fault_.is_short ? base_.write(fd, data, std::max<std::size_t>(1, size / 2)) : -1;
  }
  int lock(int fd) override { return fails("lock") ? -1 : base_.lock(fd); }
  int sync(int fd) override { return fails("sync") ? -1 : base_.sync(fd); }
  int close(int fd) override {
    const bool failed = fails("close");
    const int result = base_.close(fd);  // a close that fails has closed, too
    if (!failed) return result;
    errno = fault_.error;
    return -1;
  }
  int rename(const char* from, const char* to) override {
    return fails("rename") ? -1 : base_.rename(from, to);
  }
  int unlink(const char* path) override { return fails("unlink") ? -1 : base_.unlink(path); }

 private:
  bool fails(const std::string& call) {
    if (!fault_.call.empty() && call != fault_.call) return false;
    const int number = calls_++;
    if (number < n_ || (number > n_ && fault_.kind == Kind::kOnce)) return false;
    hit_ = true;
    errno = fault_.error;
    return true;
  }

  FileOps& base_;
  Fault fault_;
  int n_;
  int calls_ = 0;
  bool hit_ = false;
};

}  // namespace windrow::testing
