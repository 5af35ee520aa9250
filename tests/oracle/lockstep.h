// The lockstep oracle: one layer's state of a batch of rows, as the seeds' batched ring keeps it (one
// shared head, left padding, rolls), beside the plain list of everything each row was fed. Header only,
// tests only, f32.
//
// How to judge an engine by it: mirror every operation of the engine here, one Lockstep per layer
// (group), rows in any fixed order. At each step
//
//   oracle.begin(lengths, k, v);             // lengths of ALL rows, 0 for rows that take no part
//   EXPECT_EQ(oracle.disagreement(), "");    // ring == list for every query, or the first difference
//   Seen s = oracle.seen(row, i);            // what the i-th new token of a row may see: positions, K, V
//   oracle.attend(row, i, q, heads, params)  // f64 attention over the ring's columns, in its order
//   oracle.resolve(keep);                    // or abort()
//
// and between steps compare newest(row) (the newest min(length, W) positions; after a window that was
// not wholly kept perhaps one less) and length(row). A vector is stored through the row's hooks, so the
// same oracle judges plain and quantized state. truncate and convert rebuild the row from the list of what
// it is to hold, which is what they promise.
//
// The ring is a BatchRing for a window without sinks, a BatchKv for kFullWindow; with sinks (a policy
// that no batched ring of the seeds has) there is only the list. Misuse throws.
#pragma once

#include <string>

#include "oracle/batch_kv.h"
#include "oracle/codec_hook.h"
#include "oracle/dense.h"
#include "windrow/plan.h"

namespace windrow::oracle {

// Columns of one row (batch 1) and the position of each.
struct Seen {
  Ints positions;
  Kv kv;
};

class Lockstep {
 public:
  struct Shape {
    int heads = 1, key_dim = 1, value_dim = 1;
  };
  Lockstep(Shape shape, int window, int sinks = 0)
      : shape_(shape),
        window_(window),
        sinks_(sinks),
        ring_(window == kFullWindow ? 1 : window, {}),
        full_({}, 8) {
    if (window < 1 || sinks < 0) throw std::invalid_argument("lockstep: window or sinks");
  }

  int rows() const { return static_cast<int>(fed_.size()); }
  int length(int row) const { return fed_.at(row).columns(); }  // tentative tokens not counted
  // All that the row holds or ever held, as stored: column p is position p.
  const Kv& fed(int row) const { return fed_.at(row); }

  // Rows are numbered in order of addition; drop moves the later ones down. Not inside a step.
  int add_row(Hooks hooks = {}) {
    at_rest();
    fed_.push_back(
        {Tensor(1, shape_.heads, 0, shape_.key_dim), Tensor(1, shape_.heads, 0, shape_.value_dim)});
    hooks_.push_back(std::move(hooks));
    join(held(fed_.back()));
    return rows() - 1;
  }
  int fork(int row) {
    at_rest();
    fed_.push_back(Kv(fed_.at(row)));
    hooks_.push_back(Hooks(hooks_.at(row)));
    join(cached(row));
    return rows() - 1;
  }
  void drop(int row) {
    at_rest();
    Ints keep;
    for (int r = 0; r < rows(); r++) {
      if (r != row) keep.push_back(r);
    }
    permute(keep);
  }
  // Rows order[0], order[1], ... and no others.
  void permute(const Ints& order) {
    at_rest();
    std::vector<Kv> fed;
    std::vector<Hooks> hooks;
    for (const int r : order) {
      fed.push_back(fed_.at(r));
      hooks.push_back(hooks_.at(r));
    }
    fed_ = std::move(fed);
    hooks_ = std::move(hooks);
    take(order);
  }
  void truncate(int row, int length) {
    at_rest();
    fed_.at(row) = fed_.at(row).cut(0, length);
    rebuild(row);
  }
  // What the row holds passes through the new hooks, and so will all that follows.
  void convert(int row, Hooks hooks) {
    at_rest();
    hooks_.at(row) = std::move(hooks);
    apply(hooks_[row], fed_[row]);
    rebuild(row);
  }

