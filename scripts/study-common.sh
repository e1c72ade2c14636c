# What study-sessions.sh and study-failures.sh have in common; both source it with MODE OUT as arguments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=${AGENTCOMPILE:-build/release/agentcompile}
mode=$1
out=$(realpath -m "$2")
qkv=llama-3.2-1b-qkv
orders=(1 2 3 4 5)

# predicted CONFIG RECORDING REGION ORDER FILE: a table of the region's recorded plans, with predictions of unfitted constants.
predicted() {
  local work
  work=$(mktemp -d)
  cp "$1" "$work/config.json"
  "$program" study predict "$work" "bench/results/$2.jsonl.gz" -o "$work/table.jsonl" --regions "$3" --shuffle "$4" >&2
  # Five orders of a space are five tables to search, of one kind: signatures tell them apart.
  sed "s/; unfitted constants\",\"description\"/; unfitted constants, order $4\",\"description\"/" \
    "$work/table.jsonl" >"$5"
  rm -r "$work"
  [[ $(grep -c '"signature"' "$5") == 1 && $(grep -c ", order $4\"," "$5") == 1 ]] ||
    { echo "$5: not one region" >&2; exit 1; }
}

# numbered SEED SPACES ARM...: OUT/sessions.txt, one session of each arm, space and order.
numbered() {
  local arm space order
  for arm in "${@:3}"; do
    for space in $2; do
      for order in "${orders[@]}"; do echo "$arm $space $order"; done
    done
  done | shuf --random-source=<(yes "$1") | awk '{printf "%02d %s\n", NR, $0}' >"$out/sessions.txt"
}

# x-round-03-after-9-25fb0faeb4e0.prompt.txt: 03.
round_of() { sed 's/.*-round-\([0-9]*\)-after-.*/\1/' <<<"${1##*/}"; }

# played ASKED PLAYED RECORDED RECORD: goes on with a session until a question waits, which ends the script with exit code 5, or
# until the search is over. `search OUTPUT [OPTIONS]` is the search, `ask PROMPT QUESTION` writes what is read, and RECORD gets
# the replies.
played() {
  local prompt reply round status=0
  for prompt in "$1"/*.prompt.txt; do
    [[ -e $prompt ]] || continue
    reply=${prompt%.prompt.txt}.reply.txt
    round=$(round_of "$prompt")
    if [[ ! -e $reply && -s $2/answer-$round.txt ]]; then cp "$2/answer-$round.txt" "$reply"; fi
  done
  if [[ ! -e $3 ]]; then
    rm -f "$1/search.jsonl"
    search "$1/search.jsonl" >"$1/printed.txt" 2>&1 || status=$?
    if [[ $status == 5 ]]; then
      for prompt in "$1"/*.prompt.txt; do
        [[ -e ${prompt%.prompt.txt}.reply.txt ]] && continue
        round=$(round_of "$prompt")
        [[ -e $2/question-$round.txt ]] || ask "$prompt" "$2/question-$round.txt"
        echo "read $2/question-$round.txt, write $2/answer-$round.txt, run this again"
      done
      exit 5
    fi
    [[ $status == 0 ]] || { cat "$1/printed.txt" >&2; exit "$status"; }
    rm -f "$4"
    search "$1/again.jsonl" --advisor-record "$4" >/dev/null
    rm "$1/again.jsonl"
    mv "$1/search.jsonl" "$3"
  fi
  # How good it was is not for those who decide which sessions count.
  echo "finished:$(sed -n '1s/^[^:]*:\(.*\), best.*/\1/p' "$1/printed.txt")"
}
