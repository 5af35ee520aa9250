#include "store/session_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <optional>

#include "base/out_of_memory.h"

namespace windrow::session {
namespace {

// Half of a level 2 cache of 512 KiB: read, hashed and stored while it is there.
constexpr std::size_t kSlabBytes = std::size_t{256} << 10;

struct Worker {
  std::vector<std::byte> slab;
  Xxh3 xxh3;
  std::optional<Sha256> sha256;
};

Result<Worker> make_worker(SessionCheck check) {
  Result<Xxh3> xxh3 = Xxh3::create();
  if (!xxh3.ok()) return xxh3.status();
  Worker worker{std::vector<std::byte>(kSlabBytes), std::move(*xxh3), std::nullopt};
  if (check == SessionCheck::kAll) {
    Result<Sha256> sha256 = Sha256::create();
    if (!sha256.ok()) return sha256.status();
    worker.sha256 = std::move(*sha256);
  }
  return worker;
}

// The whole of the tensor: read, hashed, taken. `leaf` is its SHA-256, if that is asked for.
Status walk_tensor(const Opened& opened, std::size_t i, Worker& worker, const Take& take,
                   Sha256Digest* leaf) {
  const Tensor& tensor = opened.parsed.tensors[i];
  const std::size_t size = tensor.entry.end - tensor.entry.begin;
  const std::size_t inner =
      std::max<std::size_t>(1, tensor.entry.shape.back() * dtype_size(tensor.entry.dtype));
  // A vector is at most 4 KiB; a state's rows are as short.
  const std::size_t step = std::max<std::size_t>(1, kSlabBytes / inner) * inner;
  if (worker.slab.size() < std::min(step, size)) worker.slab.resize(std::min(step, size));
  worker.xxh3.reset();
  if (worker.sha256) worker.sha256->reset();
  for (std::size_t done = 0; done < size;) {
    const std::span<std::byte> bytes(worker.slab.data(), std::min(step, size - done));
    if (Status s = opened.file.read(opened.header.size() + tensor.entry.begin + done, bytes); !s.ok())
      return s;
    worker.xxh3.update(bytes);
    if (worker.sha256) worker.sha256->update(bytes);
    if (take) take(tensor, done, bytes);
    done += bytes.size();
  }
  if (worker.sha256) *leaf = worker.sha256->finish();
  if (worker.xxh3.finish() == opened.parsed.checksums[i]) return Status();
  return Status(StatusCode::kCorrupt,
                fmt::format("{}: tensor {} is damaged: its XXH3 is {}, not {}", opened.file.path(),
                            tensor.entry.name, hex(worker.xxh3.finish()), hex(opened.parsed.checksums[i])));
}

// The error of the first tensor that has one.
class FirstError {
 public:
  // A tensor behind one that failed needs no reading.
  bool is_behind(std::size_t i) const { return i > at_.load(std::memory_order_relaxed); }
  void keep(std::size_t i, Status status) noexcept {
    const std::lock_guard lock(mutex_);
    if (i > at_.load()) return;
    at_.store(i);
    status_ = std::move(status);
  }
  Status take() { return std::move(status_); }

 private:
  std::mutex mutex_;
  std::atomic<std::size_t> at_{static_cast<std::size_t>(-1)};
  Status status_;
};

}  // namespace

Status walk(const Opened& opened, SessionCheck check, ThreadPool* pool, const Take& take) {
  const std::size_t tensors = opened.parsed.tensors.size();
  std::vector<Sha256Digest> leaves(check == SessionCheck::kAll ? tensors : 0);
  std::vector<Worker> workers;
  for (int t = 0; t < (pool != nullptr ? pool->threads() : 1); t++) {
    Result<Worker> worker = make_worker(check);
    if (!worker.ok()) return worker.status();
    workers.push_back(std::move(*worker));
  }
  FirstError error;
  const auto task = [&](std::size_t i, int thread) {
    if (error.is_behind(i)) return;
    try {
      Status s = walk_tensor(opened, i, workers[static_cast<std::size_t>(thread)], take,
                             leaves.empty() ? nullptr : &leaves[i]);
      if (!s.ok()) error.keep(i, std::move(s));
    } catch (const std::bad_alloc&) {
      error.keep(i, out_of_memory());
    }
  };
  if (pool != nullptr) {
    pool->parallel_for(tensors, task);
  } else {
    for (std::size_t i = 0; i < tensors; i++) task(i, 0);
  }
  if (Status s = error.take(); !s.ok() || check != SessionCheck::kAll) return s;

  Result<Sha256> all = Sha256::create();
  if (!all.ok()) return all.status();
  all->update(blanked(opened.header, opened.places));
  for (const Sha256Digest& leaf : leaves) all->update(std::span<const std::byte>(leaf));
  const std::string digest = hex(all->finish());
  if (opened.header.compare(opened.places.sha256, kSha256Digits, digest) == 0) return Status();
  return Status(StatusCode::kCorrupt,
                fmt::format("{}: is damaged: its SHA-256 is {}, not {}", opened.file.path(), digest,
                            opened.header.substr(opened.places.sha256, kSha256Digits)));
}

}  // namespace windrow::session
