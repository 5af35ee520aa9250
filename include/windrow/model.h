// A model from a Hugging Face folder, and its forward pass over a store's state.
//
//   Result<ThreadPool> pool = ThreadPool::create(2);
//   Result<Model> model = Model::load("models/storyteller", *pool);
//   Result<StatePlan> plan = model->plan(KvChoice(Codec::affine(4)), {.tokens = 1024});
//   Result<StateStore> store = StateStore::create(*plan);
//   Result<Row> row = store->new_row();
//   Result<Runner> runner = Runner::create(*model, *plan, *pool);
//   Result<Step> step = store->begin(rows, lengths);            // rows {&*row}, lengths {3}
//   runner->forward(*step, ids, wanted, logits);                // ids[3], wanted {2}, logits[vocab]
//   step->resolve();
//
// Families: see README.md, "Models". Weights are f32, f16 or bf16, or affine codes as MLX-community
// checkpoints have them ("quantization" in config.json; convert.h writes such), and stay so in memory;
// activations are f32.
//
// Row determinism: a token's logits and the bytes stored for it are the same, bit for bit, however
// its row's tokens are cut into steps, whatever else is in the step, and on any number of threads
// (one machine, one instruction set).
//
// Thread safety: a Model is immutable and may be shared. A Runner and its ThreadPool serve one
// call at a time; several runners may share a Model, each with a pool of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/attention.h"
#include "windrow/codec.h"
#include "windrow/compute.h"
#include "windrow/dtype.h"
#include "windrow/export.h"
#include "windrow/kv_choice.h"
#include "windrow/plan.h"
#include "windrow/recurrent.h"
#include "windrow/status.h"
#include "windrow/store.h"
#include "windrow/threads.h"

namespace windrow {

// The state that one layer needs.
struct LayerShape {
  int window = kFullWindow;  // W, or kFullWindow
  int kv_heads = 0;
  int head_dim = 0;
  int donor = -1;  // the earlier layer whose keys and values this one attends over (KV sharing); -1: its own
  std::optional<RecurrentShape> recurrent = {};  // of a layer without attention: then the rest is unused
  friend bool operator==(const LayerShape&, const LayerShape&) = default;
};

// What a model's config.json says of it.
struct ModelInfo {
  std::string model_type;  // as the file says
  int hidden_size = 0;
  int heads = 0;                   // query heads of a layer
  int vocab_size = 0;              // logits of one token; ids are below it
  int max_positions = 0;           // the length the model was made for
  std::vector<LayerShape> layers;  // in order
  DType dtype = DType::kBF16;      // that the file names; each tensor states its own
  std::vector<std::int32_t> bos_ids;
  std::vector<std::int32_t> eos_ids;
};

// Without reading weights. kUnsupported names a model type that no family here covers.
WINDROW_API Result<ModelInfo> read_model_info(const std::string& folder);

// The same of a config.json's text; `name` is what messages call it.
WINDROW_API Result<ModelInfo> parse_model_info(std::string_view config, const std::string& name);

// The plan of a model's state: layers of equal window, heads, head dim and codecs form a group, in order of
// their first layer. What Model::plan gives; needs no weights. Refuses what check_kv_choice refuses.
WINDROW_API Result<StatePlan> plan_state(const ModelInfo& info, const KvChoice& kv, const Limits& limits);

struct LoadOptions {
  // Called on the loading thread with the bytes of weights that are ready and their total, several
  // times, the last time with done == total. Must not throw.
  std::function<void(std::size_t done, std::size_t total)> progress;
  // Of products over quantized weights; others are f32 in every mode.
  Compute compute = Compute::kDefault;
};

// Weights that nobody trained: bf16 numbers, or affine codes of `bits` (where they are not 0) in groups.
struct RandomWeightsFormat {
  int bits = 0;
  int group = 64;
};

class WINDROW_API Model {
 public:
  // Reads config.json and the safetensors of `folder`; checks the shape and type of every tensor
  // and refuses tensors of the text model it has no use for (a bias, say) by name. Weights are
  // copied into the kernels' layout; embedding rows are read from the mapped file, which must
  // not change while the model lives. `pool` is used during the call only.
  static Result<Model> load(const std::string& folder, ThreadPool& pool, const LoadOptions& options = {});

