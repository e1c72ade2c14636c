#include "emit/standalone.h"

namespace ac {

const char* const kBuildScript = R"sh(#!/bin/sh
# Builds lib@NAME@_kernels.so here: ./build.sh sm_XX for a GPU, with nvcc, or ./build.sh host for the
# CPU, with the C++ compiler. NVCC and CXX name other compilers.
set -e
cd "$(dirname "$0")"
target=${1:-@ARCH@}
output=lib@NAME@_kernels.so
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT

fail() {
  echo "build.sh: $*" >&2
  exit 1
}

case $target in
  host)
    cxx=${CXX:-c++}
    command -v "$cxx" >/dev/null || fail "$cxx is missing: install a C++20 compiler, or set CXX"
    for header in fmt/format.h boost/context/detail/fcontext.hpp; do
      echo "#include <$header>" | "$cxx" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null ||
        fail "<$header> is missing: install fmt and Boost.Context (libfmt-dev libboost-context-dev)"
    done
    flags="-std=c++20 -O1 -DNDEBUG -DAC_HOST_DEVICE -fPIC -fvisibility=hidden -w -I."
    # The largest in the background, beside the rest.
    "$cxx" $flags -x c++ -c kernels.cu -o "$objects/kernels.o" &
    kernels=$!
    for source in wrappers.cc kernels/shim/*.cc; do
      "$cxx" $flags -c "$source" -o "$objects/$(basename "$source" .cc).o"
    done
    wait $kernels
    # -Bsymbolic: a kernel is never mistaken for a function of the program that loads it.
    "$cxx" -shared -Wl,-Bsymbolic "$objects"/*.o -o "$output" -lfmt -lboost_context
    ;;
  sm_*)
    nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
    command -v "$nvcc" >/dev/null || fail "nvcc is missing: install the CUDA toolkit, or set NVCC"
    flags="-std=c++20 -O3 -DNDEBUG --expt-relaxed-constexpr -arch=$target -I."
    "$nvcc" $flags -Xcompiler -fPIC,-fvisibility=hidden -shared kernels.cu wrappers.cc -o "$output"
    ;;
  *)
    fail "what is \"$target\"? ./build.sh host, or ./build.sh @ARCH@"
    ;;
esac
echo "$output for $target"
)sh";

const char* const kCMakeLists =
    R"cmake(# lib@NAME@_kernels.so, as build.sh builds it: for the GPU of CMAKE_CUDA_ARCHITECTURES, or, with
# -DHOST=ON, for the CPU.
cmake_minimum_required(VERSION 3.22)
option(HOST "Build for the CPU" OFF)
set(CMAKE_CUDA_ARCHITECTURES "@ARCH_NUMBER@" CACHE STRING "As in sm_@ARCH_NUMBER@")
project(@NAME@_kernels LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CUDA_STANDARD 20)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(@NAME@_kernels SHARED kernels.cu wrappers.cc)
target_include_directories(@NAME@_kernels PRIVATE ${CMAKE_SOURCE_DIR})
set_target_properties(@NAME@_kernels PROPERTIES CXX_VISIBILITY_PRESET hidden
                                                CUDA_VISIBILITY_PRESET hidden)
if(HOST)
  find_package(fmt REQUIRED)
  find_package(Boost REQUIRED COMPONENTS context)
  file(GLOB shim kernels/shim/*.cc)
  target_sources(@NAME@_kernels PRIVATE ${shim})
  set_source_files_properties(kernels.cu PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
  target_compile_definitions(@NAME@_kernels PRIVATE AC_HOST_DEVICE)
  target_compile_options(@NAME@_kernels PRIVATE -w)
  target_link_options(@NAME@_kernels PRIVATE LINKER:-Bsymbolic)
  target_link_libraries(@NAME@_kernels PRIVATE fmt::fmt Boost::context)
else()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  target_compile_options(@NAME@_kernels PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
  target_link_libraries(@NAME@_kernels PRIVATE CUDA::cudart_static)
endif()
)cmake";

const char* const kReadme = R"md(# @NAME@: a compiled model

| file | what it is |
|---|---|
| `program.json` | buffers, and the launches of each kind of step |
| `constants.bin` | constants that buffers refer to; weights stay in the checkpoint (`stores`) |
| `host/`, `sm_*/` | the built kernels: `agentcompile run` loads these |
| `plan.json` | how each kernel was chosen, and the trials that admitted it |
| `weights.json` | what the checkpoint is told by: type, shape and a sampled digest of each tensor |
| `digests.json` | SHA-256 of these files: `agentcompile` loads none that was changed since |
| `kernels.cu`, `kernels/` | the same kernels as sources, and the headers that they include |
| `wrappers.h`, `wrappers.cc` | for each kernel a C function that launches it |
| `build.sh`, `CMakeLists.txt` | build all that: `./build.sh @ARCH@`, or `./build.sh host` for the CPU |

A step of `t` tokens is run by the phase in `phases` with `min_tokens` <= `t` <= `max_tokens`; of several, by the
one with the largest `from` that is no more than the tokens before the step. Its `rows` are `last`, or `all` where it
leaves the logits after each token, row by row, and not after the last alone. No step has more tokens than the
largest `max_tokens`: buffers are as large as it needs. Take its `launches` one after the other. A count is a number, or
`times * ceil((fixed + per_token * t) / per)`, no more than `at_most` if given (`per` and `times` are
1 if not). `params` is the parameter struct in hexadecimal; of `pointers`, `[at, buffer, offset]` puts
the buffer's address plus the count `offset` at the byte `at`; of `numbers`, `[at, bytes, value]` puts a
count there. Call `<kernel>_launch` with that, `grid` (counts), `threads` and `shared_bytes`.

A buffer's `role` says what it holds. `ids` and `position` (tokens before the step) are set before a step,
`token` is what it chose; one below 0 says that a logit is not finite: that of token `~token / 4`. `until` says which
tokens end the text (`Until` in `kernels/advance_plan.h`): -1 and then zeros before the first step if none does.
`scratch` lies at `offset` in `arena_bytes` of memory. A `state` is tensor `tensor` of the state `state` in
`states`: [rows, slots, size], a token at slot position % slots. A `rope_table` is f32 [max_context, frequencies, 2], cosine and sine of position
* frequency, times `scale`, of the constant `source`. `counters` and what is `kept` are
zero before the first step.

To draw a token instead of taking the likeliest, run the phase's `draw` before the last of its `launches`,
with the request in `settings` (`DrawSettings` in `kernels/draw_plan.h`).

To choose among some tokens alone, run a step, put their bits into `allowed` (`kernels/mask_logits_plan.h`), and run
the phase's `masked`, with the same `t`: the first and the last of them for the likeliest token, all of them to draw.
)md";

const char* const kReadmeOfMaps = R"md(
Launches with `maps` take 128 bytes at `at` for each: what cuTensorMapEncodeTiled makes of the matrix of
`rows` (a count) x `columns` 16-bit elements, `pitch` from row to row, which begins `offset` bytes (a count)
behind the buffer's address. It has two dimensions, columns first; boxes of 64 x `box_rows`, a swizzle of 128
bytes, L2 promotion of 256 bytes, no interleave, and zeros outside. With more than one of `box_panels`, it has
three: 64 columns, rows, and panels of 64 columns, which lie 128 bytes apart; boxes of 64 x `box_rows` x
`box_panels`. On the CPU these bytes are a `MatrixView` (`kernels/tensor_map.h`), then zeros.
)md";

const char* const kReadmeOfProducts = R"md(
Launches with a `product` are none of these kernels: `agentcompile run` calls cuBLASLt for them, which
neither `kernels.cu` nor lib@NAME@_kernels.so contains. Whoever runs a step without AgentCompile computes
y[m, n] = scale * x[m, k] weight[n, k]^T (+ bias[n]) (+ residual[m, n]) there by a library of their own,
summed in float32. `params` is six words of 64 bits: x, weight, bias, residual, y, m; rows of x are
`x_pitch` elements apart. `algorithm` counts what cublasLtMatmulAlgoGetHeuristic proposes for `tuned_m` x
`tuned_n` x `k`.
)md";

}  // namespace ac