  // k: [tokens][heads][key_dim], v: [tokens][heads][value_dim], tokens packed by row. Every row's
  // tokens stand at the left of as many columns as the longest has; the rest is padding (NaN, so that
  // nothing can see it unnoticed).
  void begin(const Ints& lengths, std::span<const float> k, std::span<const float> v) {
    at_rest();
    if (static_cast<int>(lengths.size()) != rows()) throw std::invalid_argument("lockstep: lengths");
    lengths_ = lengths;
    columns_ = lengths.empty() ? 0 : std::ranges::max(lengths);
    fresh_ = {pack(k, shape_.key_dim), pack(v, shape_.value_dim)};
    for (int r = 0; r < rows(); r++) {
      Kv own = fresh_.take_rows({r}).cut(0, lengths[r]);
      apply(hooks_[r], own);
      tentative_.push_back(Kv::join_columns(fed_[r], own));
      for (int t = 0; t < lengths[r]; t++) put(own, t, fresh_, r, t);
    }
    open_ = true;
    if (columns_ == 0) return;
    ring_before_ = ring_;
    full_before_ = full_;
    mask_ = full_window() ? full_.make_mask(columns_) : ring_.window_mask(columns_);
    full_window() ? full_.update(fresh_) : ring_.append_window(fresh_);
  }

  // What the i-th new token of a row sees, by the ring: its columns under its mask.
  Seen seen(int row, int i) const {
    if (!open_ || i < 0 || i >= lengths_.at(row)) throw std::invalid_argument("lockstep: no such query");
    if (sinks_ > 0) return dense_seen(row, i);
    const Kv& buffer = full_window() ? full_.buffer() : ring_.buffer();
    // The step's columns are the newest `columns_` that the mask is about.
    const int first = mask_.columns - columns_;
    Seen s;
    Ints shown;
    for (int c = 0; c < mask_.columns; c++) {
      if (!mask_.at(row, i, c)) continue;
      shown.push_back(c);
      s.positions.push_back(length(row) + c - first);
    }
    s.kv = buffer.pick(row, shown);
    return s;
  }
  // The same of a step of one token at most per row, written in place as plain decode is, in temporal
  // order. For a window without sinks.
  Seen decode_seen(int row) const {
    if (!open_ || columns_ != 1 || lengths_.at(row) != 1) throw std::invalid_argument("lockstep: no decode");
    BatchRing ring = ring_before_;
    const Mask mask = ring.make_mask(1);
    const Kv out = ring.append_one(fresh_);
    Seen s;
    Ints shown;
    for (int age = 0, n = out.columns(); age < n; age++) {
      const int c = (ring.idx() + age) % n;
      if (!mask.at(row, 0, c)) continue;
      s.positions.push_back(length(row) + age - (n - 1));
      shown.push_back(c);
    }
    s.kv = out.pick(row, shown);
    return s;
  }
  // What it sees by the definition of the window, out of the list.
  Seen dense_seen(int row, int i) const {
    if (!open_ || i < 0 || i >= lengths_.at(row)) throw std::invalid_argument("lockstep: no such query");
    const Ints visible = visible_positions(length(row) + i, window_, sinks_);
    return {visible, tentative_[row].pick(0, visible)};
  }
  std::vector<double> attend(int row, int i, std::span<const float> q, int q_heads,
                             const AttendParams& params = {}) const {
    const Seen s = seen(row, i);
    Ints all(s.positions.size());
    for (std::size_t c = 0; c < all.size(); c++) all[c] = static_cast<int>(c);
    return oracle::attend(s.kv, all, q, q_heads, params);
  }

  void resolve(const Ints& keep) {
    if (!open_ || static_cast<int>(keep.size()) != rows()) throw std::invalid_argument("lockstep: keep");
    for (int r = 0; r < rows(); r++) {
      if (keep[r] < 0 || keep[r] > lengths_[r]) throw std::invalid_argument("lockstep: keep beyond the step");
    }
    for (int r = 0; r < rows(); r++) fed_[r] = tentative_[r].cut(0, length(r) + keep[r]);
    if (columns_ > 0 && full_window()) {
      full_.resolve(columns_, keep);
    } else if (columns_ == 1 && std::ranges::min(keep) == 1) {  // plain decode of every row: in place
      ring_ = ring_before_;
      ring_.append_one(fresh_);
    } else if (columns_ > 0) {
      ring_.resolve(columns_, keep);
    }
    close();
  }
  void abort() {
    if (open_ && columns_ > 0) ring_ = ring_before_, full_ = full_before_;
    close();
  }

