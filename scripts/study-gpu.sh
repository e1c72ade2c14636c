#!/usr/bin/env bash
# Records the study's tables on the GPU at hand: every candidate of each region of three models' decode
# steps, and of two layers that Reasoning Compiler was evaluated on, as far as this program expresses
# them; and schedules of one model's whole step.
#   study-gpu.sh OUT COMMIT [SECONDS]
# OUT/NAME.jsonl are the tables. What is there already is not recorded again; after SECONDS (default:
# no limit) no further table is begun, and the one under way is left as far as it came.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$here/bin/agentcompile
[ -x "$program" ] || program=$here/../build/release/agentcompile
[ -d "$here/bench/configs" ] || here=$here/..
configs=$here/bench/configs
[ -d "$configs" ] || configs=$here/tests/data/configs
out=$(realpath -m "$1") commit=$2 limit=${3:-1000000}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# record NAME CONFIG [OPTION...]
record() {
  local name=$1 config=$2
  shift 2
  local left=$((limit - SECONDS))
  [ "$left" -gt 0 ] || { echo "$name: no time left" >&2; failed=1; return; }
  mkdir -p "$work/$name"
  cp "$config" "$work/$name/config.json"
  (cd "$work" && timeout -s INT "$left" "$program" study record "$name" --device cuda --admit winners \
    --database none --commit "$commit" -o "$out/$name.jsonl" "$@" >&2) || failed=1
}

regions=(--cover --max-candidates 400)
record qwen3-1.7b-step "$configs/qwen3-1.7b.json" --space step --max-points 2048
record qwen3-1.7b "$configs/qwen3-1.7b.json" "${regions[@]}"
record llama-3.2-1b "$configs/llama-3.2-1b.json" "${regions[@]}"
record qwen3-4b "$configs/qwen3-4b.json" "${regions[@]}"
record llama-3-8b-attention "$here/bench/layers/llama-3-8b-attention.json" "${regions[@]}" \
  --regions attend
record llama-4-scout-mlp "$here/bench/layers/llama-4-scout-mlp.json" "${regions[@]}" --regions silu
exit $failed
