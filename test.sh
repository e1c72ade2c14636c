#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that needs no GPU. Takes 25 to 40 minutes on two cores
# from a clean checkout, two fifths of it builds. AC_TEST_QUICK=1 leaves out sanitizers and fuzzers.
set -euo pipefail
cd "$(dirname "$0")"
passed=0
failed=0
started=$SECONDS

# Runs one part, and goes on after a failure so that one run shows them all.
part() {
  local name=$1
  shift
  local at=$SECONDS
  echo "=== $name"
  if "$@"; then
    passed=$((passed + 1))
    echo "--- $name: ok ($((SECONDS - at)) s)"
  else
    failed=$((failed + 1))
    echo "--- $name: FAILED ($((SECONDS - at)) s)"
  fi
}

# One fuzzer for so many seconds, from its seeds. If it fails, prints its report's end and its input.
fuzz_one() {
  local seconds=$1 target=$2 folder seeds name=${2##*/fuzz_}
  folder=$(mktemp -d)
  mkdir "$folder/corpus"
  seeds=tests/fuzz/corpus/$name
  if "$target" -max_total_time="$seconds" -rss_limit_mb=4096 -verbosity=0 -artifact_prefix="$folder/" \
    "$folder/corpus" $([ -d "$seeds" ] && echo "$seeds") >"$folder/log" 2>&1; then
    echo "$name: ok"
  else
    echo "$name: FAILED"
    grep -v NEW_FUNC "$folder/log" | tail -n 60 | cut -c1-300
    find "$folder" -maxdepth 1 -type f ! -name log -exec sh -c 'echo "input in base64:"; base64 "$1"' sh {} \;
    rm -rf "$folder"
    return 1
  fi
  rm -rf "$folder"
}
export -f fuzz_one

# All of them, two side by side.
fuzz() {
  find build/fuzz -maxdepth 1 -name 'fuzz_*' -type f -executable -print0 |
    xargs -0 -P 2 -I {} bash -c 'fuzz_one "$@"' fuzz_one "$1" {}
}

formatted() {
  git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs .venv/bin/clang-format --dry-run --Werror
}

mkdir -p build
scripts/setup.sh
part "format" formatted
if [ -n "${AC_TEST_QUICK:-}" ]; then
  part "build" scripts/build.sh release
  part "unit tests" ctest --test-dir build/release --output-on-failure -j 2 -R '^unit_'
else
  # The unit tests are built once, with the sanitizers.
  part "build" scripts/build.sh release agentcompile agentcompile_library grammar_tool package_tool template_tool \
    race_tests fault_tests gpu_tests mutants
  part "sanitizer build" scripts/build.sh sanitize
  part "unit tests" ctest --test-dir build/sanitize --output-on-failure -j 2 -R '^unit_'
fi
part "kernel tests" ctest --test-dir build/release --output-on-failure -j 2 -E '^unit_'
# Neighbours share what their file makes once, so each process takes whole runs of tests. One more
# than cores, as some wait for what they have started.
part "python tests" .venv/bin/python -m pytest -q --durations=40 -n $(($(nproc) + 1)) --dist worksteal tests/python
if [ -z "${AC_TEST_QUICK:-}" ]; then
  part "fuzzer build" scripts/build.sh fuzz
  part "fuzzers" fuzz 3
fi
echo "took $((SECONDS - started)) s"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
