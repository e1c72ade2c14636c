#!/usr/bin/env bash
# Sessions of docs/study/protocol.md (2026-11-29): searches with proposals over two spaces, each in five orders.
#   study-sessions.sh tables OUT      Makes OUT/tables/SPACE-order-K.jsonl, and OUT/sessions.txt: NUMBER ARM SPACE K
#   study-sessions.sh chance OUT      Proposals by chance: OUT/recorded/chance.jsonl
#   study-sessions.sh play OUT NUMBER Goes on with a session: writes OUT/play/NUMBER/question-RR.txt and waits
#                                     (exit code 5) for answer-RR.txt there; after the last: OUT/recorded/NUMBER.jsonl
#   study-sessions.sh replay OUT      All recordings: OUT/report, and OUT/report-SPACE of one space
# Whoever answers is not told the arm: neither numbers nor the files of OUT/play say it, those of OUT/asked do.
# MODEL and DATE say who answers, and when.
source "$(dirname "$0")/study-common.sh"
last_o=qwen3-1.7b-last-o

tables() {
  mkdir -p "$out/tables"
  for order in "${orders[@]}"; do
    predicted tests/data/configs/llama-3.2-1b.json 2026-11-21-study-h100-llama-3.2-1b rms_norm+linear+linear+linear \
      "$order" "$out/tables/$qkv-order-$order.jsonl"
    predicted tests/data/configs/qwen3-1.7b.json 2026-11-28-study-h100-qwen3-1.7b-prefill-2048 \
      "offset 2048*T - 2048; in2" "$order" "$out/tables/$last_o-order-$order.jsonl"
  done
  numbered 20261129 "$qkv $last_o" true permuted none other
}

chance() {
  mkdir -p "$out/recorded"
  rm -f "$out/recorded/chance.jsonl"
  for order in "${orders[@]}"; do
    "$program" study propose "$out/tables/"*"-order-$order.jsonl" --by-chance --sessions 5 --seed "$order" -q \
      -o "$out/recorded/chance.jsonl"
  done
}

search() { "${command[@]}" -o "$@"; }
ask() { cp "$1" "$2"; }

play() {
  local number=$1 arm space order asked=$out/asked/$1
  read -r _ arm space order < <(grep "^$number " "$out/sessions.txt")
  mkdir -p "$asked" "$out/play/$number" "$out/recorded" "$out/replies"
  command=("$program" study propose "$out/tables/$space-order-$order.jsonl" --advisor "ask:$asked" --sessions 1
    --seed "$order" --feedback "$arm" --model "${MODEL:-Claude}" --date "${DATE:-$(date +%F)}" -q)
  local other=$last_o
  [[ $space == "$other" ]] && other=$qkv
  [[ $arm == other ]] && command+=(--other "$out/tables/$other-order-$order.jsonl")
  played "$asked" "$out/play/$number" "$out/recorded/$number.jsonl" "$out/replies/$number.jsonl"
}

replay() {
  local all=$out/proposed.jsonl
  cat "$out/recorded/"*.jsonl >"$all"
  "$program" study replay "$out/tables/"*.jsonl --proposed "$all" -o "$out/report"
  for space in $qkv $last_o; do
    # Sessions of the other space would be counted in what was asked.
    grep -F "$(signature "$space")" "$all" >"$out/proposed-$space.jsonl"
    "$program" study replay "$out/tables/$space"*.jsonl --proposed "$out/proposed-$space.jsonl" -o "$out/report-$space"
  done
}

# What the signatures of a space's orders begin with.
signature() { sed -n 's/.*"signature":"\(.*\), order 1",.*/\1/p' "$out/tables/$1-order-1.jsonl"; }

case $mode in
  tables | chance | replay) $mode ;;
  play) play "$3" ;;
  *) echo "$mode: tables, chance, play or replay" >&2; exit 2 ;;
esac
