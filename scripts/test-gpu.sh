#!/usr/bin/env bash
# Runs the GPU tests of a bundle (bundle.sh) on this machine: devices and what they reach, the tests, and
# the tests again, on little data, under compute-sanitizer where it is installed. AC_TEST_QUICK=1 leaves
# that out.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
failed=0

part() {
  local name=$1 at=$SECONDS
  shift
  echo "=== $name"
  if "$@"; then
    echo "--- $name: ok ($((SECONDS - at)) s)"
  else
    echo "--- $name: FAILED ($((SECONDS - at)) s)"
    failed=1
  fi
}

part "devices" "$here/bin/agentcompile" devices --measure
part "GPU tests" "$here/bin/gpu_tests"
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -z "${AC_TEST_QUICK:-}" ] && [ -n "$sanitizer" ]; then
  # Calls that shall fail, the process that shall be lost, and times are not for it.
  for tool in memcheck racecheck initcheck synccheck; do
    part "$tool" "$sanitizer" --tool "$tool" --target-processes application-only \
      --report-api-errors no --error-exitcode 9 "$here/bin/gpu_tests" --small \
      --test-case-exclude='an illegal*' --subcase-exclude='time*'
  done
fi
exit $failed
