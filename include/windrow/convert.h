// Writes a model folder again with quantized weights: an MLX-community checkpoint, readable by this library
// and by mlx-lm.
//
//   Result<Conversion> done = convert_model("models/storyteller", "storyteller-4bit", {.bits = 4}, pool);
//
// What is quantized: the text model's matrices (linear layers and embeddings: tensors `<path>.weight` of two
// dimensions) whose last dimension is a multiple of the group. Codes, scales and biases of a module are bit
// for bit those of mx.quantize of its tensor (codec.h has the rule), in `<path>.weight` (U32),
// `<path>.scales` and
// `<path>.biases` (of the tensor's type). Everything else of the text model (norms, biases) is copied as it
// is. Other parts of a multimodal folder, a head beside tied embeddings and buffers that follow from the
// config are left out, as mlx-lm does. config.json is written again with "quantization" and its copy
// "quantization_config"; the files of tokenizer and generation are copied.
//
// Thread safety: a free function; the folders must not be changed by others meanwhile.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/export.h"
#include "windrow/status.h"
#include "windrow/threads.h"

namespace windrow {

// Bits and group of some modules, by their path ("model.layers.0.mlp.down_proj").
struct ConvertRule {
  // The whole path, or what of it follows some '.'; '*' stands for any letters, '?' for one.
  std::string pattern;
  bool quantized = true;
  int bits = 4, group = 64;
};

// "embed_tokens=6:64,down_proj=8:32,layers.0.*=none": PATTERN=BITS[:GROUP] or PATTERN=none, joined by commas;
// a group that goes unsaid is `group`. kInvalidArgument names the rule that is wrong.
WINDROW_API Result<std::vector<ConvertRule>> parse_convert_rules(std::string_view text, int group);

struct ConvertOptions {
  int bits = 4;    // 2, 3, 4, 5, 6 or 8
  int group = 64;  // 32, 64 or 128
  // Of several that match a module the last counts. A rule must match some matrix, and its group must divide
  // the columns of all that it matches.
  std::vector<ConvertRule> rules = {};
  bool replace = false;  // a model folder that stands at `out` gives way
  // The most bytes of tensors in one file, if they are several; mlx-lm's limit. More than that make
  // model-00001-of-0000N.safetensors with an index.
  std::size_t shard_bytes = std::size_t{5} << 30;
  // Called on the calling thread with the bytes of tensors that are written, and of all. Must not throw.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
  // Looked at between pieces of some MB; true ends with kFailedPrecondition, nothing being written.
  const std::atomic<bool>* cancel = nullptr;
};

// What was written.
struct Conversion {
  std::size_t quantized = 0;                      // modules
  std::size_t kept = 0;                           // tensors copied as they are
  std::size_t left_out = 0;                       // tensors of other parts
  std::size_t parameters = 0;                     // numbers that the tensors stand for
  std::size_t bytes_before = 0, bytes_after = 0;  // of the text model's tensors
  std::size_t files = 0;                          // of tensors
};

// Memory is bounded by the scales of one tensor and some MB. `out` appears when it is complete; on an error
// nothing of it is left. Refused by name: a folder that exists (kIo), folders that are quantized already,
// families that mlx-lm stores in another form (gpt_oss, qwen3_next) and stacked experts (kUnsupported).
WINDROW_API Result<Conversion> convert_model(const std::string& folder, const std::string& out,
                                             const ConvertOptions& options, ThreadPool& pool);

}  // namespace windrow