  // Between steps: the newest positions that the ring (or list) holds of the row, in order.
  RowColumns newest(int row) const {
    at_rest();
    if (sinks_ == 0) return cached(row);
    return held(fed_[row]);
  }

  // Where ring and list differ, in words; empty when they agree. Inside a step every query is compared,
  // between steps every row's newest positions.
  std::string disagreement() const;

 private:
  void at_rest() const {
    if (open_) throw std::logic_error("lockstep: a step is open");
  }
  void close() {
    open_ = false;
    tentative_.clear();
  }
  static void put(const Kv& from, int column, Kv& into, int row, int at) {
    for (const auto& [x, y] : {std::pair(&from.k, &into.k), std::pair(&from.v, &into.v)}) {
      for (int h = 0; h < x->heads; h++) std::ranges::copy(x->at(0, h, column), y->at(row, h, at).begin());
    }
  }
  Tensor pack(std::span<const float> x, int dim) const {
    Tensor out(rows(), shape_.heads, columns_, dim);
    std::ranges::fill(out.values, std::numeric_limits<float>::quiet_NaN());
    std::size_t at = 0;
    for (int r = 0; r < rows(); r++) {
      for (int t = 0; t < lengths_[r]; t++) {
        for (int h = 0; h < shape_.heads; h++, at += dim) {
          if (at + dim > x.size()) throw std::invalid_argument("lockstep: too few numbers");
          std::ranges::copy(x.subspan(at, dim), out.at(r, h, t).begin());
        }
      }
    }
    if (at != x.size()) throw std::invalid_argument("lockstep: too many numbers");
    return out;
  }
  bool full_window() const { return window_ == kFullWindow; }
  // The newest positions of a row that was fed all this.
  RowColumns held(const Kv& fed) const {
    const int end = fed.columns(), begin = std::max(0, end - window_);
    return {fed.cut(begin, end), begin, end};
  }
  RowColumns cached(int row) const { return full_window() ? full_.row(row) : ring_.row(row); }
  void join(const RowColumns& row) {
    if (full_window()) return full_.extend(BatchKv::merge({row}));
    ring_.extend(BatchRing::merge(ring_.max_size(), {row}));
  }
  void take(const Ints& order) { full_window() ? full_.filter(order) : ring_.filter(order); }
  void rebuild(int row) {
    join(held(fed_.at(row)));
    Ints order(rows());
    for (int r = 0; r < rows(); r++) order[r] = r == row ? rows() : r;
    take(order);
  }

  Shape shape_;
  int window_, sinks_;
  std::vector<Kv> fed_;
  std::vector<Hooks> hooks_;
  BatchRing ring_;
  BatchKv full_;

  // Of the open step.
  bool open_ = false;
  Ints lengths_;
  int columns_ = 0;
  Kv fresh_;
  std::vector<Kv> tentative_;  // fed_ and the step's tokens
  Mask mask_;
  BatchRing ring_before_{1, {}};
  BatchKv full_before_{Ints{}};
};

inline std::string Lockstep::disagreement() const {
  for (int r = 0; r < rows(); r++) {
    const std::string where = "row " + std::to_string(r);
    for (int i = 0; open_ && i < lengths_[r]; i++) {
      const Seen ring = seen(r, i), list = dense_seen(r, i);
      const std::string query = where + " query " + std::to_string(i);
      if (ring.positions != list.positions) return query + ": ring and list show different positions";
      if (!same_bits(ring.kv, list.kv)) return query + ": ring and list show different numbers";
      if (columns_ != 1 || sinks_ > 0 || full_window()) continue;
      const Seen decode = decode_seen(r);
      if (decode.positions != list.positions)
        return query + ": written in place, it sees different positions";
      if (!same_bits(decode.kv, list.kv)) return query + ": written in place, it sees different numbers";
    }
    if (open_) continue;
    const RowColumns got = newest(r);
    const int full = std::max(0, length(r) - window_), needed = std::max(0, length(r) - (window_ - 1));
    if (got.end != length(r)) return where + ": ring and list have different lengths";
    if (got.begin < full || got.begin > needed) return where + ": the ring lost a position";
    if (!same_bits(got.kv, fed_[r].cut(got.begin, got.end)))
      return where + ": the ring holds different numbers";
  }
  return {};
}

}  // namespace windrow::oracle
