#!/usr/bin/env bash
# Fetches sources of others once into the user's cache, checks their digest, and prints their folder.
#   scripts/fetch_source.sh NAME SHA256 URL TOP [PATH...]
# TOP is the folder in the archive (.tar.gz) that becomes NAME; of it, all or some paths are kept.
set -euo pipefail
name=$1 sha256=$2 url=$3 top=$4
shift 4
cache=${XDG_CACHE_HOME:-${HOME:?fetch_source.sh: set HOME or XDG_CACHE_HOME}/.cache}/agentcompile/sources
folder=$cache/$name
if [ ! -d "$folder" ]; then
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/$name.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  curl -fsSL --retry 2 --connect-timeout 20 --max-time 300 -o "$work/archive" "$url" 2>"$work/error" || {
    echo "fetch_source.sh: cannot fetch $url: $(head -n 1 "$work/error"); connect to the network, then try again" >&2
    exit 1
  }
  echo "$sha256  $work/archive" | sha256sum --check --status || {
    echo "fetch_source.sh: $url has another SHA-256 than $sha256: it was changed, or damaged on the way" >&2
    exit 1
  }
  paths=("$top")
  [ $# -eq 0 ] || paths=("${@/#/$top/}")
  tar -xzf "$work/archive" -C "$work" "${paths[@]}"
  # Another one may have come first.
  mv -T "$work/$top" "$folder" 2>/dev/null || [ -d "$folder" ]
fi
echo "$folder"
