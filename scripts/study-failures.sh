#!/usr/bin/env bash
# Sessions with planted failures of docs/study/protocol.md: searches with proposals over two spaces, each in five orders.
#   study-failures.sh tables OUT      Makes OUT/tables/ARM-SPACE-order-K.jsonl, and OUT/sessions.txt: NUMBER ARM SPACE K
#   study-failures.sh chance OUT      What nobody is asked for: proposals by chance, tree and surrogate alone: OUT/free/
#   study-failures.sh play OUT NUMBER Goes on with a session: writes OUT/play/NUMBER/question-RR.txt and waits
#                                     (exit code 5) for answer-RR.txt there; after the last: OUT/recorded/NUMBER.jsonl,
#                                     OUT/replies/NUMBER.jsonl, and what was read in OUT/questions/NUMBER.jsonl
#   study-failures.sh replay OUT      All recordings: OUT/count.json, OUT/report-ARM of the program's own replay
# Arms: reasons, and withheld. Whoever answers is not told the arm: neither numbers nor the files of OUT/play say it.
# The program's questions do not say why a plan failed. This script adds the table's reasons, "failed" if withheld.
# MODEL and DATE say who answers, and when.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${AGENTCOMPILE:-build/release/agentcompile}
python=${PYTHON:-python3}
mode=$1
out=$(realpath -m "$2")
qkv=llama-3.2-1b-qkv
gate=qwen3-1.7b-gate-up
orders=(1 2 3 4 5)
limits=(--attempts 24 --calls 6 --proposals 4)

# table SPACE CONFIG RECORDING REGION ORDER
table() {
  local work
  work=$(mktemp -d)
  cp "$2" "$work/config.json"
  "$program" study predict "$work" "bench/results/$3.jsonl.gz" -o "$work/table.jsonl" --regions "$4" --shuffle "$5" >&2
  # Five orders of a space are five tables to search, of one kind: signatures tell them apart.
  sed "s/; unfitted constants\",\"description\"/; unfitted constants, order $5\",\"description\"/" \
    "$work/table.jsonl" >"$work/ordered.jsonl"
  [[ $(grep -c '"signature"' "$work/ordered.jsonl") == 1 && $(grep -c ", order $5\"," "$work/ordered.jsonl") == 1 ]] ||
    { echo "$1: not one region" >&2; exit 1; }
  "$python" scripts/study_failures.py plant "$1" "$work/ordered.jsonl" "$out/tables/reasons-$1-order-$5.jsonl"
  "$python" scripts/study_failures.py plant "$1" "$work/ordered.jsonl" "$out/tables/withheld-$1-order-$5.jsonl" --withheld
  rm -r "$work"
}

tables() {
  mkdir -p "$out/tables"
  for order in "${orders[@]}"; do
    table $qkv tests/data/configs/llama-3.2-1b.json 2026-11-21-study-h100-llama-3.2-1b \
      rms_norm+linear+linear+linear "$order"
    table $gate tests/data/configs/qwen3-1.7b.json 2026-11-21-study-h100-qwen3-1.7b \
      rms_norm+linear+silu+linear+mul "$order"
  done
  for arm in reasons withheld; do
    for space in $qkv $gate; do
      for order in "${orders[@]}"; do echo "$arm $space $order"; done
    done
  done | shuf --random-source=<(yes 20261130) | awk '{printf "%02d %s\n", NR, $0}' >"$out/sessions.txt"
}

chance() {
  mkdir -p "$out/free"
  rm -f "$out/free/"*.jsonl
  for order in "${orders[@]}"; do
    "$program" study propose "$out/tables/reasons-"*"-order-$order.jsonl" --by-chance --sessions 5 --seed "$order" \
      "${limits[@]}" -q -o "$out/free/chance.jsonl"
    # Without calls, a search is that of the strategy alone.
    for strategy in tree surrogate; do
      "$program" study propose "$out/tables/reasons-"*"-order-$order.jsonl" --by-chance --sessions 5 --seed "$order" \
        --attempts 24 --calls 0 --search $strategy -q -o "$out/free/$strategy.jsonl"
    done
  done
}

# search FOLDER OUTPUT [OPTIONS]: the session, whose questions and replies are in the folder.
search() {
  "$program" study propose "$table" --advisor "ask:$1" --sessions 1 --seed "$order" "${limits[@]}" \
    --model "${MODEL:-Claude}" --date "${DATE:-$(date +%F)}" -q -o "$2" "${@:3}"
}

