// The header of a session file as JSON, out and in.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "base/json_text.h"
#include "state/layer_records.h"
#include "store/digest.h"
#include "store/session_layout.h"

namespace windrow::session {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();
// object -> rows -> row -> groups -> group -> pieces.
constexpr int kMaxDepth = 6;

struct IdentityField {
  const char* name;
  std::string SessionIdentity::*text;
};
constexpr IdentityField kIdentity[] = {
    {"model", &SessionIdentity::model},       {"tokenizer", &SessionIdentity::tokenizer},
    {"rope", &SessionIdentity::rope},         {"adapter", &SessionIdentity::adapter},
    {"numerics", &SessionIdentity::numerics}, {"tenant", &SessionIdentity::tenant}};

// --- out ---
// As text: building and destroying a Json allocates in ways that leak or end the process without memory.

std::string bound_text(int bound) { return bound == kMost ? "null" : std::to_string(bound); }

std::string group_text(const AttentionGroup& g) {
  std::string delayed, sharers;
  if (g.delayed) {
    delayed =
        fmt::format("\"delayed\":{{\"keys\":\"{}\",\"start\":{},\"values\":\"{}\"}},",
                    g.delayed->keys.to_string(), bound_text(g.delayed->start), g.delayed->values.to_string());
  }
  for (const Sharer& s : g.sharers)
    sharers += fmt::format("{}[{},{}]", sharers.empty() ? "" : ",", s.layer, s.owner);
  if (!sharers.empty()) sharers = fmt::format("\"sharers\":[{}],", sharers);
  return fmt::format(
      "{{{}\"head_dim\":{},\"keys\":\"{}\",\"kv_heads\":{},\"layers\":[{}],{}\"sinks\":{},\"value_dim\":{},"
      "\"values\":\"{}\",\"window\":{}}}",
      delayed, g.head_dim, g.keys.to_string(), g.kv_heads, fmt::join(g.layers, ","), sharers, g.sinks,
      value_dim(g), g.values.to_string(), bound_text(g.window));
}

std::string recurrent_text(const RecurrentGroup& g) {
  const GatedDeltaShape& d = g.shape.delta;
  return fmt::format(
      "{{\"channels\":{},\"gate\":\"{}\",\"key_dim\":{},\"key_heads\":{},\"layers\":[{}],\"taps\":{},"
      "\"value_dim\":{},\"value_heads\":{}}}",
      g.shape.conv.channels, d.gate == DecayGate::kScalar ? "scalar" : "vector", d.key_dim, d.key_heads,
      fmt::join(g.layers, ","), g.shape.conv.taps, d.value_dim, d.value_heads);
}

// "[a,b,c]" of the texts of a list's items.
template <typename List, typename Text>
std::string list_text(const List& list, const Text& text) {
  std::string out = "[";
  for (const auto& item : list) {
    if (out.size() > 1) out += ',';
    out += text(item);
  }
  return out += ']';
}

std::string piece_text(const Piece& p) {
  return fmt::format("{{\"begin\":{},\"converted\":{},\"end\":{},\"group\":{}}}", p.begin, p.converted, p.end,
                     p.group);
}

std::string row_text(const RowEntry& row) {
  const std::string groups = list_text(row.groups, [](const RowGroup& g) {
    return fmt::format("{{\"begin\":{},\"converted\":{},\"pieces\":[{}],\"sinks\":{}}}", g.begin, g.converted,
                       fmt::join(g.pieces, ","), g.sinks);
  });
  return fmt::format("{{\"groups\":{},\"length\":{},\"minimum_length\":{},\"states\":[{}],\"tokens\":{}}}",
                     groups, row.length, row.minimum_length, fmt::join(row.states, ","), row.tokens);
}

// --- in ---

// Objects of an array in turn; a member that is none ends the reading with its place.
template <typename Read>
void each_object(JsonReader& from, const char* key, std::size_t limit, Status& error, const Read& read) {
  const Json* list = from.find(key);
  if (list == nullptr) return from.fail(key, "is missing");
  if (!list->is_array() || list->size() > limit)
    return from.fail(key, fmt::format("is {}, expected an array of at most {}", describe(*list), limit));
  for (std::size_t i = 0; i < list->size() && error.ok(); i++) {
    JsonReader item((*list)[i], from.name(), error, fmt::format("{}.{}", key, i));
    if (error.ok()) read(item, i);
  }
}

Codec read_codec(JsonReader& json, const char* key) {
  const Result<Codec> codec = Codec::parse(json.require_string(key));
  if (!codec.ok()) json.fail(key, codec.status().message());
  return codec.ok() ? *codec : Codec();
}

// A window or start: null is none.
int read_bound(JsonReader& json, const char* key) {
  if (json.is_null(key)) return kMost;
  return json.require_int(key, 1, kMost - 1);
}

AttentionGroup read_group(JsonReader& json) {
  AttentionGroup g;
  g.layers = json.int_list("layers", 0, kMost);
  g.window = read_bound(json, "window");
  g.sinks = json.require_int("sinks", 0, kMost);
  g.kv_heads = json.require_int("kv_heads", 1, kMost);
  g.head_dim = json.require_int("head_dim", 1, kMost);
  g.value_dim = json.require_int("value_dim", 1, kMost);
  g.keys = read_codec(json, "keys");
  g.values = read_codec(json, "values");
  if (json.has("delayed")) {
    JsonReader delayed = json.object("delayed");
    g.delayed = Delayed{.start = read_bound(delayed, "start"),
                        .keys = read_codec(delayed, "keys"),
                        .values = read_codec(delayed, "values")};
  }
  if (const Json* sharers = json.find("sharers")) {
    if (!sharers->is_array()) json.fail("sharers", "is no array");
    for (const Json& pair : *sharers) {
      const std::optional<std::uint64_t> layer =
          pair.is_array() && pair.size() == 2 ? json_uint(pair[0]) : std::nullopt;
      const std::optional<std::uint64_t> owner = layer ? json_uint(pair[1]) : std::nullopt;
      if (!owner || *layer > kMost || *owner > kMost) {
        json.fail("sharers", "holds " + describe(pair) + ", expected pairs of layers");
        break;
      }
      g.sharers.push_back({static_cast<int>(*layer), static_cast<int>(*owner)});
    }
  }
  return g;
}

RecurrentGroup read_recurrent(JsonReader& json) {
  RecurrentGroup g;
  g.layers = json.int_list("layers", 0, kMost);
  GatedDeltaShape& d = g.shape.delta;
  d.key_heads = json.require_int("key_heads", 1, kMost);
  d.value_heads = json.require_int("value_heads", 1, kMost);
  d.key_dim = json.require_int("key_dim", 1, kMost);
  d.value_dim = json.require_int("value_dim", 1, kMost);
  const std::string gate = json.require_string("gate");
  if (gate != "scalar" && gate != "vector") json.fail("gate", "is " + quote(gate));
  d.gate = gate == "scalar" ? DecayGate::kScalar : DecayGate::kVector;
  g.shape.conv.channels = json.require_int("channels", 1, kMost);
  g.shape.conv.taps = json.require_int("taps", 1, kMost);
  return g;
}

// A plan of the file's groups: the builder checks them as it checks everybody's.
Result<StatePlan> read_plan(const Json& json, const std::string& name) {
  Status error;
  JsonReader root(json, name, error);
  StatePlan::Builder builder({.rows = 1, .tokens = 1, .step_tokens = 1});
  builder.page_tokens(1);
  each_object(root, "attention", kMaxRows, error,
              [&](JsonReader& item, std::size_t) { builder.attention(read_group(item)); });
  if (error.ok()) {
    each_object(root, "recurrent", kMaxRows, error,
                [&](JsonReader& item, std::size_t) { builder.recurrent(read_recurrent(item)); });
  }
  if (!error.ok()) return error;
  Result<StatePlan> plan = builder.build();
  if (!plan.ok()) return Status(StatusCode::kCorrupt, name + ": " + plan.status().message());
  return plan;
}

Piece read_piece(JsonReader& json, const StatePlan& plan) {
  Piece piece;
  piece.group = json.require_int("group", 0, std::max(0, plan.group_count() - 1));
  piece.converted = json.bool_or("converted", true);
  piece.begin = json.require_int("begin", 0, kMost - 1);
  piece.end = json.require_int("end", piece.begin + 1, kMost);
  if (!json.ok()) return piece;
  if (plan.group_count() == 0)
    json.fail("group", "is of a plan without attention");
  else if (!piece.converted && !plan.group(piece.group).delayed)
    json.fail("converted", "is false in a group without delayed codecs");
  else if ((piece.end - 1) / kPiecePositions != piece.begin / kPiecePositions)
    json.fail("end", fmt::format("is {}, beyond the next multiple of {} from {} on", piece.end,
                                 kPiecePositions, piece.begin));
  return piece;
}

// Whether the pieces of a row's group are those of its cuts.
Status check_pieces(const Layout& layout, const RowGroup& its, int group, int length) {
  const auto corrupt = [](std::string what) { return Status(StatusCode::kCorrupt, std::move(what)); };
  Cuts cuts(its.sinks, its.begin, length);
  std::size_t i = 0;
  while (const std::optional<Cuts::Range> cut = cuts.next()) {
    if (i == its.pieces.size())
      return corrupt(fmt::format("no piece for positions {} to {}", cut->begin, cut->end));
    const int number = its.pieces[i++];
    if (number < 0 || static_cast<std::size_t>(number) >= layout.pieces.size())
      return corrupt(fmt::format("piece {} of {}", number, layout.pieces.size()));
    const Piece& piece = layout.pieces[static_cast<std::size_t>(number)];
    if (piece.group != group || piece.converted != its.converted || piece.begin > cut->begin ||
        piece.end < cut->end) {
      return corrupt(fmt::format("piece {}, positions {} to {} of group {}{}, for positions {} to {} of {}",
                                 number, piece.begin, piece.end, piece.group,
                                 piece.converted ? "" : " not converted", cut->begin, cut->end, group));
    }
  }
  if (i != its.pieces.size())
    return corrupt(fmt::format("{} pieces, its positions have {}", its.pieces.size(), i));
  return Status();
}

void read_row_group(JsonReader& json, const Layout& layout, std::size_t g, RowEntry& row) {
  RowGroup its;
  its.converted = json.bool_or("converted", true);
  its.sinks = json.require_int("sinks", 0, kMost);
  its.begin = json.require_int("begin", 0, kMost);
  its.pieces = json.int_list("pieces", 0, kMost);
  if (!json.ok()) return;
  if (g >= static_cast<std::size_t>(layout.plan.group_count())) return json.fail("begin", "is of no group");
  const AttentionGroup& group = layout.plan.group(static_cast<int>(g));
  Status s = check_row_positions("positions", group, its.converted, its.sinks, its.begin, row.length);
  if (s.ok()) s = check_pieces(layout, its, static_cast<int>(g), row.length);
  if (!s.ok()) return json.fail("pieces", s.message());
  row.groups.push_back(std::move(its));
}

RowEntry read_row(JsonReader& json, const Layout& layout, Status& error) {
  RowEntry row;
  row.length = json.require_int("length", 0, kMost - 1);
  row.minimum_length = json.require_int("minimum_length", 0, row.length);
  row.tokens = json.require_int("tokens", 0, std::max(0, static_cast<int>(layout.token_lists.size()) - 1));
  row.states = json.int_list("states", 0, kMost);
  if (!json.ok()) return row;
  if (layout.token_lists.empty() || layout.token_lists[static_cast<std::size_t>(row.tokens)] < row.length) {
    json.fail("tokens", fmt::format("are fewer than the {} positions", row.length));
  } else if (row.states.size() != layout.states.size()) {
    json.fail("states", fmt::format("are {}, the plan has {} recurrent groups", row.states.size(),
                                    layout.states.size()));
  } else {
    for (std::size_t g = 0; g < row.states.size(); g++) {
      if (row.states[g] >= layout.states[g])
        json.fail("states", fmt::format("holds {} of {}", row.states[g], layout.states[g]));
    }
  }
  if (!json.ok()) return row;
  each_object(json, "groups", kMaxRows, error,
              [&](JsonReader& item, std::size_t g) { read_row_group(item, layout, g, row); });
  if (json.ok() && row.groups.size() != static_cast<std::size_t>(layout.plan.group_count()))
    json.fail("groups", fmt::format("are {}, the plan has {}", row.groups.size(), layout.plan.group_count()));
  return row;
}

// Every list and piece belongs to some row: nothing can hide in a file.
Status check_used(const Layout& layout, const std::string& name) {
  std::vector<bool> pieces(layout.pieces.size()), lists(layout.token_lists.size());
  std::vector<std::vector<bool>> states;
  for (const int count : layout.states) states.emplace_back(static_cast<std::size_t>(count));
  for (const RowEntry& row : layout.rows) {
    lists[static_cast<std::size_t>(row.tokens)] = true;
    for (const RowGroup& g : row.groups) {
      for (const int piece : g.pieces) pieces[static_cast<std::size_t>(piece)] = true;
    }
    for (std::size_t g = 0; g < row.states.size(); g++)
      states[g][static_cast<std::size_t>(row.states[g])] = true;
  }
  const auto all = [](const std::vector<bool>& used) {
    return std::find(used.begin(), used.end(), false) == used.end();
  };
  if (all(pieces) && all(lists) && std::all_of(states.begin(), states.end(), all)) return Status();
  return Status(StatusCode::kCorrupt, name + ": some tensors belong to no row");
}

Result<Layout> read_layout(const std::map<std::string, std::string>& metadata, const std::string& name) {
  const auto text_of = [&](const char* key) -> std::string {
    const auto it = metadata.find(key);
    return it == metadata.end() ? std::string() : it->second;
  };
  const auto value_of = [&](const char* key) {
    return parse_json(text_of(key), fmt::format("{}: {}", name, key),
                      {.max_bytes = safetensors::kMaxHeaderBytes, .max_depth = kMaxDepth});
  };
  const Result<Json> identity = value_of("identity"), groups = value_of("groups"), index = value_of("index");
  for (const Result<Json>* json : {&identity, &groups, &index}) {
    if (!json->ok()) return json->status();
  }
  Result<StatePlan> plan = read_plan(*groups, name + ": groups");
  if (!plan.ok()) return plan.status();
  if (plan->signature() != text_of("signature"))
    return Status(StatusCode::kCorrupt, name + ": the signature is not that of the groups");
  Layout layout{{}, std::move(*plan), {}, {}, {}, {}};
  Status error;
  JsonReader who(*identity, name + ": identity", error);
  for (const IdentityField& field : kIdentity) layout.identity.*field.text = who.require_string(field.name);
  if (!error.ok()) return error;

  JsonReader root(*index, name + ": index", error);
  layout.token_lists = root.int_list("tokens", 0, kMost);
  layout.states = root.int_list("states", 0, kMaxRows);
  if (error.ok() && (layout.states.size() != static_cast<std::size_t>(layout.plan.recurrent_count())))
    root.fail("states", "are not one number for each recurrent group");
  if (error.ok() && root.require_int("piece_positions", 1, kMost) != kPiecePositions)
    root.fail("piece_positions", fmt::format("is not {}", kPiecePositions), StatusCode::kUnsupported);
  if (error.ok()) {
    each_object(root, "pieces", safetensors::kMaxTensors, error, [&](JsonReader& item, std::size_t) {
      layout.pieces.push_back(read_piece(item, layout.plan));
    });
  }
  if (error.ok()) {
    each_object(root, "rows", kMaxRows, error,
                [&](JsonReader& item, std::size_t) { layout.rows.push_back(read_row(item, layout, error)); });
  }
  if (!error.ok()) return error;
  if (Status s = check_used(layout, name); !s.ok()) return s;
  return layout;
}

// The tensors of the header are exactly those that the index needs.
Status check_tensors(const std::vector<safetensors::Entry>& got, const std::vector<Tensor>& expected,
                     const std::string& name) {
  const auto corrupt = [&](const std::string& what) {
    return Status(StatusCode::kCorrupt, name + ": " + what);
  };
  if (got.size() != expected.size())
    return corrupt(fmt::format("{} tensors, its index needs {}", got.size(), expected.size()));
  for (std::size_t i = 0; i < got.size(); i++) {
    const safetensors::Entry& need = expected[i].entry;
    if (got[i].name != need.name || got[i].dtype != need.dtype || got[i].shape != need.shape)
      return corrupt(
          fmt::format("tensor {} is {}, its index needs {} there", i, quote(got[i].name), need.name));
  }
  return Status();
}

}  // namespace

