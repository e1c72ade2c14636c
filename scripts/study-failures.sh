#!/usr/bin/env bash
# Sessions with planted failures of docs/study/protocol.md: searches with proposals over two spaces, each in five orders.
#   study-failures.sh tables OUT      Makes OUT/tables/ARM-SPACE-order-K.jsonl, and OUT/sessions.txt: NUMBER ARM SPACE K
#   study-failures.sh chance OUT      What nobody is asked for: proposals by chance, tree and surrogate alone: OUT/free/
#   study-failures.sh prepare OUT     Both, and the first question of each session: OUT/play/NUMBER/question-01.txt
#   study-failures.sh play OUT NUMBER Goes on with a session: writes OUT/play/NUMBER/question-RR.txt and waits
#                                     (exit code 5) for answer-RR.txt there; after the last: OUT/recorded/NUMBER.jsonl,
#                                     and questions and answers in OUT/replies/NUMBER.jsonl
#   study-failures.sh replay OUT      All recordings: OUT/count.json, OUT/report-ARM of the program's own replay
# Arms: reasons, and withheld. Whoever answers is not told the arm: neither numbers nor the files of OUT/play say it.
# The program's questions tell the table's reasons: "failed" of all, if they are withheld. They allow requests to people.
# MODEL and DATE say who answers, and when.
source "$(dirname "$0")/study-common.sh"
python=${PYTHON:-python3}
gate=qwen3-1.7b-gate-up
limits=(--attempts 24 --calls 6 --proposals 4)

# table SPACE CONFIG RECORDING REGION ORDER
table() {
  local ordered=$out/tables/ordered.jsonl
  predicted "$2" "$3" "$4" "$5" "$ordered"
  "$python" scripts/study_failures.py plant "$1" "$ordered" "$out/tables/reasons-$1-order-$5.jsonl"
  "$python" scripts/study_failures.py plant "$1" "$ordered" "$out/tables/withheld-$1-order-$5.jsonl" --withheld
  rm "$ordered"
}

tables() {
  mkdir -p "$out/tables"
  for order in "${orders[@]}"; do
    table $qkv tests/data/configs/llama-3.2-1b.json 2026-11-21-study-h100-llama-3.2-1b \
      rms_norm+linear+linear+linear "$order"
    table $gate tests/data/configs/qwen3-1.7b.json 2026-11-21-study-h100-qwen3-1.7b \
      rms_norm+linear+silu+linear+mul "$order"
  done
  numbered 20261130 "$qkv $gate" reasons withheld
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

# The session, whose questions and replies are in the folder.
search() {
  "$program" study propose "$table" --advisor "ask:$asked" --sessions 1 --seed "$order" "${limits[@]}" --requests \
    --model "${MODEL:-Claude}" --date "${DATE:-$(date +%F)}" -q -o "$@"
}
ask() { cp "$1" "$2"; }

play() {
  local number=$1 arm space order
  read -r _ arm space order < <(grep "^$number " "$out/sessions.txt")
  table=$out/tables/$arm-$space-order-$order.jsonl
  asked=$out/asked/$number
  mkdir -p "$asked" "$out/play/$number" "$out/recorded" "$out/replies"
  played "$asked" "$out/play/$number" "$out/recorded/$number.jsonl" "$out/replies/$number.jsonl"
}

prepare() {
  local number
  tables
  chance
  while read -r number _; do
    scripts/study-failures.sh play "$out" "$number" || [[ $? == 5 ]]  # it waits for an answer
  done <"$out/sessions.txt"
}

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
  tables | chance | prepare | replay) $mode ;;
  play) play "$3" ;;
  *) echo "$mode: tables, chance, prepare, play or replay" >&2; exit 2 ;;
esac
