#!/usr/bin/env bash
# Prints the newest clang++ here that is 16 or later: the kernels' shim needs std::source_location.
for compiler in clang++-{21,20,19,18,17,16} clang++; do
  command -v "$compiler" >/dev/null || continue
  version=$("$compiler" -dumpversion)
  if [ "${version%%.*}" -ge 16 ]; then
    echo "$compiler"
    exit 0
  fi
done
echo "clang.sh: there is no clang 16 or later; AC_TEST_LONG=1 scripts/setup.sh installs one" >&2
exit 1
