// A batched rotating KV cache with one shared head (mlx-lm's BatchRotatingKVCache), and speculative
// rounds over it with one number of kept tokens per row. Tests only; reproduces reference/mlx
// G3_batch_rotating column by column.
//
// All rows are written at the same column. What is ragged is expressed by padding on the left:
// left_padding[b] is the column at which row b's position 0 stands or would stand, were nothing
// dropped; it sinks by one with every column that the ring loses, also below zero. Rows whose newest
// columns are not to count (padding of a prompt, rejected drafts) are rolled right, which carries
// those columns around to the left end.
//
// One number more than upstream: floor_[b], the first column that row b's own tokens occupy. It
// differs from left_padding where columns came in at the left of a row that had lost some (rolled
// around, or zeros beside a longer batch): they are junk, although left_padding, being negative, does
// not say so. Masks don't need it, such columns are out of every window; extraction does.
#pragma once

#include "oracle/serial_ring.h"

namespace windrow::oracle {

// The newest columns of one row in temporal order (batch 1), at positions begin .. end-1.
struct RowColumns {
  Kv kv;
  int begin = 0, end = 0;
};

class BatchRing {
 public:
  BatchRing(int max_size, Ints left_padding, int growth = kGrowth)
      : max_size_(max_size), growth_(growth), left_padding_(std::move(left_padding)), floor_(left_padding_) {
    if (max_size < 1 || growth < 1) throw std::invalid_argument("batch ring: sizes");
    for (const int p : left_padding_) row_offset_.push_back(-p);
  }

  // A batch of the sources' rows, in their order; the sources are borrowed. Rows stand right-aligned.
  static BatchRing merge(int max_size, const std::vector<RowColumns>& rows) {
    BatchRing out(max_size, {});
    for (const RowColumns& r : rows) out.idx_ = std::max(out.idx_, r.kv.columns());
    const auto shape = std::ranges::find_if(rows, [](const RowColumns& r) { return r.kv.columns() > 0; });
    for (const RowColumns& r : rows) {
      const int padding = out.idx_ - r.kv.columns();
      out.left_padding_.push_back(padding);
      out.floor_.push_back(padding);
      out.row_offset_.push_back(r.end);
      if (shape == rows.end()) continue;
      const Kv row = r.kv.columns() > 0 ? r.kv.pad(padding, out.idx_) : shape->kv.zeros(1, out.idx_);
      out.kv_ = out.kv_.batch() == 0 ? row : Kv::join_rows(out.kv_, row);
    }
    out.offset_ = out.idx_;
    return out;
  }
  static RowColumns row_of(const SerialRing& ring) {
    if (ring.keep() != 0) throw std::invalid_argument("batch ring: kept columns can't be merged");
    const Kv all = ring.temporal();
    return newest(all, std::min(all.columns(), ring.size()), ring.offset());
  }

  // Writes the fresh columns of every row and returns what attention reads.
  Kv update(const Kv& fresh) { return fresh.columns() == 1 ? append_one(fresh) : append_window(fresh); }

  // In place at the shared head. Not while a right-padded prompt is pending (as upstream).
  Kv append_one(const Kv& fresh) {
    if (!lengths_.empty()) throw std::runtime_error("batch ring: finalize before appending one position");
    if (idx_ == kv_.columns() && idx_ < max_size_) {
      const int more = std::min(growth_, max_size_ - idx_);
      kv_ = Kv::join_columns(kv_, fresh.zeros(fresh.batch(), more));
    }
    drop_oldest(kv_.columns() - max_size_, kv_.columns());
    if (idx_ == max_size_) {
      rotated_ = true;
      idx_ = 0;
    }
    if (rotated_) shift(left_padding_, -1), shift(floor_, -1);
    kv_.write(idx_, fresh);
    advance(1);
    idx_++;
    return offset_ < max_size_ ? kv_.cut(0, offset_) : kv_;
  }

  // By joining to the newest max_size-1 columns in temporal order; any number of columns, one too.
  Kv append_window(const Kv& fresh) {
    to_temporal();
    kv_ = kv_.cut(0, idx_);
    roll_padding_out();
    drop_oldest(idx_ - (max_size_ - 1), idx_);
    kv_ = Kv::join_columns(kv_, fresh);
    advance(fresh.columns());
    idx_ = kv_.columns();
    return kv_;
  }

