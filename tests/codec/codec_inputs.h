// Codecs, head dims and vectors, ordinary and hostile, that the codec tests share.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "windrow/codec.h"

namespace windrow::testing {

inline std::vector<Codec> all_codecs() {
  std::vector<Codec> codecs = {Codec::f32(), Codec::f16(), Codec::bf16()};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
        codecs.push_back(Codec::affine(bits, group, input));
      }
    }
  }
  return codecs;
}

// Every legal head dim up to 512, and the largest.
inline std::vector<int> head_dims(const Codec& codec) {
  std::vector<int> dims;
  for (int d = 16; d <= 512; d += 16) {
    if (codec.check(d).ok()) dims.push_back(d);
  }
  dims.push_back(1024);
  return dims;
}

enum class Numbers {
  kNormal,        // a model's activations
  kBF16,          // the same, representable in bf16
  kAnyBits,       // every f32 bit pattern: NaN of all payloads, infinities, denormals
  kFiniteBits,    // every finite one: ranges that overflow
  kDenormal,      //
  kSignedZero,    //
  kConstant,      //
  kHuge,          // around the largest f16 and f32
  kHalfSteps,     // quotients at ties
  kOutlier,       // one number far from the rest
  kSprinkledNaN,  // ordinary numbers, some NaN
  kSprinkledInf,  //
  kAllNaN,        //
  kBelowHalf,     // quotients next to ties: 0.49999997 is where adding 0.5 fails
  kCount,
};

inline std::vector<float> numbers(Numbers kind, std::size_t n, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const float inf = std::numeric_limits<float>::infinity();
  const float constant = normal(random) * (random() % 2 ? 1.0f : 1e-9f);
  const float unit = std::ldexp(1.0f, static_cast<int>(random() % 20) - 10);
  std::vector<float> x(n);
  for (float& v : x) {
    const std::uint32_t bits = random();
    switch (kind) {
      case Numbers::kNormal: v = normal(random); break;
      case Numbers::kBF16: v = f32_from_bf16(bf16_from_f32(normal(random))); break;
      case Numbers::kAnyBits: v = std::bit_cast<float>(bits % 4 ? bits : bits | 0x7f800000u); break;
      case Numbers::kFiniteBits:
        v = std::bit_cast<float>((bits & 0x7f800000u) == 0x7f800000u ? bits ^ 0x40000000u : bits);
        break;
      case Numbers::kDenormal: v = std::bit_cast<float>(bits & 0x807fffffu); break;
      case Numbers::kSignedZero: v = bits % 2 ? 0.0f : -0.0f; break;
      case Numbers::kConstant: v = constant; break;
      case Numbers::kHuge: v = (bits % 3 ? 65504.0f : 3e38f) * normal(random); break;
      case Numbers::kHalfSteps: v = unit * 0.5f * static_cast<float>(static_cast<int>(bits % 511)); break;
      case Numbers::kOutlier: v = normal(random) * (bits % 50 ? 1e-3f : 1e3f); break;
      case Numbers::kSprinkledNaN:
        v = bits % 16 ? normal(random) : std::bit_cast<float>(bits | 0x7f800001u);
        break;
      case Numbers::kSprinkledInf: v = bits % 40 ? normal(random) : (bits & 0x100 ? inf : -inf); break;
      case Numbers::kAllNaN: v = std::bit_cast<float>(bits | 0x7f800001u); break;
      case Numbers::kBelowHalf: {
        const float half = 0.5f * static_cast<float>(static_cast<int>(bits % 511));
        v = unit * std::nextafter(half, bits & 0x10000 ? inf : -inf);
        break;
      }
      case Numbers::kCount: break;
    }
  }
  return x;
}

struct Record {
  std::vector<std::uint32_t> words, params;
  Record(const Codec& codec, int head_dim)
      : words(static_cast<std::size_t>(codec.record_words(head_dim))),
        params(static_cast<std::size_t>(codec.record_params(head_dim))) {}
  friend bool operator==(const Record&, const Record&) = default;
};

inline std::vector<std::uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> out;
  for (const float v : x) out.push_back(std::bit_cast<std::uint32_t>(v));
  return out;
}

}  // namespace windrow::testing
