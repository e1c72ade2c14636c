#!/usr/bin/env bash
# A live session of docs/study/protocol.md: one package, made faster on the GPU at hand by three searches over the
# schedules of its whole step: `surrogate` alone, `tree` alone, and `tree` with proposals.
#   study-live.sh FOLDER COMMIT
# goes as far as replies let it. Where one is missing it ends with exit code 5: answer FOLDER/asked/NAME.prompt.txt in
# NAME.reply.txt, and run the same command again, on this machine or on one that has the same kind of GPU, this program
# and FOLDER. What was compiled, timed and answered is in FOLDER, and is not done again. In the end FOLDER/results.jsonl
# has all, with the times of a step before and after, and FOLDER/replies.jsonl has what was asked and answered.
# MODEL is the name of a file in bench/configs (qwen3-4b): weights are random. BUDGET attempts (36), PROPOSALS of a
# call (10), PLANS of a part (12), after CONTEXT tokens (1024). WHO and DATE say of replies who gave them, and when.
# DEVICE (cuda), ROOM (4096 tokens), CONTEXTS (128,2048) and NEW (128) of the measurements.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=${AGENTCOMPILE:-$here/bin/agentcompile}
[ -x "$program" ] || program=$here/../build/release/agentcompile
configs=${CONFIGS:-$here/bench/configs}
[ -d "$configs" ] || configs=$here/../tests/data/configs
[ $# = 2 ] || { sed -n '2,13s/^# //p' "$0" >&2; exit 2; }
out=$(realpath -m "$1") commit=$2 model=${MODEL:-qwen3-4b}
mkdir -p "$out/$model"
cd "$out"
cp "$configs/$model.json" "$model/config.json"

# timed WHAT COMMAND...: its seconds and its exit status become a line of calls.jsonl.
timed() {
  local what=$1 began=$SECONDS status=0
  shift
  "$@" || status=$?
  printf '{"what":"call","of":"%s","status":%d,"seconds":%d,"commit":"%s","date":"%s"}\n' "$what" $status \
    $((SECONDS - began)) "$commit" "$(date -u +%FT%TZ)" >>calls.jsonl
  return $status
}

# tuned ARM STRATEGY [OPTION...]: the arm searches, from a copy of the compiled package. The arms share a database, so a
# schedule that two of them try is timed once.
tuned() {
  local arm=$1 strategy=$2
  shift 2
  [ ! -e "$arm.json" ] || return 0
  rm -rf "$arm"
  cp -r package "$arm"
  XDG_CACHE_HOME=$out/cache timed "$arm" "$program" tune "$arm" "$model" --space step --search "$strategy" --seed 1 \
    --budget "${BUDGET:-36}" --plans "${PLANS:-12}" --context "${CONTEXT:-1024}" --db tuning.sqlite --json "$@" >"$arm.new" ||
    return
  mv "$arm.new" "$arm.json"
}

# benched ARM...: times the package of each arm. Where a search changed nothing, that is the package that was compiled: it is
# timed as `package` alone.
benched() {
  local arm
  for arm in "$@"; do
    [ "$arm" = package ] || ! cmp -s package/plan.json "$arm/plan.json" || continue
    timed "bench $arm" "$program" bench "$arm" --context "${CONTEXTS:-128,2048}" --new "${NEW:-128}" --random-weights 1 \
      --json | sed "s/^{/{\"arm\":\"$arm\",/" >>bench.new
  done
}

if [ ! -e package ]; then
  rm -rf compiling
  timed compile "$program" compile "$model" -o compiling --device "${DEVICE:-cuda}" --dtype bfloat16 --chunk "${CHUNK:-128}" \
    --short-prompt 0 --max-context "${ROOM:-4096}" --database none --no-tuned >&2
  mv compiling package
fi
tuned surrogate surrogate
tuned tree tree
rm -f replies.jsonl
tuned proposals tree --proposals "${PROPOSALS:-10}" --advisor ask:asked --advisor-record replies.jsonl
if [ ! -e bench.jsonl ]; then
  rm -f bench.new
  benched package surrogate tree proposals
  benched proposals tree surrogate package
  mv bench.new bench.jsonl
fi
{
  printf '{"what":"live session","commit":"%s","model":"%s","who":"%s","date":"%s"}\n' "$commit" "$model" "${WHO:-}" "${DATE:-}"
  cat calls.jsonl
  for arm in surrogate tree proposals; do sed "s/^{/{\"what\":\"tune\",\"arm\":\"$arm\",/" "$arm.json"; done
  cat bench.jsonl
} >results.new
mv results.new results.jsonl
echo "$out/results.jsonl"
