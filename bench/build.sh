#!/bin/sh
# Builds the kernel benchmarks with nvcc: build.sh OUTPUT_FOLDER [SM [gemv|gemm|prefill|layers]],
# by default all of them for sm_90a. JOBS, or two, compilers run at once.
set -e
cd "$(dirname "$0")/.."
out=$1
sm=${2:-90a}
benches=${3:-gemv gemm prefill layers}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
mkdir -p "$out"
flags="-std=c++20 -O3 --expt-relaxed-constexpr -I. -cudart=static
       -gencode=arch=compute_$sm,code=sm_$sm"

# job OBJECT SOURCE [MACRO]
job() {
  echo "$3 bench/$2.cu -o $out/$1.o"
}
gemv_jobs() {
  for site in 4 0 1 2; do
    job gemv_bench_$site gemv_bench_kernels -DAC_BENCH_SITE=$site
  done
  job gemv_bench_attention attention_bench_kernels
  job gemv_bench_main gemv_bench
}
gemm_jobs() {
  for part in 0 1 2 3 4; do
    job gemm_bench_$part gemm_bench_kernels -DAC_BENCH_PART=$part
  done
  job gemm_bench_main gemm_bench
}
prefill_jobs() {
  for part in 0 1 2; do
    job prefill_bench_$part prefill_bench_kernels -DAC_BENCH_PART=$part
  done
  job prefill_bench_main prefill_bench
}
layers_jobs() {
  job layers_bench_main layers_bench
}

rm -f "$out/jobs"
for bench in $benches; do
  rm -f "$out/${bench}_bench_"*.o
  "${bench}_jobs" >> "$out/jobs"
done
xargs -P "${JOBS:-2}" -L 1 "$nvcc" $flags -c < "$out/jobs"
for bench in $benches; do
  "$nvcc" $flags "$out/${bench}_bench_"*.o -o "$out/${bench}_bench"
done
