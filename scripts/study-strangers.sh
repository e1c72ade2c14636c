#!/usr/bin/env bash
# Predicts the plans of all recorded regions again, without constants that were fitted, and replays searches over
# them: OUT/NAME.jsonl, OUT/NAME/report.md and OUT/NAME.json.
#   study-strangers.sh OUT [OPTION OF PREDICT...]
set -euo pipefail
cd "$(dirname "$0")/.."
program=${AGENTCOMPILE:-build/release/agentcompile}
out=$(realpath -m "$1")
shift
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# stranger NAME CONFIG TABLE [OPTION OF PREDICT...]
stranger() {
  local name=$1 config=$2 table=$3
  shift 3
  mkdir -p "$work/$name"
  cp "$config" "$work/$name/config.json"
  "$program" study predict "$work/$name" "bench/results/$table.jsonl.gz" -o "$out/$name.jsonl" "$@"
  "$program" study replay "$out/$name.jsonl" -o "$out/$name" --repetitions 20 --resamples 200 --json >"$out/$name.json"
}

for model in qwen3-1.7b llama-3.2-1b qwen3-4b; do
  stranger $model tests/data/configs/$model.json 2026-11-21-study-h100-$model "$@"
done
for layer in llama-3-8b-attention llama-4-scout-mlp; do
  stranger $layer bench/layers/$layer.json 2026-11-21-study-h100-$layer "$@"
done
for tokens in 128 2048 8192; do
  stranger qwen3-1.7b-prefill-$tokens tests/data/configs/qwen3-1.7b.json \
    2026-11-28-study-h100-qwen3-1.7b-prefill-$tokens "$@"
done
