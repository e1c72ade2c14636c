#!/usr/bin/env bash
# Prints the folder with the sources of XGrammar, which src/grammar/ stands on. They are fetched once into
# the user's cache, and their digest is checked.
set -euo pipefail
version=0.2.8
sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80
url=https://files.pythonhosted.org/packages/03/0f/29f521535729be740779c2c98b630ef6607cf28be9b669895dd2b821ff63/xgrammar-$version.tar.gz

cache=${XDG_CACHE_HOME:-${HOME:?xgrammar.sh: set HOME or XDG_CACHE_HOME}/.cache}/agentcompile/sources
folder=$cache/xgrammar-$version
if [ ! -d "$folder" ]; then
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/xgrammar.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  curl -fsSL --retry 2 --connect-timeout 20 --max-time 300 -o "$work/archive" "$url" 2>"$work/error" || {
    echo "xgrammar.sh: cannot fetch $url: $(head -n 1 "$work/error"); connect to the network, then try again" >&2
    exit 1
  }
  echo "$sha256  $work/archive" | sha256sum --check --status || {
    echo "xgrammar.sh: $url has another SHA-256 than $sha256: it was changed, or damaged on the way" >&2
    exit 1
  }
  top=xgrammar-$version
  tar -xzf "$work/archive" -C "$work" "$top/cpp" "$top/include" "$top/3rdparty/picojson" \
    "$top/3rdparty/dlpack/include" "$top/LICENSE" "$top/NOTICE"
  # Another build may have come first.
  mv -T "$work/$top" "$folder" 2>/dev/null || [ -d "$folder" ]
fi
echo "$folder"