std::string groups_text(const StatePlan& plan) {
  std::string attention, recurrent;
  const auto add = [](std::string& list, const std::string& item) {
    if (!list.empty()) list += ',';
    list += item;
  };
  for (int g = 0; g < plan.group_count(); g++) add(attention, group_text(plan.group(g)));
  for (int g = 0; g < plan.recurrent_count(); g++) add(recurrent, recurrent_text(plan.recurrent(g)));
  return fmt::format("{{\"attention\":[{}],\"recurrent\":[{}]}}", attention, recurrent);
}

std::string identity_text(const SessionIdentity& identity) {
  std::string members;
  for (const IdentityField& field : kIdentity) {
    members +=
        fmt::format("{}\"{}\":{}", members.empty() ? "" : ",", field.name, json_string(identity.*field.text));
  }
  return '{' + members + '}';
}

std::vector<safetensors::MetadataItem> metadata_of(const Layout& layout,
                                                   std::span<const std::uint64_t> checksums) {
  std::string sums;
  sums.reserve(checksums.size() * kXxh3Digits);
  for (const std::uint64_t sum : checksums) sums += hex(sum);
  std::string index =
      fmt::format("{{\"piece_positions\":{},\"pieces\":{},\"rows\":{},\"states\":[{}],\"tokens\":[{}]}}",
                  kPiecePositions, list_text(layout.pieces, piece_text), list_text(layout.rows, row_text),
                  fmt::join(layout.states, ","), fmt::join(layout.token_lists, ","));
  std::vector<safetensors::MetadataItem> items;
  items.reserve(10);
  const auto add = [&](const char* key, std::string value) { items.emplace_back(key, std::move(value)); };
  add("sha256", std::string(kSha256Digits, '0'));
  add("xxh3", std::string(kXxh3Digits, '0'));
  add("format", kFormat);
  add("version", kVersion);
  add("writer", "windrow " WINDROW_VERSION);
  add("signature", layout.plan.signature());
  add("identity", identity_text(layout.identity));
  add("groups", groups_text(layout.plan));
  add("index", std::move(index));
  add("checksums", std::move(sums));
  return items;
}

