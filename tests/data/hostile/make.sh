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
config quantized_mlx '"quantization" is present, quantized checkpoints are not supported' \
  'quantization={"group_size": 64, "bits": 4}'
config quantized_hf '"quantization_config" is present, quantized checkpoints are not supported' \
  'quantization_config={"quant_method": "awq"}'
config dtype_f8 '"torch_dtype" is "float8_e4m3fn", supported are bfloat16, float16 and float32' 'torch_dtype="float8_e4m3fn"'
config tie_is_number '"tie_word_embeddings" is 1, expected true or false' 'tie_word_embeddings=1'
config eos_beyond_vocab '"eos_token_id" is 320, expected 0 to 319' 'eos_token_id=[1, 320]'
config bos_negative '"bos_token_id" is -1, expected 0 to 319' 'bos_token_id=-1'
text text_config_is_text '"text_config" is "gemma", expected an object' '{"model_type": "gemma3", "text_config": "gemma"}'
text text_config_layers '"text_config.num_hidden_layers" is -1, expected 1 to 4096' \
  '{"model_type": "gemma3", "text_config": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": -1}}'
generation generation_not_json 'invalid JSON at byte 1: syntax error while parsing value - invalid literal' 'eos: 1'
generation generation_is_array 'the file is an array of 1, expected an object' '[1]'
generation generation_eos '"eos_token_id" is 320, expected 0 to 319' '{"eos_token_id": 320}'
mkdir config/nothing_there
touch config/nothing_there/keep
manifest config nothing_there 'nothing_there/config.json: cannot open: No such file or directory'

for folder in safetensors index config; do
  printf '{\n%s\n}\n' "${members[$folder]}" > "$folder/manifest.json"
done
