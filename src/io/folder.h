// A folder of files that appears whole or not at all.
//
// Thread safety: one thread at a time.
#pragma once

#include <string>
#include <utility>

#include "io/file.h"
#include "windrow/status.h"

namespace windrow {

// A folder under a temporary name beside `path`, to be filled with files; commit() renames it. Without a
// commit, or after an error, it is removed with the files in it, and what stood at `path` is untouched. A
// crash may leave `PATH.tmp-PID` behind.
class AtomicFolder {
 public:
  enum class Existing { kRefuse, kReplace };
  // kReplace: a folder that stands at `path` gives way, if it is one that we could have written: config.json
  // in it and no folder. Errors: kIo where the system refuses or something else stands there. `ops` must
  // outlive the folder.
  static Result<AtomicFolder> create(const std::string& path, Existing existing,
                                     FileOps& ops = system_file_ops());
  AtomicFolder(AtomicFolder&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::exchange(other.temporary_, std::string())),
        replace_(other.replace_),
        ops_(other.ops_) {}
  AtomicFolder& operator=(AtomicFolder&&) = delete;
  ~AtomicFolder() { discard(); }

  // Where the files go until commit(): plain files, no folders.
  const std::string& place() const noexcept { return temporary_; }
  // The files are expected to be synced (AtomicFile does). A folder that gave way is gone afterwards, in one
  // step where the system can exchange two names.
  Status commit();

 private:
  AtomicFolder(std::string path, std::string temporary, bool replace, FileOps& ops)
      : path_(std::move(path)), temporary_(std::move(temporary)), replace_(replace), ops_(&ops) {}
  void discard() noexcept;

  std::string path_;
  std::string temporary_;  // empty: committed, failed or moved from
  bool replace_;           // something stands at path_
  FileOps* ops_;
};

}  // namespace windrow