Result<Parsed> parse(std::string_view header, std::size_t data_bytes, const std::string& name) {
  const auto corrupt = [&](const std::string& what) {
    return Status(StatusCode::kCorrupt, name + ": " + what);
  };
  Result<safetensors::Header> file =
      safetensors::parse_header(header.substr(safetensors::kLengthBytes), data_bytes, name);
  if (!file.ok()) return file.status();
  const std::string& version = file->metadata["version"];
  if (file->metadata["format"] != kFormat) return corrupt("is no session of windrow");
  if (version != kVersion) {
    return Status(StatusCode::kUnsupported, fmt::format("{}: a session of format {}, this program reads {}",
                                                        name, quote(version), kVersion));
  }
  Result<Layout> layout = read_layout(file->metadata, name);
  if (!layout.ok()) return layout.status();
  std::optional<std::vector<Tensor>> tensors = tensors_of(*layout);
  if (!tensors) return corrupt("its index needs more tensors or bytes than a file can have");
  if (Status s = check_tensors(file->tensors, *tensors, name); !s.ok()) return s;
  const std::string& sums = file->metadata["checksums"];
  std::vector<std::uint64_t> checksums;
  if (sums.size() == tensors->size() * kXxh3Digits) {
    for (std::size_t i = 0; i < tensors->size(); i++) {
      if (const auto sum = xxh3_from_hex(std::string_view(sums).substr(i * kXxh3Digits, kXxh3Digits)))
        checksums.push_back(*sum);
    }
  }
  if (checksums.size() != tensors->size())
    return corrupt(fmt::format("\"checksums\" are not {} times {} digits", tensors->size(), kXxh3Digits));
  return Parsed{std::move(*layout), std::move(*tensors), std::move(checksums)};
}

Status compare_identities(const SessionIdentity& file, const std::string& file_signature,
                          const SessionIdentity& here, const std::string& here_signature) {
  std::string differences;
  const auto compare = [&](const char* field, const std::string& theirs, const std::string& ours) {
    if (theirs == ours) return;
    differences += fmt::format("{}{} is {} in the file and {} here", differences.empty() ? "" : "; ", field,
                               theirs.empty() ? "none" : theirs, ours.empty() ? "none" : ours);
  };
  for (const IdentityField& field : kIdentity) compare(field.name, file.*field.text, here.*field.text);
  compare("signature", file_signature, here_signature);
  if (differences.empty()) return Status();
  return Status(StatusCode::kFailedPrecondition, "the session is of another origin: " + differences);
}

}  // namespace windrow::session
