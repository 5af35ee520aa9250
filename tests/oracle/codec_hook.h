// Passing numbers through a codec before a cache holds them: the dense-quantized oracle. Tests only.
#pragma once

#include <functional>

#include "base/float16.h"
#include "oracle/tensor.h"
#include "windrow/codec.h"

namespace windrow::oracle {

// Replaces one vector of one head by what attention will read of it once it is stored.
using Hook = std::function<void(std::span<float>)>;
struct Hooks {
  Hook keys, values;  // empty: stored as it is
};

// What the attention kernels read (windrow/attention.h): the value of a plain codec; scale * code +
// bias of an affine one, not rounded to the codec's input type (here: once, to f32).
inline Hook attention_hook(const Codec& codec) {
  return [codec](std::span<float> x) {
    const int dim = static_cast<int>(x.size());
    std::vector<std::uint32_t> words(codec.record_words(dim)), params(codec.record_params(dim));
    encode_record_scalar(codec, x, words, params);
    if (!codec.is_affine()) return decode_record_scalar(codec, words, params, x);
    const auto number = [&](std::uint32_t bits) {
      return codec.input() == DType::kF16 ? f32_from_f16(static_cast<std::uint16_t>(bits))
                                          : f32_from_bf16(static_cast<std::uint16_t>(bits));
    };
    for (int i = 0; i < dim; i++) {
      std::uint32_t code = 0;
      for (int b = 0; b < codec.bits(); b++) {  // one little-endian bit stream
        const int bit = i * codec.bits() + b;
        code |= (words[bit / 32] >> (bit % 32) & 1u) << b;
      }
      const int g = i / codec.group();
      const bool wide = codec.input() == DType::kF32;
      const double scale = wide ? std::bit_cast<float>(params[2 * g]) : number(params[g] & 0xffff);
      const double bias = wide ? std::bit_cast<float>(params[2 * g + 1]) : number(params[g] >> 16);
      x[i] = static_cast<float>(scale * code + bias);
    }
  };
}

// What a reader of decoded numbers gets (Row::extract and then decode_record): rounded as MLX rounds.
inline Hook decode_hook(const Codec& codec) {
  return [codec](std::span<float> x) {
    const int dim = static_cast<int>(x.size());
    std::vector<std::uint32_t> words(codec.record_words(dim)), params(codec.record_params(dim));
    encode_record_scalar(codec, x, words, params);
    decode_record_scalar(codec, words, params, x);
  };
}

inline void apply(const Hook& hook, Tensor& x) {
  if (!hook) return;
  for (int b = 0; b < x.batch; b++) {
    for (int h = 0; h < x.heads; h++) {
      for (int t = 0; t < x.columns; t++) hook(x.at(b, h, t));
    }
  }
}
inline void apply(const Hooks& hooks, Kv& kv) {
  apply(hooks.keys, kv.k);
  apply(hooks.values, kv.v);
}

}  // namespace windrow::oracle
