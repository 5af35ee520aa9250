#!/bin/bash
# Writes the malformed fixtures of this folder and their manifests. One line a fixture: its name, the
# message that the reader must give (after the path of this folder's subfolder), and what is in it.
# The files are committed; run this after a change here and commit what it wrote.
set -euo pipefail
cd "$(dirname "$0")"
rm -rf safetensors index config
mkdir safetensors index config

escape() { local s=${1//\\/\\\\}; printf '%s' "${s//\"/\\\"}"; }

# manifest FOLDER FIXTURE MESSAGE: one member of FOLDER/manifest.json.
declare -A members
manifest() {
  members[$1]+="${members[$1]:+,$'\n'}  \"$2\": \"$(escape "$3")\""
}

# length N: N as 8 bytes, little endian. Taken as a string of hex digits, so that 2^64 - 1 fits.
length() {
  local hex i
  hex=$(printf '%016x' "$1")
  for ((i = 14; i >= 0; i -= 2)); do printf '%b' "\\x${hex:i:2}"; done
}

# tensors FILE HEADER BYTES: a safetensors file of this header and BYTES zero bytes of data.
tensors() {
  { length "$(LC_ALL=C; printf '%s' "${#2}")"; printf '%s' "$2"; head -c "$3" /dev/zero; } > "$1"
}

# st NAME MESSAGE HEADER BYTES
st() {
  tensors "safetensors/$1.safetensors" "$3" "$4"
  manifest safetensors "$1.safetensors" "$1.safetensors: $2"
}

# raw NAME MESSAGE: a safetensors file whose bytes come from stdin.
raw() {
  cat > "safetensors/$1.safetensors"
  manifest safetensors "$1.safetensors" "$1.safetensors: $2"
}

export LC_ALL=C  # ${#text} counts bytes

# ---- safetensors -------------------------------------------------------------------------------
raw empty 'the file is empty' < /dev/null
raw seven_bytes '7 bytes, a safetensors file has at least 8' < <(printf '1234567')
raw header_of_no_bytes "the header does not start with '{'" < <(length 0)
raw header_beyond_file 'a header of 100 bytes, but only 2 follow' < <(length 100; printf '{}')
raw header_length_all_ones 'a header of 18446744073709551615 bytes, the limit is 100000000' \
  < <(length -1; printf '{}')
raw header_above_limit 'a header of 100000001 bytes, the limit is 100000000' < <(length 100000001; printf '{}')
st header_starts_with_space "the header does not start with '{'" ' {}' 0
st header_is_array "the header does not start with '{'" '[]' 0
st header_cut_short 'invalid JSON at byte 6: syntax error while parsing value - unexpected end of input' '{"a":' 0
st header_text_behind 'invalid JSON at byte 4: syntax error while parsing value - unexpected number literal' '{} 1' 0
raw header_nul_behind 'invalid JSON at byte 3: a NUL byte' \
  < <(length 3; printf '{}\0')
st name_not_utf8 'invalid JSON at byte 3: syntax error while parsing object key - invalid string: ill-formed UTF-8 byte' \
  $'{"\xff":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1
st name_lone_surrogate 'invalid JSON at byte 9: syntax error while parsing object key - invalid string: surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF' \
  '{"\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1
st name_twice 'duplicate key "a"' \
  '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}' 2
st name_twice_by_escape 'duplicate key "a"' \
  '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}' 2
st key_twice 'duplicate key "shape"' '{"a":{"dtype":"U8","shape":[1],"shape":[2],"data_offsets":[0,1]}}' 1
st key_unknown 'tensor "a": unknown key "strides"' \
  '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}}' 1
st entry_is_number 'tensor "a": is 1, expected an object' '{"a":1}' 0
st nested_too_deep 'JSON nested deeper than 3' '{"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}}' 1
st dtype_missing 'tensor "a": "dtype" is missing' '{"a":{"shape":[1],"data_offsets":[0,1]}}' 1
st shape_missing 'tensor "a": "shape" is missing' '{"a":{"dtype":"U8","data_offsets":[0,1]}}' 1
st offsets_missing 'tensor "a": "data_offsets" is missing' '{"a":{"dtype":"U8","shape":[1]}}' 1
st dtype_is_number 'tensor "a": "dtype" is 4, expected a string' '{"a":{"dtype":4,"shape":[1],"data_offsets":[0,1]}}' 1
st dtype_f8 'tensor "a": dtype "F8_E4M3" is not supported' \
  '{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}' 1
st dtype_lower_case 'tensor "a": dtype "f32" is not supported' '{"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}' 4
st shape_is_number 'tensor "a": "shape" is 1, expected an array' '{"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}}' 1
st shape_negative 'tensor "a": "shape" holds -1, expected whole numbers from 0' \
  '{"a":{"dtype":"U8","shape":[-1,-1],"data_offsets":[0,1]}}' 1
st shape_fraction 'tensor "a": "shape" holds 1.5, expected whole numbers from 0' \
  '{"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}}' 1
st shape_is_text 'tensor "a": "shape" holds "1", expected whole numbers from 0' \
  '{"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}}' 1
st shape_overflow 'tensor "a": shape [4294967296, 4294967296] of F32 overflows' \
  '{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}' 0
st shape_overflow_by_dtype 'tensor "a": shape [4611686018427387905] of F32 overflows' \
  '{"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}}' 4
st shape_overflow_times_zero 'tensor "a": shape [4294967296, 4294967296, 0] of U8 overflows' \
  '{"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}' 0
st shape_of_33_dimensions 'tensor "a": "shape" is an array of 33, the limit is 32' \
  '{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}' 1
st offsets_one 'tensor "a": "data_offsets" is an array of 1, expected 2 numbers' \
  '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}' 1
st offsets_three 'tensor "a": "data_offsets" is an array of 3, the limit is 2' \
  '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}' 1
st offsets_negative 'tensor "a": "data_offsets" holds -1, expected whole numbers from 0' \
  '{"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}}' 1
st offsets_backwards 'tensor "a": "data_offsets" [4, 0] run backwards' \
  '{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}' 4
st offsets_beyond_data 'tensor "a": "data_offsets" [0, 8] end beyond the 4 bytes of data' \
  '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 4
st offsets_2_to_64 'tensor "a": "data_offsets" holds 1.8446744073709552e+19, expected whole numbers from 0' \
  '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]}}' 1
st offsets_not_finite 'invalid JSON at byte 56: number overflow' \
  '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1e99999]}}' 1
st bytes_too_few 'tensor "a.weight": 12 bytes for shape [2, 3] of F32, expected 24' \
  '{"a.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,12]}}' 12
st bytes_too_many 'tensor "a": 8 bytes for shape [] of F32, expected 4' \
  '{"a":{"dtype":"F32","shape":[],"data_offsets":[0,8]}}' 8
st hole_at_start 'bytes 0 to 4 of the data belong to no tensor' '{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}' 8
st hole_in_the_middle 'bytes 4 to 8 of the data belong to no tensor' \
  '{"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' 12
st hole_at_end 'bytes 4 to 5 of the data belong to no tensor' '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' 5
st data_without_tensors 'bytes 0 to 3 of the data belong to no tensor' '{}' 3
st overlap 'tensor "b" at bytes 2 to 6 overlaps tensor "a" at bytes 0 to 4' \
  '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}' 6
st same_bytes_twice 'tensor "b" at bytes 0 to 4 overlaps tensor "a" at bytes 0 to 4' \
  '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' 4
st empty_tensor_inside_another 'tensor "b" at bytes 2 to 2 overlaps tensor "a" at bytes 0 to 4' \
  '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[0],"data_offsets":[2,2]}}' 4
st metadata_is_text '"__metadata__" is "pt", expected an object or null' '{"__metadata__":"pt"}' 0
st metadata_not_flat '"__metadata__" maps "format" to an object, expected a string' '{"__metadata__":{"format":{}}}' 0

# ---- model.safetensors.index.json --------------------------------------------------------------
# Every fixture is a model folder. shard NAME FILE TENSOR: a good shard of one tensor.
shard() { tensors "index/$1/$2" "{\"$3\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}" 4; }

# index NAME MESSAGE TEXT [FILE]: the message names the index, or FILE of the folder.
index() {
  mkdir -p "index/$1"
  printf '%s' "$3" > "index/$1/model.safetensors.index.json"
  manifest index "$1" "$1/${4-model.safetensors.index.json}: $2"
}

index empty 'the file is empty' ''
index not_json 'invalid JSON at byte 17: syntax error while parsing object key - unexpected end of input' '{"weight_map": {'
index is_array 'the file is an array of 0, expected an object' '[]'
index map_missing '"weight_map" is missing' '{"metadata": {"total_size": 4}}'
index map_null '"weight_map" is missing' '{"weight_map": null}'
index map_is_array '"weight_map" is an array of 0, expected an object' '{"weight_map": []}'
index map_empty '"weight_map" is empty' '{"weight_map": {}}'
index tensor_twice 'duplicate key "a"' '{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}'
index nested_too_deep 'JSON nested deeper than 16' '{"metadata": [[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]], "weight_map": {}}'
index shard_is_number 'tensor "a": the shard is 1, expected a file name' '{"weight_map": {"a": 1}}'
index shard_name_empty 'tensor "a": the shard name "" is empty' '{"weight_map": {"a": ""}}'
index shard_in_parent \
  "tensor \"a\": the shard name \"../shard.safetensors\" holds a '/', expected the plain name of a file in the model folder" \
  '{"weight_map": {"a": "../shard.safetensors"}}'
index shard_absolute \
  "tensor \"a\": the shard name \"/etc/passwd\" holds a '/', expected the plain name of a file in the model folder" \
  '{"weight_map": {"a": "/etc/passwd"}}'
index shard_in_subfolder \
  "tensor \"a\": the shard name \"b/c.safetensors\" holds a '/', expected the plain name of a file in the model folder" \
  '{"weight_map": {"a": "b/c.safetensors"}}'
index shard_is_dot_dot 'tensor "a": the shard name ".." is no file name' '{"weight_map": {"a": ".."}}'
index shard_name_with_nul 'tensor "a": the shard name "a.safetensors\x00.txt" holds a NUL byte' \
  '{"weight_map": {"a": "a.safetensors\u0000.txt"}}'
index shard_missing 'cannot open: No such file or directory' '{"weight_map": {"a": "gone.safetensors"}}' gone.safetensors
index shard_is_folder 'is a directory, expected a file' '{"weight_map": {"a": "s.safetensors"}}' s.safetensors
mkdir index/shard_is_folder/s.safetensors
touch index/shard_is_folder/s.safetensors/keep
index shard_cut_short 'a header of 100 bytes, but only 2 follow' '{"weight_map": {"a": "s.safetensors"}}' s.safetensors
cp safetensors/header_beyond_file.safetensors index/shard_cut_short/s.safetensors
index tensor_not_in_shard 'tensor "b" is not in "s.safetensors"' \
  '{"weight_map": {"a": "s.safetensors", "b": "s.safetensors"}}'
shard tensor_not_in_shard s.safetensors a
index tensor_in_other_shard 'tensor "b" stands in "1.safetensors", the index says "2.safetensors"' \
  '{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}'
shard tensor_in_other_shard 1.safetensors b
shard tensor_in_other_shard 2.safetensors a
index tensor_in_two_shards 'tensor "a" stands in "2.safetensors", the index says "1.safetensors"' \
  '{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}'
shard tensor_in_two_shards 1.safetensors a
tensors index/tensor_in_two_shards/2.safetensors \
  '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}' 8
index index_is_folder 'is a directory, expected a file' ''
rm index/index_is_folder/model.safetensors.index.json
mkdir index/index_is_folder/model.safetensors.index.json
touch index/index_is_folder/model.safetensors.index.json/keep
mkdir index/nothing_there
touch index/nothing_there/keep
manifest index nothing_there 'nothing_there: neither model.safetensors nor model.safetensors.index.json is there'

# ---- config.json and generation_config.json ----------------------------------------------------
# Every fixture is a model folder. text NAME MESSAGE TEXT: config.json is TEXT.
text() {
  mkdir -p "config/$1"
  printf '%s' "$3" > "config/$1/config.json"
  manifest config "$1" "$1/config.json: $2"
}

# config_text MEMBERS [WITHOUT]: a small good config.json with MEMBERS (lines of key=value) added or
# replaced, and the key WITHOUT left out.
config_text() {
  local pair text=''
  declare -A given=()
  while IFS= read -r pair; do given[${pair%%=*}.]=1; done <<< "$1"
  local good=('model_type="gemma3_text"' 'hidden_size=64' 'intermediate_size=96' 'num_hidden_layers=2'
    'num_attention_heads=4' 'num_key_value_heads=2' 'head_dim=32' 'vocab_size=320' 'sliding_window=8')
  while IFS= read -r pair; do
    [[ -n "$pair" && "${pair%%=*}" != "${2-}" ]] && text+="${text:+, }\"${pair%%=*}\": ${pair#*=}"
  done < <(for pair in "${good[@]}"; do [[ -n "${given[${pair%%=*}.]-}" ]] || printf '%s\n' "$pair"; done; printf '%s\n' "$1")
  printf '{%s}' "$text"
}

# config NAME MESSAGE MEMBERS [WITHOUT]
config() { text "$1" "$2" "$(config_text "$3" "${4-}")"; }

# generation NAME MESSAGE TEXT: a good config.json, generation_config.json is TEXT.
generation() {
  mkdir "config/$1"
  config_text '' > "config/$1/config.json"
  printf '%s' "$3" > "config/$1/generation_config.json"
  manifest config "$1" "$1/generation_config.json: $2"
}

text empty 'the file is empty' ''
text not_json 'invalid JSON at byte 16: syntax error while parsing value - unexpected end of input' '{"model_type": '
text is_array 'the file is an array of 0, expected an object' '[]'
text not_finite 'invalid JSON at byte 16: syntax error while parsing value - invalid literal' '{"rope_theta": NaN}'
text key_twice 'duplicate key "hidden_size"' '{"hidden_size": 64, "hidden_size": 128}'
text nested_too_deep 'JSON nested deeper than 64' "{\"a\": $(printf '[%.0s' {1..100})$(printf ']%.0s' {1..100})}"
config model_type_missing '"model_type" is missing' '' model_type
config model_type_is_number '"model_type" is 3, expected a string' 'model_type=3'
config hidden_size_missing '"hidden_size" is missing' '' hidden_size
config hidden_size_negative '"hidden_size" is -3, expected 1 to 1048576' 'hidden_size=-3'
config hidden_size_zero '"hidden_size" is 0, expected 1 to 1048576' 'hidden_size=0'
config hidden_size_fraction '"hidden_size" is 64.5, expected an integer from 1 to 1048576' 'hidden_size=64.5'
config hidden_size_is_text '"hidden_size" is "64", expected an integer from 1 to 1048576' 'hidden_size="64"'
config hidden_size_2_to_32_plus_64 '"hidden_size" is 4294967360, expected 1 to 1048576' 'hidden_size=4294967360'
config intermediate_sizes_differ '"intermediate_size" differs between layers, which is not supported for gemma3_text' \
  'intermediate_size=[96, 128]'
config layers_billion '"num_hidden_layers" is 1000000000, expected 1 to 4096' 'num_hidden_layers=1000000000'
config heads_zero '"num_attention_heads" is 0, expected 1 to 4096' 'num_attention_heads=0'
config kv_heads_zero '"num_key_value_heads" is 0, expected 1 to 4096' 'num_key_value_heads=0'
config heads_no_multiple '"num_attention_heads" is 4, no multiple of the 3 key-value heads' 'num_key_value_heads=3'
config head_dim_odd '"head_dim" is 33, expected an even number' 'head_dim=33'
config head_dim_underivable '"head_dim" is missing, and hidden_size 64 is no multiple of 5 heads' \
  $'model_type="llama"\nnum_attention_heads=5\nnum_key_value_heads=5' head_dim
config vocab_missing '"vocab_size" is missing' $'model_type="some_llama"\nhidden_act="silu"' vocab_size
config vocab_huge '"vocab_size" is 2147483647, expected 1 to 16777216' 'vocab_size=2147483647'
config eps_zero '"rms_norm_eps" is 0, expected 1e-30 to 1' 'rms_norm_eps=0'
config scalar_negative '"query_pre_attn_scalar" is -64, expected 0.001 to 1e+06' 'query_pre_attn_scalar=-64'
config softcap_zero '"attn_logit_softcapping" is 0.0, expected 0.001 to 1e+06' 'attn_logit_softcapping=0.0'
config activation_is_number '"hidden_activation" is 1, expected a string' 'hidden_activation=1'
config window_zero '"sliding_window" is 0, expected 1 to 1073741824' 'sliding_window=0'
config window_negative '"sliding_window" is -1, expected 1 to 1073741824' 'sliding_window=-1'
config window_null '"sliding_window" is missing, but there are sliding layers' \
  $'sliding_window=null\nlayer_types=["sliding_attention", "full_attention"]'
config pattern_zero '"sliding_window_pattern" is 0, expected 1 to 4096' 'sliding_window_pattern=0'
config layer_types_short '"layer_types" has 1 entries for 2 layers' 'layer_types=["full_attention"]'
config layer_types_unknown '"layer_types" holds "linear_attention", supported are "full_attention" and "sliding_attention"' \
  'layer_types=["linear_attention", "full_attention"]'
config layer_types_numbers '"layer_types" holds 1, expected strings' 'layer_types=[1, 0]'
config rope_theta_zero '"rope_theta" is 0.0, expected 1 to 1e+12' 'rope_theta=0.0'
rope_types='"default", "linear", "dynamic", "llama3", "yarn", "longrope", "su", "proportional"'
config rope_type_unknown "\"rope_scaling.rope_type\" is \"mrope\", supported are $rope_types" \
  'rope_scaling={"rope_type": "mrope", "factor": 8.0}'
config rope_type_old_key_unknown "\"rope_scaling.type\" is \"ntk\", supported are $rope_types" \
  'rope_scaling={"type": "ntk", "factor": 8.0}'
config rope_factor_missing '"rope_scaling.factor" is missing' 'rope_scaling={"type": "linear"}'
config rope_factor_zero '"rope_scaling.factor" is 0, expected 1 to 1e+06' 'rope_scaling={"type": "linear", "factor": 0}'
config rope_scaling_is_text '"rope_scaling" is "linear", expected an object' 'rope_scaling="linear"'
config rope_parameters_unknown "\"rope_parameters.full_attention.rope_type\" is \"xpos\", supported are $rope_types" \
  'rope_parameters={"full_attention": {"rope_type": "xpos"}}'
config rope_parameters_flat '"rope_parameters" has neither "full_attention" nor "sliding_attention"' \
  'rope_parameters={"rope_theta": 10000.0}'
config rope_scalings_disagree '"rope_scaling" scales by 8, "rope_parameters" by 4' \
  $'rope_scaling={"type": "linear", "factor": 8}\nrope_parameters={"full_attention": {"rope_type": "linear", "factor": 4}}'
config rope_partial \
  '"rope_parameters.full_attention.partial_rotary_factor" is 0.1: 3 of 32 dimensions would turn, expected an even number' \
  'rope_parameters={"full_attention": {"partial_rotary_factor": 0.1}}'
config attention_bias '"attention_bias" is true, which is not supported for gemma3_text' 'attention_bias=true'
config bidirectional '"use_bidirectional_attention" is true, only causal attention is supported' \
  'use_bidirectional_attention=true'
config quantized_by_another "\"quantization_config.quant_method\" is \"awq\", only MLX's affine quantization is supported" \
  'quantization_config={"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true}'
config quantized_fp8 "\"quantization_config.quant_method\" is \"fp8\", only MLX's affine quantization is supported" \
  'quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}'
config quantized_mode '"quantization.mode" is "mxfp4", supported is "affine"' \
  'quantization={"group_size": 32, "bits": 4, "mode": "mxfp4"}'
config quantized_is_array '"quantization" is an array of 0, expected an object' 'quantization=[]'
config quantized_empty '"quantization.group_size" is missing' 'quantization={}'
config quantized_bits_missing '"quantization.bits" is missing' 'quantization={"group_size": 64}'
config quantized_bits_7 '"quantization.bits" is 7, supported are 2, 3, 4, 5, 6 and 8' \
  'quantization={"group_size": 64, "bits": 7}'
config quantized_bits_text '"quantization.bits" is "4", expected an integer from 1 to 1024' \
  'quantization={"group_size": 64, "bits": "4"}'
config quantized_bits_negative '"quantization.bits" is -4, expected an integer from 1 to 1024' \
  'quantization={"group_size": 64, "bits": -4}'
config quantized_group_16 '"quantization.group_size" is 16, supported are 32, 64 and 128' \
  'quantization={"group_size": 16, "bits": 4}'
config quantized_group_huge '"quantization.group_size" is 18446744073709551615, expected an integer from 1 to 1024' \
  'quantization={"group_size": 18446744073709551615, "bits": 4}'
config quantized_module_bits '"quantization.model.embed_tokens.bits" is 9, supported are 2, 3, 4, 5, 6 and 8' \
  'quantization={"group_size": 64, "bits": 4, "model.embed_tokens": {"group_size": 64, "bits": 9}}'
config quantized_module_mode '"quantization.model.embed_tokens.mode" is "nvfp4", supported is "affine"' \
  'quantization={"group_size": 64, "bits": 4, "model.embed_tokens": {"group_size": 16, "bits": 4, "mode": "nvfp4"}}'
config quantized_module_number '"quantization.model.embed_tokens" is 6, expected an object or a boolean for a module' \
  'quantization={"group_size": 64, "bits": 4, "model.embed_tokens": 6}'
config dtype_f8 '"torch_dtype" is "float8_e4m3fn", supported are bfloat16, float16 and float32' 'torch_dtype="float8_e4m3fn"'
config tie_is_number '"tie_word_embeddings" is 1, expected true or false' 'tie_word_embeddings=1'
config eos_beyond_vocab '"eos_token_id" is 320, expected 0 to 319' 'eos_token_id=[1, 320]'
config bos_negative '"bos_token_id" is -1, expected 0 to 319' 'bos_token_id=-1'
text text_config_is_text '"text_config" is "gemma", expected an object' '{"model_type": "gemma3", "text_config": "gemma"}'
text text_config_layers '"text_config.num_hidden_layers" is -1, expected 1 to 4096' \
  '{"model_type": "gemma3", "text_config": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": -1}}'
# family TYPE NAME MESSAGE MEMBERS [WITHOUT]
family() { config "$2" "$3" "model_type=\"$1\"${4:+$'\n'}$4" "${5-}"; }

family gemma3_text activation_other '"hidden_activation" is "relu", gemma3_text uses "gelu_pytorch_tanh"' \
  'hidden_activation="relu"'
family gemma3_text mlp_bias '"mlp_bias" is true, which is not supported for gemma3_text' 'mlp_bias=true'
family gemma3_text bidirectional_vision \
  '"use_bidirectional_attention" is "vision", only causal attention is supported' 'use_bidirectional_attention="vision"'
family gemma4_text bidirectional_all \
  '"use_bidirectional_attention" is "all", only causal attention is supported' 'use_bidirectional_attention="all"'
family gemma3n_text intermediate_sizes_short '"intermediate_size" has 3 entries for 2 layers' \
  'intermediate_size=[96, 96, 96]'
family llama window_of_llama '"sliding_window" is 8, llama has no sliding layers' ''
family llama layer_types_of_llama '"layer_types" holds "sliding_attention", supported is "full_attention"' \
  'layer_types=["sliding_attention", "full_attention"]' sliding_window
family qwen3_next layer_types_of_qwen3_next \
  '"layer_types" holds "sliding_attention", supported are "full_attention" and "linear_attention"' \
  'layer_types=["sliding_attention", "full_attention"]' sliding_window
family qwen3_next full_attention_interval_zero '"full_attention_interval" is 0, expected 1 to 4096' \
  'full_attention_interval=0' sliding_window
family qwen3 max_window_layers_negative '"max_window_layers" is -1, expected 0 to 1073741824' \
  $'max_window_layers=-1\nuse_sliding_window=true'
family gemma3n_text shared_layers_all '"num_kv_shared_layers" is 2, expected 0 to 1' 'num_kv_shared_layers=2'
family gemma3n_text shared_layers_default '"num_kv_shared_layers" is missing, and the default of 15 exceeds 2 layers' ''
family gemma4_text shared_layers_without_donor \
  '"num_kv_shared_layers" is 1, but no "full_attention" layer comes before the last 1 to share with them' \
  $'num_kv_shared_layers=1\nlayer_types=["sliding_attention", "full_attention"]'
family gemma3_text shared_layers_of_gemma3 '"num_kv_shared_layers" is not 0, gemma3_text shares no keys and values' \
  'num_kv_shared_layers=1'
family gemma3n_text altup_active_beyond '"altup_active_idx" is 4, expected 0 to 3' \
  $'num_kv_shared_layers=0\naltup_active_idx=4'
family gemma3n_text altup_inputs_zero '"altup_num_inputs" is 0, expected 1 to 64' \
  $'num_kv_shared_layers=0\naltup_num_inputs=0'
family gemma3n_text laurel_rank_zero '"laurel_rank" is 0, expected 1 to 1048576' $'num_kv_shared_layers=0\nlaurel_rank=0'
family gemma3n_text sparsity_short '"activation_sparsity_pattern" has 1 entries for 2 layers' \
  $'num_kv_shared_layers=0\nactivation_sparsity_pattern=[0.5]'
family gemma3n_text sparsity_of_everything '"activation_sparsity_pattern" is 1.0, expected 0 to 0.9999' \
  $'num_kv_shared_layers=0\nactivation_sparsity_pattern=[0.5, 1.0]'
family gemma3n_text sparsity_is_number '"activation_sparsity_pattern" is 0.5, expected an array of numbers' \
  $'num_kv_shared_layers=0\nactivation_sparsity_pattern=0.5'
family gemma3n_text per_layer_input_zero '"hidden_size_per_layer_input" is 0, expected 1 to 1048576' \
  $'num_kv_shared_layers=0\nhidden_size_per_layer_input=0'
family gemma4_text moe_of_gemma4 '"enable_moe_block" is true, experts of gemma4_text are not supported' \
  'enable_moe_block=true'
family gemma4_text global_head_dim_odd '"global_head_dim" is 65, expected an even number' 'global_head_dim=65'
family gemma4_text global_heads_no_divisor '"num_global_key_value_heads" is 3, 4 heads are no multiple of it' \
  $'num_global_key_value_heads=3\nattention_k_eq_v=true'
family gemma4_text per_layer_config_differs \
  '"per_layer_config" differs between layers of one type, which is not supported' \
  $'layer_types=["full_attention", "full_attention"]\nper_layer_config={"1": {"head_dim": 64}}'
family gemma4_text per_layer_config_of_sliding \
  '"per_layer_config" differs between layers of one type, which is not supported' \
  $'layer_types=["sliding_attention", "full_attention"]\nper_layer_config={"0": {"head_dim": 64}, "1": {"head_dim": 64}}'
family gemma4_text per_layer_config_is_number '"per_layer_config" is 3, expected an object' 'per_layer_config=3'
family gemma4_text per_layer_config_entry '"per_layer_config.1.head_dim" is 0, expected 2 to 4096' \
  $'layer_types=["sliding_attention", "full_attention"]\nper_layer_config={"1": {"head_dim": 0}}'
family llama experts_of_llama '"num_local_experts" is 8, llama has no experts' 'num_local_experts=8' sliding_window
family gpt_oss experts_negative '"num_local_experts" is -1, expected 0 to 4096' 'num_local_experts=-1'
family gpt_oss experts_chosen_beyond '"num_experts_per_tok" is 5, expected 1 to 4' \
  $'num_local_experts=4\nnum_experts_per_tok=5'
family gpt_oss swiglu_alpha_other '"swiglu_alpha" is 1.5, only 1.702 is supported' 'swiglu_alpha=1.5'
family qwen3_next mlp_only_layers_beyond '"mlp_only_layers" is 2, expected 0 to 1' 'mlp_only_layers=[2]' sliding_window
family qwen3_next sparse_step_zero '"decoder_sparse_step" is 0, expected 1 to 4096' 'decoder_sparse_step=0' sliding_window
family qwen3_next linear_heads_no_multiple '"linear_num_value_heads" is 24, no multiple of the 16 key heads' \
  'linear_num_value_heads=24' sliding_window
family qwen3_next linear_key_dim '"linear_key_head_dim" is 24, expected a multiple of 16' 'linear_key_head_dim=24' sliding_window
family qwen3_next linear_taps_zero '"linear_conv_kernel_dim" is 0, expected 1 to 64' 'linear_conv_kernel_dim=0' sliding_window
family mistral rope_partial_above_one '"partial_rotary_factor" is 1.5, expected 0 to 1' 'partial_rotary_factor=1.5'
family phi3 rope_partial_odd '"partial_rotary_factor" is 0.35: 11 of 32 dimensions would turn, expected an even number' \
  'partial_rotary_factor=0.35'
family llama rope_llama3_key_missing '"rope_scaling.low_freq_factor" is missing' \
  'rope_scaling={"rope_type": "llama3", "factor": 8.0}' sliding_window
family llama rope_llama3_factors_equal \
  '"rope_scaling.high_freq_factor" is 4, expected more than the low_freq_factor 4' \
  'rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0}' sliding_window
family mistral rope_yarn_betas '"rope_scaling.beta_fast" is 1, expected at least the beta_slow 32' \
  'rope_scaling={"rope_type": "yarn", "factor": 8.0, "beta_fast": 1, "beta_slow": 32}'
family mistral rope_yarn_theta_one '"rope_theta" is 1, yarn needs more' \
  $'rope_theta=1\nrope_scaling={"rope_type": "yarn", "factor": 8.0}'
family mistral rope_yarn_original_one \
  '"rope_scaling.original_max_position_embeddings" is 1, expected 2 to 1073741824' \
  'rope_scaling={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 1}'
family phi3 rope_longrope_list_missing '"rope_scaling.short_factor" is missing' 'rope_scaling={"type": "longrope"}'
family phi3 rope_longrope_list_short \
  '"rope_scaling.long_factor" has 1 entries for 2 pairs of rotary dimensions' \
  $'head_dim=4\nrope_scaling={"type": "su", "short_factor": [1, 1], "long_factor": [1]}'
family phi3 rope_longrope_factor_zero '"rope_scaling.short_factor" is 0, expected 0.001 to 1e+06' \
  $'head_dim=4\nrope_scaling={"type": "su", "short_factor": [0, 1], "long_factor": [1, 1]}'
family mistral rope_dynamic_narrow '"partial_rotary_factor" leaves 2 rotary dimensions, dynamic ropes need 4' \
  $'head_dim=2\nrope_scaling={"type": "dynamic", "factor": 2}'
family mistral rope_of_images '"rope_scaling.mrope_section" is present, which is not supported' \
  'rope_scaling={"type": "default", "mrope_section": [16, 24, 24]}'
family mistral rope_two_kinds '"rope_parameters" differs between layer types, mistral has one rope for all' \
  'rope_parameters={"full_attention": {"rope_theta": 5e5}, "sliding_attention": {"rope_theta": 1e4}}'
family gemma4_text rope_proportional_factor '"rope_parameters.full_attention.factor" is 0.5, expected 1 to 1e+06' \
  'rope_parameters={"full_attention": {"rope_type": "proportional", "factor": 0.5}}'
family mistral rope_scaling_types_disagree '"rope_scaling" and "rope_parameters" disagree' \
  $'rope_scaling={"type": "dynamic", "factor": 4}\nrope_parameters={"rope_type": "linear", "factor": 4}'

generation generation_not_json 'invalid JSON at byte 1: syntax error while parsing value - invalid literal' 'eos: 1'
generation generation_is_array 'the file is an array of 1, expected an object' '[1]'
generation generation_eos '"eos_token_id" is 320, expected 0 to 319' '{"eos_token_id": 320}'
mkdir config/nothing_there
touch config/nothing_there/keep
manifest config nothing_there 'nothing_there/config.json: cannot open: No such file or directory'

for folder in safetensors index config; do
  printf '{\n%s\n}\n' "${members[$folder]}" > "$folder/manifest.json"
done