  // A prompt, maybe in chunks, whose row b has lengths[b] tokens and then right_padding[b] columns of
  // padding. finalize() ends it.
  void prepare(const Ints& lengths, const Ints& right_padding) {
    if (right_padding.empty() || std::ranges::max(right_padding) == 0) return;
    lengths_ = row_offset_;
    for (std::size_t b = 0; b < lengths_.size(); b++) lengths_[b] += lengths.at(b);
  }
  void finalize() {
    roll_padding_out();  // chunks were joined in temporal order
    lengths_.clear();
  }

  // Rows keep[0], keep[1], ... in this order.
  void filter(const Ints& keep) {
    if (kv_.columns() > 0) kv_ = kv_.take_rows(keep);
    for (Ints* list : {&row_offset_, &left_padding_, &floor_}) {
      Ints taken;
      for (const int b : keep) taken.push_back(list->at(b));
      *list = taken;
    }
  }

  // Adds the other batch's rows at the end; the shorter one is padded on the left.
  void extend(BatchRing other) {
    if (rotated_ != other.rotated_ || idx_ != other.idx_) {
      to_temporal();
      other.to_temporal();
    }
    const int head = std::max(idx_, other.idx_), columns = std::max(kv_.columns(), other.kv_.columns());
    if (columns > 0) {
      const Kv& shape = kv_.columns() > 0 ? kv_ : other.kv_;
      const auto aligned = [&](const BatchRing& r) {
        return r.kv_.columns() > 0 ? r.kv_.pad(head - r.idx_, columns) : shape.zeros(r.rows(), columns);
      };
      kv_ = Kv::join_rows(aligned(*this), aligned(other));
    }
    widen_left(Ints(rows(), head - idx_));
    other.widen_left(Ints(other.rows(), head - other.idx_));
    for (Ints BatchRing::*list : {&BatchRing::left_padding_, &BatchRing::floor_}) {
      (this->*list).insert((this->*list).end(), (other.*list).begin(), (other.*list).end());
    }
    row_offset_.insert(row_offset_.end(), other.row_offset_.begin(), other.row_offset_.end());
    idx_ = head;
    offset_ = std::max(offset_, other.offset_);
  }

  // Row b's newest min(length, max_size) columns, as far as they are there. A copy.
  RowColumns row(int b) const {
    BatchRing copy = *this;
    copy.filter({b});
    copy.to_temporal();
    const int first = std::clamp(copy.floor_[0], 0, copy.idx_);
    return newest(copy.kv_.cut(first, copy.idx_), std::min(copy.idx_ - first, max_size_), row_offset_.at(b));
  }
  SerialRing extract(int b) const {
    RowColumns r = row(b);
    return SerialRing::holding(max_size_, std::move(r.kv), r.end);
  }

  bool is_trimmable() const { return offset_ < max_size_; }
  // Forgets the newest n columns of every row; only a ring that never wrapped can. Returns how many.
  int trim(int n) {
    if (!is_trimmable()) return 0;
    n = std::min(n, offset_);
    advance(-n);
    idx_ -= n;
    return n;
  }

  // Ends a speculative round: right after append_window of `window` columns row b keeps its first
  // keep[b] of them. The columns that no row keeps are cut off the buffer's tail; then each row that
  // keeps fewer than the longest is rolled right, so that all end at the shared head. Nothing is lost:
  // append_window left max_size-1 columns before the window, and 1 + the longest keep of them are no
  // longer in reach, more than any row is rolled by.
  void resolve(int window, const Ints& keep) {
    if (rotated_ || idx_ != kv_.columns() || !lengths_.empty() || window > idx_) {
      throw std::logic_error("batch ring: resolve belongs right after a window write");
    }
    const int longest = keep.empty() ? 0 : std::ranges::max(keep);
    if (longest > window || (!keep.empty() && std::ranges::min(keep) < 0)) {
      throw std::invalid_argument("batch ring: keep beyond the window");
    }
    kv_ = kv_.cut(0, idx_ - (window - longest));
    idx_ = kv_.columns();
    advance(longest - window);
    Ints back;
    for (const int k : keep) back.push_back(longest - k);
    roll_right(back);
  }

