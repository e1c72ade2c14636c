#!/bin/sh
# Compiles kernels/all.cu with nvcc for every architecture we name; fails on a warning, on a spilled
# register in any default plan, and where ptxas says that it serialized what is to overlap. Two
# architectures have one plan of each family alone, which takes a fifth of the time; with
# AC_TEST_LONG=1 they have all.
set -e
cd "$(dirname "$0")/.."
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for sm in 80 90a 100; do
  # What a plan that is left out would use is unused then.
  some='-DAC_ONE_OF_EACH -diag-suppress 177'
  [ "$sm" != 90a ] && [ -z "${AC_TEST_LONG:-}" ] || some=
  # shellcheck disable=SC2086  # several words, or none
  "$nvcc" $some -std=c++20 -O3 --expt-relaxed-constexpr -Werror all-warnings -Xptxas -v -I. -cubin \
    -gencode=arch=compute_$sm,code=sm_$sm kernels/all.cu -o "$work/all.cubin" 2> "$work/log" ||
    { cat "$work/log"; exit 1; }
  kernels=$(grep -c 'Compiling entry function' "$work/log") || true
  if [ "$kernels" -eq 0 ]; then
    echo "sm_$sm: no kernels were compiled"
    exit 1
  fi
  if grep -qE ' [1-9][0-9]* bytes spill' "$work/log"; then
    echo "sm_$sm: a default plan spills registers"
    grep -B1 -E ' [1-9][0-9]* bytes spill' "$work/log"
    exit 1
  fi
  # Such as products that wait for one another (C7520): ptxas says so and goes on.
  if grep 'Potential Performance Loss' "$work/log"; then
    exit 1
  fi
  echo "sm_$sm: $kernels kernels, no spills${some:+ (one of each family; AC_TEST_LONG=1: all)}"
done
