#!/bin/sh
# Builds the kernel benchmarks with nvcc: build.sh OUTPUT_FOLDER [SM [gemv|gemm]], by default both for
# sm_90a.
set -e
cd "$(dirname "$0")/.."
out=$1
sm=${2:-90a}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
mkdir -p "$out"
flags="-std=c++20 -O3 --expt-relaxed-constexpr -I. -cudart=static
       -gencode=arch=compute_$sm,code=sm_$sm"

# build NAME MACRO PART...: NAME_kernels.cu is compiled once for each part.
build() {
  name=$1
  macro=$2
  shift 2
  rm -f "$out/$name"_[0-9].o
  for part in "$@"; do
    echo "$part"
  done | xargs -P "$(nproc)" -I{} "$nvcc" $flags -D"$macro"={} -c "bench/${name}_kernels.cu" \
    -o "$out/${name}_{}.o"
  "$nvcc" $flags "bench/$name.cu" "$out/$name"_[0-9].o -o "$out/$name"
}
case ${3:-all} in
  all | gemv) build gemv_bench AC_BENCH_SITE 0 1 2 4 ;;
esac
case ${3:-all} in
  all | gemm) build gemm_bench AC_BENCH_PART 0 1 2 3 4 ;;
esac
