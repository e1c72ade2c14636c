#!/usr/bin/env bash
# Prints the folder with the test suite of JSON Schema (tests/draft2020-12/...), which is in the sources of Python's
# jsonschema. They are fetched once into the user's cache, and their digest is checked.
set -euo pipefail
version=4.26.0
sha256=0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326
url=https://files.pythonhosted.org/packages/b3/fc/e067678238fa451312d4c62bf6e6cf5ec56375422aee02f9cb5f909b3047/jsonschema-$version.tar.gz

cache=${XDG_CACHE_HOME:-${HOME:?json_schema_suite.sh: set HOME or XDG_CACHE_HOME}/.cache}/agentcompile/sources
folder=$cache/json-schema-suite-$version
if [ ! -d "$folder" ]; then
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/json-schema-suite.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  curl -fsSL --retry 2 --connect-timeout 20 --max-time 300 -o "$work/archive" "$url" 2>"$work/error" || {
    echo "json_schema_suite.sh: cannot fetch $url: $(head -n 1 "$work/error"); connect to the network, then try again" >&2
    exit 1
  }
  echo "$sha256  $work/archive" | sha256sum --check --status || {
    echo "json_schema_suite.sh: $url has another SHA-256 than $sha256: it was changed, or damaged on the way" >&2
    exit 1
  }
  tar -xzf "$work/archive" -C "$work" "jsonschema-$version/json"
  # Another one may have come first.
  mv -T "$work/jsonschema-$version/json" "$folder" 2>/dev/null || [ -d "$folder" ]
fi
echo "$folder"
