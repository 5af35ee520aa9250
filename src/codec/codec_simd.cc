// encode_record and decode_record.
#include "windrow/codec.h"

namespace windrow {

void encode_record(const Codec& codec, std::span<const float> values, std::span<std::uint32_t> words,
                   std::span<std::uint32_t> params) {
  encode_record_scalar(codec, values, words, params);
}

void decode_record(const Codec& codec, std::span<const std::uint32_t> words,
                   std::span<const std::uint32_t> params, std::span<float> values) {
  decode_record_scalar(codec, words, params, values);
}

}  // namespace windrow
