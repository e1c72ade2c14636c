#!/bin/sh
# Builds bench/gemv_bench with nvcc: build.sh OUTPUT_FOLDER [SM], by default for sm_90a.
set -e
cd "$(dirname "$0")/.."
out=$1
sm=${2:-90a}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
mkdir -p "$out"
flags="-std=c++20 -O3 --expt-relaxed-constexpr -I. -cudart=static
       -gencode=arch=compute_$sm,code=sm_$sm"
for site in 0 1 2 4; do
  echo "$site"
done | xargs -P 2 -I{} "$nvcc" $flags -DAC_BENCH_SITE={} -c bench/gemv_bench_kernels.cu \
  -o "$out/gemv_bench_{}.o"
"$nvcc" $flags bench/gemv_bench.cu "$out"/gemv_bench_[0-9].o -o "$out/gemv_bench"
