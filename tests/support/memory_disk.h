// A disk in memory that loses power: what was not synced may be there afterwards or not, in any order, sector
// by sector. One folder; names are whole paths.
//
// The model, which allows at least what file systems do:
//   * A write stays pending until its file is synced. Of the pending bytes each sector is on the disk or not,
//     by chance; where none of it is, the old bytes are, zeros beyond the old end. The length that the file
//     has afterwards is that of any of the pending writes.
//   * A name that was created, renamed or removed stays pending until the folder is synced; each such change
//     happened or not, by chance (a rename whole or not at all), in order.
//   * sync of a file does not sync its name.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "io/file.h"

namespace windrow::testing {

class MemoryDisk : public FileOps {
 public:
  MemoryDisk() = default;

  // What a file holds now; nullopt: no such name.
  std::optional<std::string> content(const std::string& path) const {
    const auto it = names_.find(path);
    return it == names_.end() ? std::nullopt : std::optional(it->second->now);
  }
  void put(const std::string& path, std::string bytes) {
    auto inode = std::make_shared<Inode>();
    inode->now = inode->durable = std::move(bytes);
    names_[path] = durable_names_[path] = inode;
  }
  std::size_t names() const { return names_.size(); }
  std::size_t open_files() const { return open_.size(); }

  // From here on `calls` more calls that change something happen, then none: the power is off.
  void power_off_after(int calls) { left_ = calls; }
  bool is_off() const { return left_ == 0; }
  // Calls so far that changed something, or tried to.
  int changes() const { return changes_; }

  // What is on the disk after a power cut now, on a new disk with nothing pending.
  template <typename Random>
  void cut(Random& random, std::size_t sector, MemoryDisk& out) const {
    const auto chance = [&] { return (random() & 1) != 0; };
    std::map<std::string, InodePtr> names = durable_names_;
    for (const NameChange& change : name_changes_) {
      if (!chance()) continue;
      if (!change.from.empty()) names.erase(change.from);
      if (!change.to.empty()) names[change.to] = change.inode;
    }
    out.names_.clear();
    out.durable_names_.clear();
    for (const auto& [name, inode] : names) {
      std::string bytes = inode->durable;
      for (const Write& write : inode->pending) {
        if (chance()) bytes.resize(std::max(bytes.size(), write.at + write.bytes.size()));
      }
      for (const Write& write : inode->pending) {
        for (std::size_t at = write.at; at < write.at + write.bytes.size();) {
          const std::size_t end = std::min(write.at + write.bytes.size(), (at / sector + 1) * sector);
          if (chance() && at < bytes.size())
            bytes.replace(at, std::min(end, bytes.size()) - at, write.bytes, at - write.at,
                          std::min(end, bytes.size()) - at);
          at = end;
        }
      }
      out.put(name, std::move(bytes));
    }
  }

  int create(const char* path, mode_t) override {
    if (!change()) return -1;
    if (names_.contains(path)) return fail(EEXIST);
    auto inode = std::make_shared<Inode>();
    names_[path] = inode;
    name_changes_.push_back({"", path, inode});
    return open_inode(inode);
  }
  int open(const char* path, bool) override {
    const auto it = names_.find(path);
    return it == names_.end() ? fail(ENOENT) : open_inode(it->second);
  }
  int open_folder(const char*) override { return open_inode(nullptr); }
  int status(int fd, struct stat* info) override {
    const InodePtr inode = open_.at(fd);
    *info = {};
    info->st_mode = S_IFREG | 0600;
    info->st_size = static_cast<off_t>(inode->now.size());
    for (const auto& [name, its] : names_) info->st_nlink += its == inode;
    return 0;
  }
  int path_status(const char* path, struct stat* info) override {
    if (!names_.contains(path)) return fail(ENOENT);
    *info = {};
    info->st_mode = S_IFREG | 0600;
    return 0;
  }
  ssize_t read_at(int fd, void* data, std::size_t size, std::uint64_t offset) override {
    const std::lock_guard lock(mutex_);
    const std::string& bytes = open_.at(fd)->now;
    if (offset >= bytes.size()) return 0;
    const std::size_t n = std::min(size, bytes.size() - static_cast<std::size_t>(offset));
    std::memcpy(data, bytes.data() + offset, n);
    return static_cast<ssize_t>(n);
  }
  ssize_t write(int fd, const void* data, std::size_t size) override {
    if (!change()) return -1;
    Inode& inode = *open_.at(fd);
    inode.pending.push_back({inode.now.size(), std::string(static_cast<const char*>(data), size)});
    inode.now.append(static_cast<const char*>(data), size);
    return static_cast<ssize_t>(size);
  }
  int lock(int fd) override {
    const InodePtr& inode = open_.at(fd);
    if (inode->holder != -1 && inode->holder != fd) return fail(EWOULDBLOCK);
    inode->holder = fd;
    return 0;
  }
  int sync(int fd) override {
    if (!change()) return -1;
    if (const InodePtr& inode = open_.at(fd)) {
      inode->durable = inode->now;
      inode->pending.clear();
    } else {
      durable_names_ = names_;
      name_changes_.clear();
    }
    return 0;
  }
  int close(int fd) override {
    const auto it = open_.find(fd);
    if (it == open_.end()) return fail(EBADF);
    if (it->second && it->second->holder == fd) it->second->holder = -1;
    open_.erase(it);
    return 0;
  }
  int rename(const char* from, const char* to) override {
    if (!change()) return -1;
    const auto it = names_.find(from);
    if (it == names_.end()) return fail(ENOENT);
    const InodePtr inode = it->second;
    names_.erase(it);
    names_[to] = inode;
    name_changes_.push_back({from, to, inode});
    return 0;
  }
  int unlink(const char* path) override {
    if (!change()) return -1;
    if (names_.erase(path) == 0) return fail(ENOENT);
    name_changes_.push_back({path, "", nullptr});
    return 0;
  }

 private:
  struct Write {
    std::size_t at = 0;
    std::string bytes;
  };
  struct Inode {
    std::string now, durable;
    std::vector<Write> pending;
    int holder = -1;  // of the lock
  };
  using InodePtr = std::shared_ptr<Inode>;
  struct NameChange {
    std::string from, to;  // empty: none
    InodePtr inode;
  };

  static int fail(int error) {
    errno = error;
    return -1;
  }
  // Counts a call that changes something; false with the power off.
  bool change() {
    changes_++;
    if (left_ == 0) {
      errno = EIO;
      return false;
    }
    if (left_ > 0) left_--;
    return true;
  }
  int open_inode(InodePtr inode) {
    open_[next_] = std::move(inode);
    return next_++;
  }

  std::map<std::string, InodePtr> names_, durable_names_;
  std::vector<NameChange> name_changes_;
  std::map<int, InodePtr> open_;  // null: the folder
  std::mutex mutex_;
  int next_ = 100;
  int left_ = -1;  // -1: without end
  int changes_ = 0;
};

}  // namespace windrow::testing