# told PROMPT QUESTION: the program's question, with what was said of each failure. What was tried before it is what the
# same search tries first when this question and all after it get no proposal.
told() {
  local trial after status=5 file
  after=$(sed 's/.*-after-\([0-9]*\)-.*/\1/' <<<"${1##*/}")
  trial=$(mktemp -d)
  cp "$asked/"*.prompt.txt "$trial"
  cp "$asked/"*.reply.txt "$trial" 2>/dev/null || true
  while [[ $status == 5 ]]; do
    for file in "$trial"/*.prompt.txt; do
      [[ -e ${file%.prompt.txt}.reply.txt ]] || echo "Nothing." >"${file%.prompt.txt}.reply.txt"
    done
    status=0
    search "$trial" "$trial/search.jsonl" >"$trial/printed.txt" 2>&1 || status=$?
  done
  [[ $status == 0 ]] || { cat "$trial/printed.txt" >&2; exit "$status"; }
  "$python" scripts/study_failures.py tell "$table" "$trial/search.jsonl" "$after" "$1" >"$trial/question.txt"
  mv "$trial/question.txt" "$2"
  rm -r "$trial"
}

play() {
  local number=$1 arm space prompt reply round status=0
  read -r _ arm space order < <(grep "^$number " "$out/sessions.txt")
  table=$out/tables/$arm-$space-order-$order.jsonl
  asked=$out/asked/$number
  local played=$out/play/$number recorded=$out/recorded/$number.jsonl
  mkdir -p "$asked" "$played" "$out/recorded" "$out/replies" "$out/questions"

  for prompt in "$asked"/*.prompt.txt; do
    [[ -e $prompt ]] || continue
    reply=${prompt%.prompt.txt}.reply.txt
    round=$(round_of "$prompt")
    if [[ ! -e $reply && -s $played/answer-$round.txt ]]; then cp "$played/answer-$round.txt" "$reply"; fi
  done
  if [[ ! -e $recorded ]]; then
    rm -f "$asked/search.jsonl"
    search "$asked" "$asked/search.jsonl" >"$asked/printed.txt" 2>&1 || status=$?
    if [[ $status == 5 ]]; then
      for prompt in "$asked"/*.prompt.txt; do
        [[ -e ${prompt%.prompt.txt}.reply.txt ]] && continue
        round=$(round_of "$prompt")
        [[ -e $played/question-$round.txt ]] || told "$prompt" "$played/question-$round.txt"
        echo "read $played/question-$round.txt, write $played/answer-$round.txt, run this again"
      done
      exit 5
    fi
    [[ $status == 0 ]] || { cat "$asked/printed.txt" >&2; exit "$status"; }
    rm -f "$out/replies/$number.jsonl"
    search "$asked" "$asked/again.jsonl" --advisor-record "$out/replies/$number.jsonl" >/dev/null
    rm "$asked/again.jsonl"
    "$python" scripts/study_failures.py keep "$number" "$played" >"$out/questions/$number.jsonl"
    mv "$asked/search.jsonl" "$recorded"
  fi
  # How good it was is not for those who decide which sessions count.
  echo "finished:$(sed -n '1s/^[^:]*:\(.*\), best.*/\1/p' "$asked/printed.txt")"
}

# x-round-03-after-9-25fb0faeb4e0.prompt.txt: 03.
round_of() { sed 's/.*-round-\([0-9]*\)-after-.*/\1/' <<<"${1##*/}"; }

replay() {
  local number arm file given=()
  for file in "$out/tables/reasons-"*.jsonl; do
    number=${file##*/reasons-}
    given+=("${number%.jsonl}=$file")
  done
  given+=(--)
  for file in chance tree surrogate; do given+=("$file=$out/free/$file.jsonl"); done
  for arm in reasons withheld; do
    cat "$out/free/chance.jsonl" >"$out/proposed-$arm.jsonl"
    while read -r number _; do
      [[ -e $out/recorded/$number.jsonl ]] || continue
      given+=("$arm=$out/recorded/$number.jsonl")
      cat "$out/recorded/$number.jsonl" >>"$out/proposed-$arm.jsonl"
    done < <(grep " $arm " "$out/sessions.txt")
    "$program" study replay "$out/tables/$arm-"*.jsonl --proposed "$out/proposed-$arm.jsonl" --attempts 24 \
      --strategies random,surrogate,tree -o "$out/report-$arm"
  done
  "$python" scripts/study_failures.py count "${given[@]}" >"$out/count.json"
}

case $mode in
  tables | chance | replay) $mode ;;
  play) play "$3" ;;
  *) echo "$mode: tables, chance, play or replay" >&2; exit 2 ;;
esac
