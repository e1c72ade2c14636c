#!/usr/bin/env bash
# Installs what is missing, builds, captures a small PyTorch decoder, compiles it to a package, and
# generates tokens from both. Needs no GPU.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p build
scripts/setup.sh
scripts/build.sh release agentcompile
show() {
  echo "\$ $*"
  "$@"
}
agentcompile=build/release/agentcompile
show $agentcompile devices
export PYTHONPATH=python
show .venv/bin/python -m agentcompile.capture examples/tiny_decoder.py -o build/tiny_decoder.json
echo "\$ $agentcompile inspect build/tiny_decoder.json --stage step | head -n 40"
$agentcompile inspect build/tiny_decoder.json --stage step >build/tiny_decoder.step
head -n 40 build/tiny_decoder.step
show $agentcompile run build/tiny_decoder.json --reference --ids 72,101,108,108,111 -n 24 --json
show $agentcompile compile build/tiny_decoder.json -o build/tiny_decoder.package --force --unmeasured \
  --tries 1 --chunk 16 --max-context 128
show $agentcompile run build/tiny_decoder.package --ids 72,101,108,108,111 -n 24 --json
show $agentcompile inspect build/tiny_decoder.package --stage selection
