# What every target of ours is compiled with.
#
# -ffp-contract=off: a product and a sum stay two roundings unless the source says fma, on every
# compiler, so that results are defined by the source (invariant 1).
# HWY_DISABLED_TARGETS: the SIMD code is compiled for AVX-512 (AVX3), AVX2, SSE4 and the scalar
# baseline; the two left out (SSSE3, AVX3_DL) add compile time and no kernel of ours uses them.
# Sanitizer builds compile AVX2 and the baseline only: the sources are the same, the time is not.
function(windrow_configure target)
  set(disabled "HWY_SSSE3|HWY_AVX3_DL")
  if(WINDROW_SANITIZE)
    string(APPEND disabled "|HWY_AVX3|HWY_SSE4")
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "arm|aarch64")
    # Vectors whose size is known when the code runs only: kernels keep arrays of vectors.
    string(APPEND disabled "|HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128")
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror=return-type
                                           -ffp-contract=off -fno-math-errno)
  target_compile_definitions(${target} PRIVATE HWY_DISABLED_TARGETS=\(${disabled}\)
                                               WINDROW_VERSION="${PROJECT_VERSION}")
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # gcc 12 reports these inside the standard library's and Highway's inlined code.
    target_compile_options(${target} PRIVATE -Wno-psabi -Wno-maybe-uninitialized)
  endif()
  if(WINDROW_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

option(WINDROW_WERROR "Warnings are errors" OFF)
if(WINDROW_SANITIZE)
  add_compile_options(-fsanitize=${WINDROW_SANITIZE} -fno-omit-frame-pointer -gline-tables-only -fno-sanitize-recover=all)
  add_compile_definitions(WINDROW_SANITIZED)
  add_link_options(-fsanitize=${WINDROW_SANITIZE})
endif()

# Headers that most files read are parsed once a target instead of once a file: a quarter of the time of a file
# with JSON in it with gcc, two thirds with clang, which keeps their instantiated templates, too.
# Every file still includes what it uses (WINDROW_PRECOMPILE=OFF builds too).
option(WINDROW_PRECOMPILE "Precompile common headers" ON)
function(windrow_precompile target)
  if(WINDROW_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE <algorithm> <cstdint> <functional> <map> <memory> <optional> <span>
                              <string> <string_view> <unordered_map> <variant> <vector>
                              <fmt/format.h> <nlohmann/json.hpp> ${ARGN})
  endif()
endfunction()
