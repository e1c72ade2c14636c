#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks: Debian or Ubuntu packages (as root
# or through sudo), the sources of XGrammar, and a local Python environment in .venv for the capture and
# its tests.
#   scripts/setup.sh [build|all]     build: no Python environment
# AC_TEST_LONG=1 adds a Clang for libFuzzer.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}

packages=(g++ cmake ninja-build ccache libfmt-dev nlohmann-json3-dev libcli11-dev
          libcurl4-openssl-dev libssl-dev libboost-dev libboost-context-dev libsqlite3-dev doctest-dev
          libpcre2-dev libutf8proc-dev libsimdjson-dev libxxhash-dev libedit-dev pkg-config curl)
if [ "$what" = all ]; then
  packages+=(python3 python3-venv python3-dev
             groff-base fish zsh)  # which try out man pages and completions
fi
missing=()
for package in "${packages[@]}"; do
  # A compiler or interpreter that came another way is as good.
  case $package in
    g++ | cmake | ccache | python3 | pkg-config | curl) command -v "$package" >/dev/null && continue ;;
    ninja-build) command -v ninja >/dev/null && continue ;;
    python3-venv) python3 -c 'import venv, ensurepip' 2>/dev/null && continue ;;
    python3-dev) [ -f "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] && continue ;;
  esac
  dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
install() {
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
      echo "setup: install these packages as root, then try again: $*" >&2
      return 1
    }
    as_root=(sudo)
  fi
  echo "setup: installing $*"
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq "$@" >/dev/null
}
if [ ${#missing[@]} -gt 0 ]; then install "${missing[@]}"; fi
scripts/xgrammar.sh >/dev/null
if [ "$what" = all ]; then scripts/json_schema_suite.sh >/dev/null; fi
# The newest clang that the distribution has, if it is new enough.
if [ -n "${AC_TEST_LONG:-}" ] && ! scripts/clang.sh >/dev/null 2>&1; then
  for version in 21 20 19 18 17 16; do
    apt-cache show "clang-$version" >/dev/null 2>&1 || continue
    install "clang-$version" "libclang-rt-$version-dev"
    break
  done
fi
# A browser that reports are tested in. Ubuntu has none as a package.
browser=chromium-headless-shell
if [ "$what" = all ] && ! command -v chromium >/dev/null && ! dpkg -s $browser >/dev/null 2>&1; then
  install $browser || echo "setup: without $browser, reports are not tested in a browser"
fi

if [ "$what" = all ]; then
  stamp=.venv/requirements.installed
  if ! cmp -s python/requirements.txt "$stamp"; then
    echo "setup: installing PyTorch and transformers into .venv"
    python3 -m venv .venv
    .venv/bin/python -m pip install -q --disable-pip-version-check -r python/requirements.txt
    cp python/requirements.txt "$stamp"
  fi
fi
