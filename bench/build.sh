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
for site in 4 0 1 2; do
  echo "-DAC_BENCH_SITE=$site bench/gemv_bench_kernels.cu -o $out/bench_gemv_$site.o"
done > "$out/jobs"
echo "bench/attention_bench_kernels.cu -o $out/bench_attention.o" >> "$out/jobs"
echo "bench/gemv_bench.cu -o $out/bench_main.o" >> "$out/jobs"
xargs -P "${JOBS:-2}" -L 1 "$nvcc" $flags -c < "$out/jobs"
"$nvcc" $flags "$out"/bench_gemv_?.o "$out"/bench_attention.o "$out"/bench_main.o -o "$out/gemv_bench"
