// Full-attention caches: serial (mlx-lm's KVCache) and batched with left padding (BatchKVCache). Tests
// only; reproduces reference/mlx G3_batch_kv column by column, the zeros behind the head included.
#pragma once

#include "oracle/batch_ring.h"

namespace windrow::oracle {

// Writes `fresh` at column `idx`; a buffer too short grows by whole `growth`s, from `idx` on unless it
// stands at a multiple.
inline void write_growing(Kv& kv, int idx, const Kv& fresh, int growth) {
  if (idx + fresh.columns() > kv.columns()) {
    const int more = (fresh.columns() + growth - 1) / growth * growth;
    if (idx % growth != 0) kv = kv.cut(0, idx);
    kv = Kv::join_columns(kv, fresh.zeros(fresh.batch(), more));
  }
  kv.write(idx, fresh);
}

class SerialKv {
 public:
  explicit SerialKv(int growth = kGrowth) : growth_(growth) {}
  static SerialKv holding(Kv columns) {
    SerialKv out;
    out.offset_ = columns.columns();
    out.kv_ = std::move(columns);
    return out;
  }

  Kv update(const Kv& fresh) {
    write_growing(kv_, offset_, fresh, growth_);
    offset_ += fresh.columns();
    return kv_.cut(0, offset_);
  }
  int trim(int n) {
    n = std::min(n, offset_);
    offset_ -= n;
    return n;
  }
  RowColumns row() const { return {kv_.cut(0, offset_), 0, offset_}; }
  int offset() const { return offset_; }
  const Kv& buffer() const { return kv_; }

 private:
  int growth_;
  Kv kv_;
  int offset_ = 0;
};

class BatchKv {
 public:
  explicit BatchKv(Ints left_padding, int growth = kGrowth)
      : growth_(growth), left_padding_(std::move(left_padding)) {
    for (const int p : left_padding_) row_offset_.push_back(-p);
  }
  // Rows stand right-aligned; the sources are borrowed.
  static BatchKv merge(const std::vector<RowColumns>& rows) {
    const BatchRing aligned = BatchRing::merge(1, rows);  // the same layout; the ring's size plays no part
    BatchKv out(aligned.left_padding());
    out.row_offset_ = aligned.row_offset();
    out.kv_ = aligned.buffer();
    out.idx_ = aligned.idx();
    return out;
  }

  Kv update(const Kv& fresh) {
    write_growing(kv_, idx_, fresh, growth_);
    idx_ += fresh.columns();
    for (int& o : row_offset_) o += fresh.columns();
    return kv_.cut(0, idx_);
  }

  // A prompt whose row b ends with right_padding[b] columns of padding; finalize() rolls them out.
  void prepare(const Ints& right_padding) {
    if (!right_padding.empty() && std::ranges::max(right_padding) > 0) right_padding_ = right_padding;
  }
  void finalize() {
    if (!right_padding_.empty()) roll_right(right_padding_);
    right_padding_.clear();
  }
  // Ends a speculative round as BatchRing::resolve does.
  void resolve(int window, const Ints& keep) {
    const int longest = keep.empty() ? 0 : std::ranges::max(keep);
    if (longest > window || window > idx_) throw std::invalid_argument("batch kv: keep beyond the window");
    trim(window - longest);
    kv_ = kv_.cut(0, idx_);
    Ints back;
    for (const int k : keep) back.push_back(longest - k);
    roll_right(back);
  }

  // Rows keep[0], keep[1], ...; columns that are padding of all of them go.
  void filter(const Ints& keep) {
    Ints padding, offset;
    for (const int b : keep) {
      padding.push_back(left_padding_.at(b));
      offset.push_back(row_offset_.at(b));
    }
    row_offset_ = offset;
    left_padding_ = padding;
    if (kv_.columns() > 0) kv_ = kv_.take_rows(keep);
    const int common = padding.empty() ? 0 : std::min(std::ranges::min(padding), idx_);
    if (common <= 0) return;
    kv_ = kv_.cut(common, kv_.columns());
    idx_ -= common;
    for (int& p : left_padding_) p -= common;
  }

  void extend(const BatchKv& other) {
    const int head = std::max(idx_, other.idx_), columns = std::max(kv_.columns(), other.kv_.columns());
    const auto aligned = [&](const BatchKv& r) {
      const Kv& shape = kv_.columns() > 0 ? kv_ : other.kv_;
      return r.kv_.columns() > 0 ? r.kv_.pad(head - r.idx_, columns) : shape.zeros(r.rows(), columns);
    };
    if (columns > 0) kv_ = Kv::join_rows(aligned(*this), aligned(other));
    for (int& p : left_padding_) p += head - idx_;
    for (const int p : other.left_padding_) left_padding_.push_back(p + head - other.idx_);
    row_offset_.insert(row_offset_.end(), other.row_offset_.begin(), other.row_offset_.end());
    idx_ = head;
  }

  RowColumns row(int b) const {
    const Kv own =
        kv_.columns() > 0 ? kv_.take_rows({b}).cut(std::clamp(left_padding_.at(b), 0, idx_), idx_) : Kv{};
    return {own, row_offset_.at(b) - own.columns(), row_offset_.at(b)};
  }
  SerialKv extract(int b) const { return SerialKv::holding(row(b).kv); }

  int trim(int n) {
    n = std::min(n, idx_);
    idx_ -= n;
    for (int& o : row_offset_) o -= n;
    return n;
  }

  Mask make_mask(int n, std::optional<int> window = std::nullopt) const {
    return Mask::make(rows(), n, idx_ + n, [&](int b, int q, int t) {
      return t <= idx_ + q && t >= left_padding_[b] && (!window || t > idx_ + q - *window);
    });
  }

  int rows() const { return static_cast<int>(row_offset_.size()); }
  const Ints& row_offset() const { return row_offset_; }
  const Ints& left_padding() const { return left_padding_; }
  const Ints& right_padding() const { return right_padding_; }  // of a pending prompt, else empty
  int idx() const { return idx_; }
  const Kv& buffer() const { return kv_; }

 private:
  // Around the end of the whole buffer, the zeros behind the head included.
  void roll_right(const Ints& by) {
    if (kv_.columns() > 0) kv_ = kv_.roll(by);
    for (std::size_t b = 0; b < by.size(); b++) {
      left_padding_[b] += by[b];
      row_offset_[b] -= by[b];
    }
  }

  int growth_;
  Kv kv_;
  Ints left_padding_, row_offset_, right_padding_;
  int idx_ = 0;
};

}  // namespace windrow::oracle
