#!/usr/bin/env bash
# Installs what is missing, builds, compiles the demo model (for the GPU if there is one), and lets it
# speak. Needs no GPU and no Python.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p build
scripts/setup.sh build
scripts/build.sh release agentcompile
show() {
  echo "\$ $*"
  "$@"
}
agentcompile=build/release/agentcompile
package=build/demo.package
show $agentcompile devices
# Few candidates: the model is small, and the kernels are there to be seen.
options=(--max-context 512 --chunk 32 --short-prompt 0 --tries 1)
if $agentcompile devices --json | grep -q '"cuda": \[\]'; then
  options+=(--device host)
else
  options+=(--device cuda)
fi
if [ $package/program.json -nt $agentcompile ]; then
  echo "$package is newer than the program: it is taken as it is"
else
  show $agentcompile compile examples/demo_model -o $package --force "${options[@]}"
fi
show $agentcompile generate $package -p 'It was a fine morning, and' --max-new-tokens 60 --seed 3
show $agentcompile generate $package --chat -p 'What is a river?' --temp 0
echo "Talk with it:  $agentcompile chat $package"
