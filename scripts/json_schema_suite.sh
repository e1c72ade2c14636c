#!/usr/bin/env bash
# Prints the folder with the test suite of JSON Schema (tests/draft2020-12/...), which is in the sources of Python's
# jsonschema.
set -euo pipefail
version=4.26.0
exec "$(dirname "$0")/fetch_source.sh" json-schema-suite-$version \
  0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326 \
  https://files.pythonhosted.org/packages/b3/fc/e067678238fa451312d4c62bf6e6cf5ec56375422aee02f9cb5f909b3047/jsonschema-$version.tar.gz \
  jsonschema-$version/json
