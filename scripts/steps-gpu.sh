#!/usr/bin/env bash
# What each technique is worth for decoding, on this machine's GPU; JSON lines go to OUT.
#   steps-gpu.sh OUT CONFIG        CONFIG a config.json; weights are random
# Each line says what was left out: nothing, graph, overlap (at run time), or whole_step (selection in
# the whole step), fusion, gemv (own matrix-vector kernels; libraries multiply) of the compilation.
set -uo pipefail
[ $# -eq 2 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
program=$here/bin/agentcompile
[ -x "$program" ] || program=$here/../build/release/agentcompile
out=$(realpath -m "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/model"
cp "$2" "$work/model/config.json"
failed=0

# package NAME [OPTION...]: the prompt's kernels are of no interest.
package() {
  local name=$1
  shift
  "$program" compile "$work/model" -o "$work/$name" --device cuda --chunk 16 --max-context 24576 "$@" >&2
}
# bench NAME WITHOUT [OPTION...]
bench() {
  local name=$1 without=$2
  shift 2
  "$program" bench "$work/$name" --ids-random --random-weights 1 --new 128 \
    --context 128,2048,8192,20480 --json "$@" |
    sed "s/^{/{\"left_out\": \"$without\", /" >>"$out" || failed=1
}
if package whole; then
  bench whole nothing
  bench whole graph --without graph
  bench whole overlap --without overlap
else
  failed=1
fi
package alone --step-seconds 0 && bench alone whole_step || failed=1
package apart --step-seconds 0 --no-fusion && bench apart "whole_step, fusion" || failed=1
others=cublaslt,gemm,mma_gemm,attention,prefill_attention,norm,softmax,reduction,elementwise,embedding
package library --step-seconds 0 --no-fusion --families "$others" &&
  bench library "whole_step, fusion, gemv" || failed=1
exit $failed
