#!/usr/bin/env bash
# Compiles models on this machine's GPU and measures them; JSON lines go to OUT.
#   bench-gpu.sh OUT CONFIG...     each CONFIG a config.json; weights are random
# Where python3 has PyTorch and transformers, logits and tokens are compared with theirs as well.
# AC_BENCH_CHUNK, AC_BENCH_CONTEXT: tokens of a prefill step (2048) and of the package (24576).
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
program=$here/bin/agentcompile
out=$(realpath -m "$1")
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
peers=
python3 -c 'import torch, transformers' 2>/dev/null && peers=yes
failed=0
for config in "$@"; do
  name=$(basename "$config" .json)
  model=$work/$name weights=()
  if [ -n "$peers" ]; then
    python3 "$here/bench/compare_transformers.py" make "$config" "$model" >&2 || { failed=1; continue; }
  else
    mkdir "$model" && cp "$config" "$model/config.json" && weights=(--random-weights 1)
  fi
  package=$work/$name.package
  "$program" compile "$model" -o "$package" --device cuda --chunk "${AC_BENCH_CHUNK:-2048}" \
    --max-context "${AC_BENCH_CONTEXT:-24576}" >&2 || { failed=1; continue; }
  "$program" bench "$package" --ids-random --prompt 128,2048,8192,20480 --new 256 \
    --context 128,2048,8192,20480 --kernels "${weights[@]}" --json >>"$out" || failed=1
  if [ -n "$peers" ]; then
    python3 "$here/bench/compare_transformers.py" check "$model" "$package" --program "$program" \
      >>"$out" || failed=1
  fi
  cp "$package/plan.json" "$out.$name.plan.json"
  rm -rf "$model" "$package"
done
exit $failed
