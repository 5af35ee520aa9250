#include "contract/draw.h"

#include <algorithm>
#include <map>

namespace windrow::contract {

Part make_part(const Model& model, int row, int length, std::vector<int> parents) {
  const ModelRow& its = model.row(row);
  Part part;
  part.row = row;
  if (!parents.empty()) part.kind = Part::Kind::kTree;
  part.parents = std::move(parents);
  std::vector<int> depths;
  std::map<int, int> at_depth;
  for (int i = 0; i < length; i++) {
    const int parent = part.parent(i);
    const int depth = parent < 0 ? 0 : depths[static_cast<std::size_t>(parent)] + 1;
    depths.push_back(depth);
    part.ids.push_back(token_id(its.length() + depth, its.color + at_depth[depth]++));
  }
  return part;
}

void keep_first(Part& part, int count) {
  part.path.clear();
  for (int i = 0; i < count; i++) part.path.push_back(i);
}

void keep_path(Part& part, int node) {
  part.path.clear();
  for (; node >= 0; node = part.parent(node)) part.path.push_back(node);
  std::ranges::reverse(part.path);
}

namespace {

Part random_part(const Model& model, int row, int room, Draw& draw) {
  const Setup& setup = model.world().setup;
  const int kind = draw(8), most = std::max(0, std::min(room, setup.tokens - model.row(row).length()));
  int length = std::min(most, draw(5));
  if (kind == 6 && setup.tree_nodes > 1 && length > 0) {
    length = std::min({length, setup.tree_nodes, setup.verify_tokens});
    std::vector<int> parents;
    for (int i = 0; i < length; i++) parents.push_back(draw(i + 1) - 1);
    Part part = make_part(model, row, length, parents);
    keep_path(part, length - 1 - draw(length + 1));
    return part;
  }
  if (kind == 7 && setup.verify_tokens > 4) length = std::min(most, length * 3);  // a longer chunk
  Part part = make_part(model, row, length);
  if (kind == 5 && length > 0) {
    part.kind = Part::Kind::kBlock;
    return part;
  }
  if (kind == 4 && length > 1) {
    part.kind = Part::Kind::kSpans;
    const int begin = draw(length - 1), end = begin + 2 + draw(length - begin - 1);
    part.spans.push_back({begin, end});
    if (end < length && draw.one_in(2)) part.spans.push_back({end, length});
  }
  if (kind == 3) {
    for (int i = 0; i < length; i++)
      part.starts.push_back(std::max(
          0, model.row(row).length() + i - draw(setup.window == kFullWindow ? 8 : setup.window + 2)));
  }
  const bool prefill = model.world().plan.recurrent_count() > 0 && length > setup.verify_tokens;
  const int how = draw(4);
  keep_first(part, how < 2 ? length : prefill || how == 2 ? 0 : draw(length + 1));
  return part;
}

}  // namespace

Operation random_operation(const Model& model, std::uint64_t word) {
  using Kind = Operation::Kind;
  Draw draw(word);
  Operation op;
  const int kind = draw(24), rows = model.row_count();
  if (rows == 0 || kind == 20) {
    op.kind = Kind::kNewRow;
    return op;
  }
  op.row = draw(rows);
  const int length = model.row(op.row).length();
  switch (kind) {
    case 12: op.kind = Kind::kFork; return op;
    case 13:
      op.kind = rows > 1 ? Kind::kDrop : Kind::kFork;
      op.value = std::max(0, draw(5) - 2);
      return op;
    case 14:
    case 15:
      op.kind = Kind::kTruncate;
      op.value = length - draw(model.world().setup.rollback + 4);
      if (draw.one_in(2)) op.value = std::max(op.value, model.minimum_length(op.row));
      return op;
    case 16: op.kind = Kind::kConvert; return op;
    case 17:
    case 18:
      op.kind = kind == 17 ? Kind::kAdopt : Kind::kCopy;
      op.value = draw(2);
      return op;
    case 19: op.kind = Kind::kRelease; return op;
    case 21:
      op.kind = Kind::kAlone;
      op.value = 1 + draw(4);
      return op;
    default: break;
  }
  op.kind = Kind::kStep;
  const int ending = draw(8);
  op.ending = ending == 6   ? Operation::Ending::kAbort
              : ending == 7 ? Operation::Ending::kDestroy
                            : Operation::Ending::kResolve;
  op.hold = draw.one_in(12) && model.held.size() < 2;
  op.twice = draw.one_in(16);
  const int apart = std::max(0, draw(8) - 5);
  // A subset of the rows, in some order.
  std::vector<int> order;
  for (int r = 0; r < rows; r++) {
    if (r == op.row || draw(3) > 0) order.insert(order.begin() + draw(static_cast<int>(order.size()) + 1), r);
  }
  int room = model.world().setup.step_tokens;
  for (const int r : order) {
    op.parts.push_back(random_part(model, r, room, draw));
    room -= op.parts.back().length();
  }
  op.apart = std::min(op.parts.size(), static_cast<std::size_t>(apart));
  return op;
}

Setup random_setup(std::uint64_t word) {
  static const Codec codecs[] = {Codec::f32(),         Codec::bf16(), Codec::affine(8, 32),
                                 Codec::affine(4, 32), Codec::f16(),  Codec::affine(3, 32, DType::kF32)};
  Draw draw(word);
  Setup s;
  static const int windows[] = {4, 3, 5, 1, 2, 7, kFullWindow, 9};
  s.window = windows[draw(8)];
  s.keys = codecs[draw(6)];
  s.values = codecs[draw(6)];
  s.sinks = s.window == kFullWindow ? 0 : std::max(0, draw(6) - 2);
  if (const int d = draw(6); d >= 3) {
    s.delayed = d == 3 ? Delayed::kOnlyByCall : d == 4 ? 5 : 8;
    s.early = draw(2) == 0 ? Codec::f32() : Codec::bf16();
  }
  s.wide = draw(2) == 1;
  const int recurrent = draw(6);
  s.recurrent = recurrent == 4 ? Recurrent::kScalar : recurrent == 5 ? Recurrent::kVector : Recurrent::kNone;
  s.tree_nodes = draw(2) == 0 ? 0 : 4;
  s.rows = 1 + draw(4);
  s.rollback = draw(4);
  s.page_tokens = 1 << draw(4);
  s.other_page_tokens = 1 << draw(4);
  s.logits = draw(3) == 2;
  s.verify_tokens = draw(2) == 0 ? 4 : 8;
  s.step_tokens = 12;
  return s;
}

}  // namespace windrow::contract
