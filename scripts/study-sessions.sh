#!/usr/bin/env bash
# Sessions of docs/study/protocol.md (2026-11-29): searches with proposals over two spaces, each in five orders.
#   study-sessions.sh tables OUT      Makes OUT/tables/SPACE-order-K.jsonl, and OUT/sessions.txt: NUMBER ARM SPACE K
#   study-sessions.sh chance OUT      Proposals by chance: OUT/recorded/chance.jsonl
#   study-sessions.sh play OUT NUMBER Goes on with a session: writes OUT/play/NUMBER/question-RR.txt and waits
#                                     (exit code 5) for answer-RR.txt there; after the last: OUT/recorded/NUMBER.jsonl
#   study-sessions.sh replay OUT      All recordings: OUT/report, and OUT/report-SPACE of one space
# Whoever answers is not told the arm: neither numbers nor the files of OUT/play say it, those of OUT/asked do.
# MODEL and DATE say who answers, and when.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${AGENTCOMPILE:-build/release/agentcompile}
mode=$1
out=$(realpath -m "$2")
qkv=llama-3.2-1b-qkv
last_o=qwen3-1.7b-last-o
orders=(1 2 3 4 5)

# table SPACE CONFIG RECORDING REGION ORDER
table() {
  local file=$out/tables/$1-order-$5.jsonl work
  work=$(mktemp -d)
  cp "$2" "$work/config.json"
  "$program" study predict "$work" "bench/results/$3.jsonl.gz" -o "$work/table.jsonl" --regions "$4" --shuffle "$5" >&2
  # Five orders of a space are five tables to search, of one kind: signatures tell them apart.
  sed "s/; unfitted constants\",\"description\"/; unfitted constants, order $5\",\"description\"/" \
    "$work/table.jsonl" >"$file"
  rm -r "$work"
  [[ $(grep -c '"signature"' "$file") == 1 && $(grep -c ", order $5\"," "$file") == 1 ]] ||
    { echo "$file: not one region" >&2; exit 1; }
}

tables() {
  mkdir -p "$out/tables"
  for order in "${orders[@]}"; do
    table $qkv tests/data/configs/llama-3.2-1b.json 2026-11-21-study-h100-llama-3.2-1b \
      rms_norm+linear+linear+linear "$order"
    table $last_o tests/data/configs/qwen3-1.7b.json 2026-11-28-study-h100-qwen3-1.7b-prefill-2048 \
      "offset 2048*T - 2048; in2" "$order"
  done
  for arm in true permuted none other; do
    for space in $qkv $last_o; do
      for order in "${orders[@]}"; do echo "$arm $space $order"; done
    done
  done | shuf --random-source=<(yes 20261129) | awk '{printf "%02d %s\n", NR, $0}' >"$out/sessions.txt"
}

chance() {
  mkdir -p "$out/recorded"
  rm -f "$out/recorded/chance.jsonl"
  for order in "${orders[@]}"; do
    "$program" study propose "$out/tables/"*"-order-$order.jsonl" --by-chance --sessions 5 --seed "$order" -q \
      -o "$out/recorded/chance.jsonl"
  done
}

play() {
  local number=$1 arm space order asked=$out/asked/$1 played=$out/play/$1 recorded=$out/recorded/$1.jsonl
  read -r _ arm space order < <(grep "^$number " "$out/sessions.txt")
  mkdir -p "$asked" "$played" "$out/recorded" "$out/replies"
  local command=("$program" study propose "$out/tables/$space-order-$order.jsonl" --advisor "ask:$asked" --sessions 1
    --seed "$order" --feedback "$arm" --model "${MODEL:-Claude}" --date "${DATE:-$(date +%F)}" -q)
  local other=$last_o
  [[ $space == "$other" ]] && other=$qkv
  [[ $arm == other ]] && command+=(--other "$out/tables/$other-order-$order.jsonl")

  local prompt reply round status=0
  for prompt in "$asked"/*.prompt.txt; do
    [[ -e $prompt ]] || continue
    reply=${prompt%.prompt.txt}.reply.txt
    round=$(round_of "$prompt")
    if [[ ! -e $reply && -s $played/answer-$round.txt ]]; then cp "$played/answer-$round.txt" "$reply"; fi
  done
  if [[ ! -e $recorded ]]; then
    rm -f "$asked/search.jsonl"
    "${command[@]}" -o "$asked/search.jsonl" >"$asked/printed.txt" 2>&1 || status=$?
    if [[ $status == 5 ]]; then
      for prompt in "$asked"/*.prompt.txt; do
        [[ -e ${prompt%.prompt.txt}.reply.txt ]] && continue
        round=$(round_of "$prompt")
        cp "$prompt" "$played/question-$round.txt"
        echo "read $played/question-$round.txt, write $played/answer-$round.txt, run this again"
      done
      exit 5
    fi
    [[ $status == 0 ]] || { cat "$asked/printed.txt" >&2; exit "$status"; }
    rm -f "$out/replies/$number.jsonl"
    "${command[@]}" --advisor-record "$out/replies/$number.jsonl" -o "$asked/again.jsonl" >/dev/null
    rm "$asked/again.jsonl"
    mv "$asked/search.jsonl" "$recorded"
  fi
  # How good it was is not for those who decide which sessions count.
  echo "finished:$(sed -n '1s/^[^:]*:\(.*\), best.*/\1/p' "$asked/printed.txt")"
}

# x-round-03-after-9-25fb0faeb4e0.prompt.txt: 03.
round_of() { sed 's/.*-round-\([0-9]*\)-after-.*/\1/' <<<"${1##*/}"; }

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
