#!/usr/bin/env bash
# Builds into build/KIND: release, sanitize (AddressSanitizer + UBSan; unit tests, and fuzzers with a driver of our
# own) or fuzz (fuzzers with libFuzzer, by Clang).
#   scripts/build.sh KIND [TARGET...]
# The files of a library are compiled as one, which takes less time from clean. A developer's own
# `cmake -S . -B build/dev -G Ninja` compiles each by itself, and so finds a missing include.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
kind=$1
shift
options=(-DAC_WERROR=${CI:+ON} -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=0)
case $kind in
  release) ;;
  sanitize)
    scripts/build.sh release xgrammar
    options+=(-DAC_SANITIZE=ON -DCMAKE_BUILD_TYPE=Debug)
    [ $# -gt 0 ] || set -- unit_tests fuzzers
    ;;
  fuzz)
    # Debug: three fifths of the time to compile, for as many runs or two thirds of them.
    compiler=$(scripts/clang.sh)
    scripts/build.sh release xgrammar analyze device generate families plan
    options+=(-DAC_FUZZ=ON "-DCMAKE_CXX_COMPILER=$compiler" -DCMAKE_BUILD_TYPE=Debug)
    set -- fuzzers
    ;;
  *) echo "build.sh: unknown kind $kind" >&2; exit 2 ;;
esac
cmake -S . -B "build/$kind" -G Ninja "${options[@]}" >"build/$kind.cmake.log" 2>&1 || {
  cat "build/$kind.cmake.log" >&2
  exit 1
}
ninja -C "build/$kind" "$@"
