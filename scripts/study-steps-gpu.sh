#!/usr/bin/env bash
# Records one table of the study of proposals (docs/study/protocol.md) on the GPU at hand: schedules of
# a model's whole step, or the regions of its prompts. The same command again goes on with it.
#   study-steps-gpu.sh OUT COMMIT step MODEL [SECONDS]
#   study-steps-gpu.sh OUT COMMIT prefill MODEL TOKENS [SECONDS]
# MODEL is the name of a file in bench/configs: weights are random. SECONDS (default 480) bound one call;
# what the table has then is whole. POINTS (4000) schedules are drawn, and as many guided; with ADMIT=winners
# the fastest alone are judged. OUT/MODEL-step.jsonl or OUT/MODEL-prefill-TOKENS.jsonl is the table.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$here/bin/agentcompile
[ -x "$program" ] || program=$here/../build/release/agentcompile
configs=$here/bench/configs
[ -d "$configs" ] || configs=$here/../tests/data/configs
out=$(realpath -m "$1") commit=$2 kind=$3 model=$4
shift 4
case $kind in
  step) name=$model-step what=(--space step --plans 12 --random "${POINTS:-4000}" --guided "${POINTS:-4000}" --rounds 3) ;;
  prefill)
    name=$model-prefill-$1 what=(--space region --tokens "$1" --context 0 --cover --max-candidates 400)
    shift
    ;;
  *) echo "study-steps-gpu.sh: $kind is neither step nor prefill" >&2; exit 2 ;;
esac
seconds=${1:-480}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/$model"
cp "$configs/$model.json" "$work/$model/config.json"
cd "$work"
if [ "$kind" = step ]; then
  what+=(--stop-after "$((seconds > 60 ? seconds - 40 : seconds))" --admit "${ADMIT:-all}")
else
  what+=(--admit winners)
fi
timeout -s INT "$seconds" "$program" study record "$model" --device cuda --database none \
  --commit "$commit" -o "$out/$name.jsonl" "${what[@]}"
