// What a program of operations is run against: the plans, and everything that is known of a token from its
// id alone - its numbers, the records they are stored as, what attention reads of those records. Nothing here
// knows the store. One World serves all programs of its setup, and keeps the table of outputs by which equal
// histories are held to equal bits (invariant 1), across programs too.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "oracle/lockstep.h"
#include "windrow/attention.h"
#include "windrow/store.h"

namespace windrow::contract {

// The first difference between the engine and what it promises; RapidCheck shrinks by it.
struct Disagreement : std::runtime_error {
  using std::runtime_error::runtime_error;
};
#define JUDGE(condition, ...) \
  if (!(condition)) throw ::windrow::contract::Disagreement(fmt::format(__VA_ARGS__))

inline std::uint64_t mix(std::uint64_t h, std::uint64_t x) {
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 29);
}

enum class Recurrent { kNone, kScalar, kVector };

struct Setup {
  int window = 4;
  int sinks = 0;
  Codec keys = Codec::f32(), values = Codec::f32();
  std::optional<int> delayed = {};  // start, or Delayed::kOnlyByCall
  Codec early = Codec::f32();       // plain: the oracle reads decoded numbers unrounded
  bool wide = false;                // more layers: two in the group, a sharer, a full group
  Recurrent recurrent = Recurrent::kNone;
  bool logits = false;  // sink logits and a softcap
  int rows = 3, tokens = 24, step_tokens = 12, rollback = 0, tree_nodes = 0, verify_tokens = 4;
  int page_tokens = 2, other_page_tokens = 4;

  std::string text() const;
};

constexpr int kColors = 8, kMaxTokens = 64;
// Tokens of one position come in colors: a row takes another one after it lost tokens, so that a stale
// number is never right by chance, and rows of one history are frequent all the same.
inline int token_id(int position, int color) { return position + kMaxTokens * (color % kColors); }

// How a position came to be stored: by the delayed codecs, by them first and the group's own then, by the
// group's own at once.
enum class Stage : std::uint8_t { kEarly, kTwice, kFinal };

// One side (keys or values) of one token in one layer.
struct Stored {
  std::vector<std::uint32_t> words, params;  // [heads][...]
  std::vector<float> raw, read;              // [heads][dim]: as computed; as attention reads it
};

// What a recurrent layer is given of a token.
struct RecurrentToken {
  std::vector<float> x, q, k, v, g, beta;
  GatedDeltaTokens tokens() const { return {1, q.data(), k.data(), v.data(), g.data(), beta.data()}; }
};

class World {
 public:
  // `table`: whose table of outputs is used; null: its own.
  explicit World(Setup setup, World* table = nullptr);
  // The one World of a setup.
  static World& of(const Setup& setup);
  // A world for one row by itself: large pages, otherwise the same, with this one's table of outputs.
  World& alone();

  Setup setup;
  StatePlan plan, other_plan;  // of equal signature, other limits and pages
  AttentionKernels kernels;
  std::vector<int> layers, recurrent_layers;  // sharers are among the layers
  std::vector<float> conv_weights;
  std::vector<float> sink_logits;

  const Stored& stored(int layer, bool key, Stage stage, int id);
  const RecurrentToken& recurrent_token(int layer, int id);
  std::vector<float> query(int layer, int id) const;  // [q_heads][head_dim]
  int q_heads(int layer) const { return 2 * plan.group(plan.group_of_layer(layer)).kv_heads; }
  AttentionParams params(int layer) const;
  oracle::Hooks hooks(int group, bool early) const;

  // What was put out for a key so far, as a hash of its bits; 0: nothing.
  std::uint64_t& bits(std::uint64_t key);
  // Takes back what was put out since the last call of the first: a program that failed is no measure.
  void begin_program();
  void forget_program();

  long programs = 0, operations = 0, steps = 0, queries = 0, repeated = 0;  // repeated: found in the table

 private:
  World* table_;
  std::unique_ptr<World> alone_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Stored>> stored_;
  std::unordered_map<std::uint64_t, std::unique_ptr<RecurrentToken>> tokens_;
  std::unordered_map<std::uint64_t, std::uint64_t> bits_;
  std::vector<std::uint64_t> fresh_;  // keys of this program
};

}  // namespace windrow::contract
