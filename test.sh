#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that needs no GPU. AC_TEST_LONG=1 runs the unit tests
# and fuzzers with sanitizers, too, libFuzzer by Clang for a minute a target, and rarer variants of tests.
# Takes 38 minutes on two cores where the compiler's cache has the build: 23 of them the Python tests, 7 the kernel
# tests, 5 the unit tests. An empty cache adds about 9. The aim is 25 minutes from a clean checkout.
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

formatted() {
  git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs .venv/bin/clang-format --dry-run --Werror
}

mkdir -p build
scripts/setup.sh
part "format" formatted
part "build" scripts/build.sh release
part "unit tests" ctest --test-dir build/release --output-on-failure -j 2 -R '^unit_'
part "fuzzers" ctest --test-dir build/release --output-on-failure -j 2 -R '^fuzz_'
part "kernel tests" ctest --test-dir build/release --output-on-failure -j 2 -E '^(unit|fuzz)_'
# Neighbours share what their file makes once, so each process takes whole runs of tests. One more
# than cores, as some wait for what they have started.
part "python tests" .venv/bin/python -m pytest -q --durations=40 -n $(($(nproc) + 1)) --dist worksteal tests/python
if [ -n "${AC_TEST_LONG:-}" ]; then
  part "sanitizer build" scripts/build.sh sanitize
  part "sanitized unit tests" ctest --test-dir build/sanitize --output-on-failure -j 2 -R '^unit_'
  part "sanitized fuzzers" ctest --test-dir build/sanitize --output-on-failure -j 2 -R '^fuzz_'
  part "libFuzzer build" scripts/build.sh fuzz
  part "libFuzzer" ctest --test-dir build/fuzz --output-on-failure -j 2 -R '^fuzz_'
fi
echo "took $((SECONDS - started)) s"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
