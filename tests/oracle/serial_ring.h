// A serial rotating KV cache (mlx-lm's RotatingKVCache): one ring of `max_size` columns whose first
// `keep` are never overwritten. Tests only; reproduces reference/mlx G2_rotating column by column.
//
// One position is written in place at the head, which wraps to `keep`; several at once are joined to
// the ring's columns in temporal order, after all but the newest max_size-1 were dropped, so that the
// first of them still sees a whole window.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "oracle/tensor.h"

namespace windrow::oracle {

constexpr int kGrowth = 256;  // columns a buffer grows by (mlx-lm's `step`)

// A serial cache may answer "no mask needed" or "plain causal" instead of an array.
struct SerialMask {
  enum class Kind { kNone, kCausal, kArray } kind = Kind::kNone;
  Mask array;  // batch 1
};

class SerialRing {
 public:
  explicit SerialRing(int max_size, int keep = 0, int growth = kGrowth)
      : max_size_(max_size), keep_(keep), growth_(growth) {
    if (max_size < 1 || keep < 0 || keep >= max_size || growth < 1) {
      throw std::invalid_argument("serial ring: sizes");
    }
  }
  // A ring that holds `columns`, in temporal order, of a row that is `offset` tokens long.
  static SerialRing holding(int max_size, Kv columns, int offset) {
    SerialRing ring(max_size);
    ring.idx_ = columns.columns();
    ring.kv_ = std::move(columns);
    ring.offset_ = offset;
    return ring;
  }

  // Writes the fresh columns and returns what attention reads.
  Kv update(const Kv& fresh) { return fresh.columns() == 1 ? append_one(fresh) : append_window(fresh); }

  Kv append_one(const Kv& fresh) {
    tail_ = 0;
    if (idx_ == kv_.columns() && idx_ < max_size_) grow(fresh);
    if (kv_.columns() > max_size_) {
      kv_ = without_oldest(kv_.columns() - max_size_);
      idx_ = max_size_;
    }
    if (idx_ == max_size_) idx_ = keep_;
    kv_.write(idx_, fresh);
    idx_++;
    offset_++;
    return offset_ < max_size_ ? kv_.cut(0, offset_) : kv_;
  }

  Kv append_window(const Kv& fresh) {
    kv_ = temporal();
    kv_ = Kv::join_columns(without_oldest(std::max(0, kv_.columns() - (max_size_ - 1))), fresh);
    offset_ += fresh.columns();
    idx_ = kv_.columns();
    tail_ = fresh.columns();
    return kv_;
  }

  bool is_trimmable() const { return offset_ < max_size_; }

  // Forgets the newest tokens, at most n, and returns how many. Without bypass only a ring that never
  // wrapped can (else 0), and only the counters move. With bypass, right after append_window, up to
  // that window's length is cut off the buffer: all that is left is still there.
  int trim(int n, bool bypass = false) {
    if (!bypass) {
      if (!is_trimmable()) return 0;
      n = std::min(n, offset_);
    } else {
      if (n > tail_) throw std::logic_error("serial ring: bypass trims only what the last window wrote");
      kv_ = kv_.cut(0, kv_.columns() - n);
    }
    tail_ = bypass ? tail_ - n : 0;
    offset_ -= n;
    idx_ -= n;
    return n;
  }

  // Before an update of n columns. A window narrower than the ring may be asked for.
  SerialMask make_mask(int n, std::optional<int> window = std::nullopt) const {
    if (n > 1) {
      const int past = std::min(max_size_ - 1, offset_), w = window.value_or(max_size_);
      if (past + n <= w) return {SerialMask::Kind::kCausal, {}};
      return {SerialMask::Kind::kArray, Mask::make(1, n, past + n, [&](int, int q, int t) {
                return t <= past + q && t > past + q - w;
              })};
    }
    if (!window || offset_ < *window || max_size_ <= *window) return {};
    // The newest `window` slots, turned so that the newest stands where it will be written (this
    // forgets `keep`: see the README of the reference).
    const int columns = std::min(offset_ + 1, max_size_), head = idx_ >= max_size_ ? 0 : idx_;
    return {SerialMask::Kind::kArray, Mask::make(1, 1, columns, [&](int, int, int t) {
              const int age_order = ((t - head - 1) % columns + columns) % columns;
              return age_order >= columns - *window;
            })};
  }

  // Columns from the oldest to the newest (the kept ones first), a copy.
  Kv temporal() const {
    const int n = kv_.columns();
    if (idx_ == n) return kv_;
    if (idx_ >= offset_) return kv_.cut(0, idx_);
    return Kv::join_columns(kv_.cut(0, keep_), Kv::join_columns(kv_.cut(idx_, n), kv_.cut(keep_, idx_)));
  }

  int offset() const { return offset_; }
  int idx() const { return idx_; }
  int max_size() const { return max_size_; }
  int keep() const { return keep_; }
  int size() const { return std::min(offset_, max_size_); }
  const Kv& buffer() const { return kv_; }
  // What a prompt-cache file stores of the ring besides its columns.
  std::array<std::string, 4> meta_state() const {
    return {std::to_string(keep_), std::to_string(max_size_), std::to_string(offset_), std::to_string(idx_)};
  }

 private:
  void grow(const Kv& like) {
    const int more = std::min(growth_, max_size_ - kv_.columns());
    kv_ = Kv::join_columns(kv_, like.zeros(like.batch(), more));
  }
  // Of columns in temporal order; the kept ones don't count as old.
  Kv without_oldest(int n) const {
    if (n == 0) return kv_;
    return Kv::join_columns(kv_.cut(0, keep_), kv_.cut(keep_ + n, kv_.columns()));
  }

  int max_size_, keep_, growth_;
  Kv kv_;
  int offset_ = 0;  // tokens of the row
  int idx_ = 0;     // the column that is written next
  int tail_ = 0;    // newest columns that a bypass trim may cut
};

}  // namespace windrow::oracle