  // A model as the text of a config.json describes it, with random weights (the same in every run): as fast
  // as a trained one of its shape, and as large. Its logits are finite and mean nothing. Errors begin with
  // `name`; kInvalidArgument for bits and groups that no codec has. The progress of `options` is not called.
  static Result<Model> random(std::string_view config, const std::string& name,
                              const RandomWeightsFormat& format, ThreadPool& pool,
                              const LoadOptions& options = {});
  // Bytes of weights that the same call would hold, without making them.
  static Result<std::size_t> random_bytes(std::string_view config, const std::string& name,
                                          const RandomWeightsFormat& format);

  const ModelInfo& info() const noexcept;
  // Numbers in the tensors that are used; tied embeddings count once.
  std::size_t parameters() const noexcept;
  // Bytes of the matrices in memory: the file's, but for rows rounded up to 16.
  std::size_t weight_bytes() const noexcept;
  // Multiplications of one token's pass, with its logits: the numbers of all matrices, of experts those that
  // a token chooses. Embeddings are none.
  std::size_t multiplications() const noexcept;
  // Of those bytes, what a step of one token in each of `rows` rows reads: of experts the expected share that
  // is chosen.
  std::size_t weight_bytes_read(int rows) const noexcept;
  // plan_state(info(), kv, limits).
  Result<StatePlan> plan(const KvChoice& kv, const Limits& limits) const;

 private:
  friend class Runner;
  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

// Seconds spent in the parts of forward(), added up over calls.
struct ForwardProfile {
  double products = 0;   // matrix products
  double attention = 0;  // attend
  double state = 0;      // append and read: storing keys and values
  double layers = 0;     // everything else: norms, rotations, activations, embedding
};

// What one attention layer of a forward pass worked on, for all tokens of the step: [tokens, heads, dim]
// each. The spans are valid during the call.
struct AttentionTrace {
  int layer = 0;
  std::span<const float> q;         // as attended with: normed and rotated
  std::span<const float> k, v;      // as appended; empty where the layer attends over a donor's
  const AttentionParams& params;    // of the attention
  std::span<const float> attended;  // [tokens, heads, value_dim], before a gate or the output projection
};
// Called on the thread of forward(), after each attention layer; an error ends the forward pass with it. Must
// not throw.
using AttentionObserver = std::function<Status(const AttentionTrace&)>;

// The forward pass of a model over steps of stores made from one plan: the attention kernels,
// chosen once, and the activations of the largest step, allocated once.
class WINDROW_API Runner {
 public:
  // The plan must hold every layer of the model with its heads, head dim and window;
  // kInvalidArgument names the layer where it does not. Shares ownership of the model; `pool`
  // must outlive the runner (a pool may be moved only while no runner refers to it).
  static Result<Runner> create(const Model& model, const StatePlan& plan, ThreadPool& pool);
  Runner(Runner&&) noexcept;
  Runner& operator=(Runner&&) noexcept;
  ~Runner();

  // Runs step.tokens() tokens through all layers: appends each layer's keys and values to the
  // step and attends. The step stays open: resolve or abort is the caller's.
  //   ids     [step.tokens()], packed by row, each in [0, vocab_size)
  //   wanted  tokens of the step whose logits are wanted, strictly ascending; may be empty
  //   logits  [wanted.size(), vocab_size], after the model's final softcap
  // Where the model's numbers break (NaN in its weights, overflow) the logits of the rows concerned are NaN,
  // with whatever codec: a key or value vector that holds a NaN or an infinity is stored as NaN throughout.
  // kInvalidArgument for wrong sizes, an id outside the vocabulary (naming its place) or a step
  // larger than the plan's; then nothing was appended.
  Status forward(Step& step, std::span<const std::int32_t> ids, std::span<const std::int32_t> wanted,
                 std::span<float> logits);

  // Bytes of the activations, allocated by create.
  std::size_t scratch_bytes() const noexcept;
  // Adds the time of every later forward() to `profile`; null (the start) measures nothing.
  void set_profile(ForwardProfile* profile) noexcept;
  // Shows the attention layers of every later forward() to `observer`; empty (the start): to nobody.
  void set_observer(AttentionObserver observer) noexcept;

 private:
  struct Impl;
  explicit Runner(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace windrow
