#!/usr/bin/env bash
# Compiles models on this machine's GPU and measures them; JSON lines go to OUT.
#   bench-gpu.sh OUT CONFIG[:FORMAT]...     each CONFIG a config.json; weights are random, and of a FORMAT of
#   bench/hollow_model.py: int4-g128, nvfp4, gguf-Q4_K, ... (plain)
# Where python3 has PyTorch and transformers, logits and tokens are compared with theirs as well, and
# the floor of PyTorch's libraries is measured.
# AC_BENCH_PARTS: what to do, of "decode prefill floor check" (all).
# AC_BENCH_DTYPE: what weights are in and products compute in (bfloat16).
# AC_BENCH_CHUNK, AC_BENCH_CONTEXT: tokens of a prefill step (2048) and of the package (24576).
# AC_BENCH_CONTEXTS, AC_BENCH_NEW: tokens that are cached when decode is timed
#   (128,2048,8192,20480), and that are made then (256).
# AC_BENCH_KV: how keys and values are stored (auto), or fp8.
# AC_BENCH_PACKAGES: a folder where packages are kept, and not made again if they are there.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,15s/^# //p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
program=$here/bin/agentcompile
out=$(realpath -m "$1")
shift
dtype=${AC_BENCH_DTYPE:-bfloat16}
parts=" ${AC_BENCH_PARTS:-decode prefill floor check} "
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages=$(realpath -m "${AC_BENCH_PACKAGES:-$work}")
mkdir -p "$packages"
peers=
python3 -c 'import torch, transformers' 2>/dev/null && peers=yes
failed=0
does() { [[ $parts == *" $1 "* ]]; }
for config in "$@"; do
  format=plain
  [[ $config != *.json:* ]] || format=${config##*:} config=${config%:*}
  name=$(basename "$config" .json)
  [ "$format" = plain ] || name+=-$format
  name+=${AC_BENCH_KV:+-kv-$AC_BENCH_KV}
  package=$packages/$name.package model=$work/$name weights=(--random-weights 1)
  # A package names its checkpoint: it must lie where it lay.
  if does check && [ -n "$peers" ] && [ "$format" = plain ]; then
    model=$packages/$name weights=()
    [ -e "$model" ] || python3 "$here/bench/compare_transformers.py" make "$config" "$model" \
      --dtype "$dtype" >&2 ||
      { failed=1; continue; }
  else
    [[ $format != gguf-* ]] || model+=.gguf
    python3 "$here/bench/hollow_model.py" "$config" "$format" "$model" || { failed=1; continue; }
  fi
  if [ ! -e "$package" ]; then
    "$program" compile "$model" -o "$package" --device cuda --dtype "$dtype" \
      --kv "${AC_BENCH_KV:-auto}" --chunk "${AC_BENCH_CHUNK:-2048}" --max-context "${AC_BENCH_CONTEXT:-24576}" >&2 ||
      { failed=1; continue; }
  fi
  cp "$package/plan.json" "$out.$name.plan.json"
  times=()
  does decode && times+=(--new "${AC_BENCH_NEW:-256}"
    --context "${AC_BENCH_CONTEXTS:-128,2048,8192,20480}")
  does prefill && times+=(--prompt 128,2048,8192,20480)
  if [ ${#times[@]} -gt 0 ]; then
    "$program" bench "$package" "${times[@]}" --kernels "${weights[@]}" --json \
      >>"$out" || failed=1
  fi
  if does floor && [ -n "$peers" ]; then
    python3 "$here/bench/library_floor.py" "$config" >>"$out" || failed=1
  fi
  if does check && [ -n "$peers" ] && [ "$format" = plain ]; then
    python3 "$here/bench/compare_transformers.py" check "$model" "$package" --program "$program" \
      >>"$out" || failed=1
  fi
done
exit $failed
