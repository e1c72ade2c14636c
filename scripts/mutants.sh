#!/usr/bin/env bash
# How many small mistakes in the kernels the admission gate finds; tests/mutants/README.md.
#   scripts/mutants.sh check [OPTION...]     a small sample, whose survivors must be known ones (test.sh)
#   scripts/mutants.sh run OUT [OPTION...]   all mutants; goes on where OUT, a file of JSON lines, ends
#   scripts/mutants.sh report OUT            what the results in OUT say, as Markdown
# OPTION is of build/release/mutants: --jobs N, --sample N, --seed S, --family F, --shard I --shards N,
# --seconds N. In a bundle (bundle.sh) this is OUT/mutants.sh: no compiler but g++ is needed there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -x "$here/bin/mutants" ]; then
  program=$here/bin/mutants
  kernels=$here/share/agentcompile
  lists=$here/share/mutants
else
  cd "$here/.."
  [ -x build/release/mutants ] || scripts/build.sh release mutants
  program=build/release/mutants
  kernels=.
  lists=tests/mutants
fi
common=(--kernels "$kernels" --equivalent "$lists/equivalent.txt" --known "$lists/survivors.txt")
mode=${1:-check}
shift || true
case $mode in
  check)
    exec "$program" "${common[@]}" --check --sample 18 --seed 1 --per-family 2 --jobs 2 "$@"
    ;;
  run)
    out=$1
    shift
    exec "$program" "${common[@]}" --out "$out" --work "${TMPDIR:-/tmp}/mutants-$(id -u)" \
      --jobs "$(nproc)" "$@"
    ;;
  report) exec "$program" "${common[@]}" --report "$1" ;;
  *)
    echo "mutants.sh: unknown mode $mode" >&2
    exit 2
    ;;
esac
