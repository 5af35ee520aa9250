#include "io/folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace windrow {
namespace {

namespace fs = std::filesystem;

// May this folder be removed with everything in it?
Status check_replaceable(const std::string& path) {
  std::error_code error;
  const auto refuse = [&](const std::string& what) {
    return Status(StatusCode::kIo, fmt::format("{}: {}, it is not replaced", path, what));
  };
  if (!fs::is_directory(fs::symlink_status(path, error))) return refuse("is no folder");
  if (!fs::exists(path + "/config.json", error)) return refuse("is no model folder (it has no config.json)");
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (fs::is_directory(it->symlink_status(error)))
      return refuse(fmt::format("holds the folder {}", it->path().filename().string()));
  }
  return error ? refuse("cannot be read: " + error.message()) : Status();
}

// A flat folder and its files; nothing below them.
void remove_flat(const std::string& path, FileOps& ops) noexcept try {
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    (void)ops.unlink(it->path().c_str());
  (void)ops.remove_folder(path.c_str());
} catch (...) {  // no memory for a name: the folder stays, under its temporary name
}

}  // namespace

Result<AtomicFolder> AtomicFolder::create(const std::string& given, Existing existing, FileOps& ops) {
  std::string path = given;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (path.empty() || path.find('\0') != path.npos)
    return Status(StatusCode::kInvalidArgument, "the path of a folder is empty or holds a NUL byte");
  const bool stands = path_exists(path);
  if (stands && existing == Existing::kRefuse) return Status(StatusCode::kIo, path + ": exists already");
  if (stands) {
    if (Status s = check_replaceable(path); !s.ok()) return s;
  }
  std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  if (ops.make_folder(temporary.c_str()) != 0)
    return system_error(path, "create a temporary folder beside it", errno);
  return AtomicFolder(std::move(path), std::move(temporary), stands, ops);
}

Status AtomicFolder::commit() {
  if (temporary_.empty()) return Status(StatusCode::kFailedPrecondition, path_ + ": writing it has ended");
  if (Status s = sync_folder_of(temporary_ + "/", *ops_); !s.ok()) return s;
  if (replace_ && ops_->exchange(temporary_.c_str(), path_.c_str()) == 0) {
    remove_flat(std::exchange(temporary_, std::string()), *ops_);  // now the old one
    return sync_folder_of(path_, *ops_);
  }
  // No such call on this file system: for a moment neither stands at `path`.
  const std::string old = temporary_ + "-old";
  if (replace_ && ops_->rename(path_.c_str(), old.c_str()) != 0) return system_error(path_, "rename", errno);
  if (ops_->rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    if (replace_) (void)ops_->rename(old.c_str(), path_.c_str());
    return system_error(path_, "rename", error);
  }
  temporary_.clear();
  if (replace_) remove_flat(old, *ops_);
  return sync_folder_of(path_, *ops_);
}

void AtomicFolder::discard() noexcept {
  if (!temporary_.empty()) remove_flat(std::exchange(temporary_, std::string()), *ops_);
}

}  // namespace windrow