  // Before an update of n columns: [rows][n][columns that the update will return].
  Mask make_mask(int n, std::optional<int> window = std::nullopt) const {
    // While rotated, idx_ says less than an update of several columns will drop: upstream's flaw, kept
    // (the README of the reference, "premask"). window_mask has it right.
    if (n > 1) return mask(n, window, std::max(0, idx_ - (max_size_ - 1)), false);
    const bool turned = rotated_ || idx_ >= max_size_;
    return mask(n, window, std::max(0, idx_ - max_size_) + (turned ? 1 : 0), turned);
  }
  // Before append_window of n columns, also of one.
  Mask window_mask(int n) const {
    return mask(n, std::nullopt, std::max(0, (rotated_ ? kv_.columns() : idx_) - (max_size_ - 1)), false);
  }

  int rows() const { return static_cast<int>(row_offset_.size()); }
  const Ints& row_offset() const { return row_offset_; }  // positions: the next token's, per row
  const Ints& left_padding() const { return left_padding_; }
  const Ints& floor() const { return floor_; }
  const Ints& lengths() const { return lengths_; }  // of a pending prompt, as row offsets; else empty
  int idx() const { return idx_; }
  int offset() const { return offset_; }  // columns ever written, padding included
  int max_size() const { return max_size_; }
  int size() const { return std::min(offset_, max_size_); }
  bool rotated() const { return rotated_; }
  const Kv& buffer() const { return kv_; }

 private:
  static RowColumns newest(const Kv& temporal, int count, int end) {
    return {temporal.cut(temporal.columns() - count, temporal.columns()), end - count, end};
  }
  static void shift(Ints& list, int by) {
    for (int& x : list) x += by;
  }
  void advance(int n) {
    offset_ += n;
    shift(row_offset_, n);
  }
  // `dropped`: columns that the write will drop. `turned`: it goes to the head of a full ring, in place;
  // column t's place in temporal order is then counted from behind the head.
  Mask mask(int n, std::optional<int> window, int dropped, bool turned) const {
    const int past = std::min(max_size_ - 1, offset_), columns = past + n, w = window.value_or(max_size_);
    const int head = idx_ >= max_size_ ? 0 : idx_;
    return Mask::make(rows(), n, columns, [&](int b, int q, int t) {
      const int c = turned ? ((t - head - 1) % columns + columns) % columns : t;
      return c <= past + q && c > past + q - w && c >= left_padding_[b] - dropped;
    });
  }
  void to_temporal() {
    if (!rotated_) return;
    kv_ = kv_.roll(Ints(kv_.batch(), -idx_));
    idx_ = kv_.columns();
    rotated_ = false;
  }
  // The first n of the columns, which are in temporal order; `end` of them count.
  void drop_oldest(int n, int end) {
    if (n <= 0) return;
    kv_ = kv_.cut(n, end);
    idx_ = kv_.columns();
    shift(left_padding_, -n);
    shift(floor_, -n);
  }
  // Row b's newest `by[b]` columns become junk at its left end.
  void roll_right(const Ints& by) {
    if (kv_.columns() > 0) kv_ = kv_.roll(by);
    for (std::size_t b = 0; b < by.size(); b++) {
      row_offset_[b] -= by[b];
    }
    widen_left(by);
  }
  // by[b] columns that are not row b's came in at the left.
  void widen_left(const Ints& by) {
    for (std::size_t b = 0; b < by.size(); b++) {
      left_padding_[b] += by[b];
      if (by[b] > 0) floor_[b] = std::max(floor_[b], 0) + by[b];
    }
  }
  // Padding of a pending prompt that was already written.
  void roll_padding_out() {
    if (lengths_.empty()) return;
    Ints by;
    for (std::size_t b = 0; b < lengths_.size(); b++) by.push_back(std::max(0, row_offset_[b] - lengths_[b]));
    roll_right(by);
  }

  int max_size_, growth_;
  Kv kv_;
  Ints left_padding_, floor_, row_offset_, lengths_;
  int idx_ = 0, offset_ = 0;
  bool rotated_ = false;
};

}  // namespace windrow::oracle
